"""Selectors: one published method, or one control, each. Their names are in `gridprobe.registry.SELECTORS`."""

from gridprobe.selectors.base import ExtraFrames, Parts, Selection, Selector
from gridprobe.selectors.baselines import All, AllSmall, Random, Uniform, UniformLike
from gridprobe.selectors.gridprobe import GridProbe

__all__ = [
    "All",
    "AllSmall",
    "ExtraFrames",
    "GridProbe",
    "Parts",
    "Random",
    "Selection",
    "Selector",
    "Uniform",
    "UniformLike",
]
