"""The encoder inside the package: a small CLIP that knows only gridworld's captions.

It is never used unless it is named, as in `mdp3:embedded`, or by the preset gridworld: a real video needs a real
encoder. A question with words that it was not trained on gets a warning.
"""

from typing import Any

from gridprobe.selectors.base import Encoder
from gridprobe_selectors import clip
from gridprobe_selectors.encoders import EncoderCostModel, dims_of_checkpoint
from gridprobe_world.embedded import WEIGHTS, Vocabulary, check_shipped, some_words


class EmbeddedEncoder(clip.ClipEncoder):
    """The CLIP of the package."""

    def notes(self, text: str) -> tuple[str, ...]:
        """A warning about words that are not in its vocabulary."""
        words = Vocabulary.embedded().unknown(text)
        return (f"the embedded encoder met {some_words(words)}, which it has never seen",) if words else ()


def load(argument: str = "", *, weights: bool = True, **options: Any) -> Encoder:
    """Load it; options as for `gridprobe_selectors.clip.load`."""
    if not weights:
        return EncoderCostModel("embedded", dims_of_checkpoint(str(WEIGHTS / "clip")))
    check_shipped(WEIGHTS / "clip")
    return clip.load(str(WEIGHTS / "clip"), label="embedded", made=EmbeddedEncoder, **options)
