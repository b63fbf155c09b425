"""Benchmarks: one file each, with its loader, its prompt and its official metrics."""

from gridprobe.benchmarks.base import Benchmark, Item, Metric, Problem

__all__ = ["Benchmark", "Item", "Metric", "Problem"]
