"""Which tokens mean which option letter."""

from collections.abc import Callable, Sequence

from gridprobe.errors import ModelError

__all__ = ["SURFACE_FORMS", "single_tokens"]

SURFACE_FORMS = ("{}", " {}", "({}")
"""How a model may begin its answer: "A", " A" or "(A"."""


def single_tokens(encode: Callable[[str], Sequence[int]], labels: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """For each label the ids of its surface forms that are single tokens.

    The sets must be disjoint. A form of several tokens is left out instead of being represented by its first token: if
    "(" were a token, "(A" and "(B" would begin with the same one.
    """
    tokens: dict[str, tuple[int, ...]] = {}
    owner: dict[int, str] = {}
    for label in labels:
        encoded = [encode(form.format(label)) for form in SURFACE_FORMS]
        tokens[label] = tuple(dict.fromkeys(ids[0] for ids in encoded if len(ids) == 1))
        if not tokens[label]:
            raise ModelError(f"this tokenizer has no single token for the option letter {label}")
        for token in tokens[label]:
            if owner.setdefault(token, label) != label:
                raise ModelError(f"token {token} begins both {owner[token]} and {label}; letters cannot be told apart")
    return tokens
