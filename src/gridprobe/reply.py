"""What an answer says: one of the question's options, or a text."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

__all__ = ["Basis", "Candidate", "Choice", "Kind", "Reply", "Text"]

Basis = Literal["letters", "written", "drafts", "tokens"]
"""How probabilities were obtained: from the letters of options; as the probability of writing a text, in any of the
wordings that say the same; as the share of drafts that say it; or as the mean probability of a longer text's tokens."""
Kind = Literal["yes/no", "number", "not said", "text", "description"]


class Candidate(NamedTuple):
    """Something that the answer could be."""

    text: str
    probability: float


@dataclass(frozen=True)
class Choice:
    """The answer to a question with options."""

    label: str
    """Such as "B"."""
    text: str
    confidence: float


@dataclass(frozen=True)
class Text:
    """The answer to a question without options."""

    text: str
    """In the model's words."""
    confidence: float
    basis: Basis
    """What the confidence is."""
    kind: Kind
    """What kind of answer it is; "not said" if the video does not show what is asked."""
    candidates: tuple[Candidate, ...]
    """What the model considered, likeliest first; probabilities sum to at most 1, the rest is anything else."""


Reply = Choice | Text
