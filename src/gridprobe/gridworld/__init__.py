"""gridworld: a procedural world of videos, questions and answers, and the small models that understand it."""

from gridprobe.gridworld.parts import PARTS, generate_part
from gridprobe.gridworld.questions import FAMILIES, Asked, ask_about
from gridprobe.gridworld.wordings import vocabulary
from gridprobe.gridworld.world import TEST_SEEDS, TRAINING_SEEDS, Difficulty, Worlds, generate

__all__ = [
    "FAMILIES",
    "PARTS",
    "TEST_SEEDS",
    "TRAINING_SEEDS",
    "Asked",
    "Difficulty",
    "Worlds",
    "ask_about",
    "generate",
    "generate_part",
    "vocabulary",
]
