"""Cost: what forward passes cost, under two named conventions. A multiply-add counts as 2; 1 TFLOP = 1e12.

`published` is the formula behind the paper's tables: attention over all N² pairs, query width taken to be the hidden
size, a vocabulary projection at every position, and no vision tower. `honest` counts what a prefill computes:
causal attention, the true query width, the vocabulary projection at the last position only, and the vision tower with
its mergers. Both ignore norms, softmax and rotary embeddings (well under 1 %).

Attention is quadratic within a call, so each call is priced by itself and the costs are added, never the tokens. Each
model prices its own family.
"""

from dataclasses import dataclass, fields

__all__ = ["CONVENTIONS", "Cost"]

CONVENTIONS = {
    "tflops": "honest: causal attention, true query width, vocabulary head at the last position, vision tower included",
    "tflops_computed": "as tflops, less what was reused: features of frames, keys and values of prefixes",
    "tflops_paper": "published: all-pairs attention, hidden size as query width, vocabulary head everywhere, no vision",
}


@dataclass(frozen=True)
class Cost:
    """Tokens and floating-point operations of one or more forward passes; `a + b` adds two costs."""

    calls: int = 0
    tokens: int = 0
    visual_tokens: int = 0
    flops: float = 0.0
    """By the honest convention."""
    flops_paper: float = 0.0
    """By the published convention."""
    flops_computed: float = 0.0
    """By the honest convention, less what did not have to be computed because it was known from before."""
    cached_tokens: int = 0
    """Tokens that a server found in its cache."""
    unpriced: int = 0
    """Calls of models whose floating-point operations are not known; they are missing from the three numbers above."""
    money: float = 0.0
    """What a server charges, in the currency of the prices that it was loaded with; 0 without prices."""

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    def __sub__(self, other: "Cost") -> "Cost":
        return Cost(*(getattr(self, each.name) - getattr(other, each.name) for each in fields(self)))

    @property
    def tflops(self) -> float:
        """Honest convention, in units of 1e12."""
        return self.flops / 1e12

    @property
    def tflops_paper(self) -> float:
        """Published convention, in units of 1e12."""
        return self.flops_paper / 1e12

    @property
    def tflops_computed(self) -> float:
        """What was really computed, in units of 1e12."""
        return self.flops_computed / 1e12
