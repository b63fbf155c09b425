"""CLIP (Radford et al., arXiv 2103.00020) and SigLIP (Zhai et al., arXiv 2303.15343) as frame selectors: top-m.

The frames that are most similar to the question are kept. `clip` uses CLIP ViT-L/14 and `siglip` SigLIP so400m, unless
the settings name another encoder. With frames="auto" a budget rule decides how many, which is the follow-up that the
paper proposes: the shape rule on similarities.

The query is the bare question. Equal similarities are resolved by `ties`, as in a map of probes.
"""

from dataclasses import dataclass

from gridprobe.selectors.base import Parts
from gridprobe.selectors.encoded import Compared, Encoded, encoder_of, similarity_map

__all__ = ["TopMatches", "clip", "siglip"]


@dataclass(frozen=True)
class TopMatches(Encoded):
    """The most similar frames."""

    name: str = "clip"

    def choose(self, found: Compared, kept: int) -> tuple[int, ...]:
        """Those that the budget chooses from the map."""
        return self.budget.choose(similarity_map(found.cosines), ties=self.ties)


def clip(argument: str, parts: Parts) -> TopMatches:
    """The function of the registry, for "clip"."""
    return TopMatches(encoder_of(parts, "clip"), parts.budget, parts.ties, "clip")


def siglip(argument: str, parts: Parts) -> TopMatches:
    """The function of the registry, for "siglip"."""
    return TopMatches(encoder_of(parts, "siglip"), parts.budget, parts.ties, "siglip")
