"""Selectors: one published method, or one control, each."""

from gridprobe.selectors.base import Selection, Selector
from gridprobe.selectors.baselines import All, Random, Uniform, UniformLike
from gridprobe.selectors.gridprobe import GridProbe
from gridprobe.selectors.keyframes import KEYFRAMES, Keyframes

__all__ = [
    "KEYFRAMES",
    "SELECTORS",
    "All",
    "GridProbe",
    "Keyframes",
    "Random",
    "Selection",
    "Selector",
    "Uniform",
    "UniformLike",
]

SELECTORS = {
    "gridprobe": "the paper: row and column probes, importance map, shape-adaptive budget",
    "uniform": "frames at equal distances; needs --frames N",
    "random": "frames drawn at random, seeded; needs --frames N",
    "all": "every frame of the pool: the monolithic baseline",
    "uniform-like": "as many frames as gridprobe would keep, but uniform: the matched-budget control",
    "keyframes:FILE": "frames chosen before, from a file of gridprobe export-keyframes; needs questions with ids",
}
