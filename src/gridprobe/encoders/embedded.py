"""The encoder inside the package: a small CLIP that knows only gridworld's captions.

It is never used unless it is named, by `encoder=embedded` or the preset gridworld: a real video needs a real encoder. A
question with words that it was not trained on gets a warning.
"""

from typing import Any

from gridprobe.backends.embedded import MODELS, Vocabulary, some_words
from gridprobe.backends.shipped import check_shipped
from gridprobe.encoders import clip

__all__ = ["EmbeddedEncoder", "load"]


class EmbeddedEncoder(clip.ClipEncoder):
    """The CLIP of the package."""

    def notes(self, text: str) -> tuple[str, ...]:
        """A warning about words that are not in its vocabulary."""
        words = Vocabulary.embedded().unknown(text)
        return (f"the embedded encoder met {some_words(words)}, which it has never seen",) if words else ()


def load(argument: str = "", **options: Any) -> clip.ClipEncoder:
    """Load it; options as for `gridprobe.encoders.clip.load`."""
    check_shipped(MODELS / "clip")
    return clip.load(str(MODELS / "clip"), label="embedded", made=EmbeddedEncoder, **options)
