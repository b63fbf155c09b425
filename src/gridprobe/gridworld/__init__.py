"""gridworld: a procedural world of videos, questions and answers, and the small models that understand it."""

from gridprobe.gridworld.questions import FAMILIES, Asked, ask_about, vocabulary
from gridprobe.gridworld.world import TEST_SEEDS, TRAINING_SEEDS, Difficulty, Worlds, generate

__all__ = [
    "FAMILIES",
    "TEST_SEEDS",
    "TRAINING_SEEDS",
    "Asked",
    "Difficulty",
    "Worlds",
    "ask_about",
    "generate",
    "vocabulary",
]
