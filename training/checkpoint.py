"""The embedded models as ordinary Hugging Face folders: tokenizer, configuration, processor files, weights."""

import json
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from gridprobe_world.questions import WORDINGS
from gridprobe_world.world import BACKGROUNDS, COLOURS, DIGITS, SHAPES, TIMES

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>")
PADS = ("<|image_pad|>", "<|video_pad|>")
VOCABULARY = 640

# Qwen2's own pattern: single digits, and line breaks separate from what follows.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}"
    "{% if part.type == 'image' or 'image' in part or 'image_url' in part %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif part.type == 'video' or 'video' in part %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% elif 'text' in part %}{{ part.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

SIZES: dict[str, dict[str, dict[str, Any]]] = {
    "micro": {
        "text": {"hidden_size": 256, "num_hidden_layers": 6, "num_attention_heads": 4, "intermediate_size": 1024},
        "vision": {"depth": 4, "hidden_size": 192, "num_heads": 4, "intermediate_size": 768},
    },
    "nano": {
        "text": {"hidden_size": 160, "num_hidden_layers": 4, "num_attention_heads": 3, "intermediate_size": 512},
        "vision": {"depth": 3, "hidden_size": 128, "num_heads": 4, "intermediate_size": 384},
    },
}
KV_HEADS = {"micro": 2, "nano": 1}
EMBEDDED = 0.25
"""The initial scale of token embeddings."""


def build_tokenizer() -> Any:
    """Every word of gridworld is one token; any other text is spelled."""
    return train_tokenizer(_corpus(), VOCABULARY)


def train_tokenizer(corpus: list[str], vocabulary: int) -> Any:
    """Byte-level BPE in Qwen2's format, with Qwen3-VL's special tokens and a chat template with frames."""
    core = Tokenizer(models.BPE())
    core.normalizer = normalizers.NFC()
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(SPECIAL + PADS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    core.train_from_iterator(corpus, trainer)
    core.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL + PADS])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=CHAT_TEMPLATE,
        additional_special_tokens=list(SPECIAL + PADS),
        model_max_length=16384,
    )


def _corpus() -> list[str]:
    """The language of gridworld, each word with and without a blank before it."""
    words = [*SHAPES, *COLOURS, *BACKGROUNDS, *" ".join(TIMES).split(), "seconds", "user", "assistant", "nothing"]
    texts = [text.format(shape=shape) for texts in WORDINGS.values() for text in texts for shape in SHAPES]
    fixed = [
        "Question: \nAnswer with the option's letter from the given choices directly.",
        "Question: \nAnswer with a short phrase.",
        "Describe each frame.",
        "Which option says",
        *(f"{letter}. ({letter}) {letter}" for letter in ascii_uppercase),
        *(f" {digit}" for digit in DIGITS),
    ]
    often = [*(f"{word} {word}" for word in words), *fixed]
    return [*texts, *(text for text in often for _ in range(20))]


def build_model(size: str, tokenizer: Any) -> Any:
    """A genuine Qwen3-VL with a small configuration and new weights."""
    token = tokenizer.convert_tokens_to_ids
    sizes = SIZES[size]
    config = transformers.Qwen3VLConfig(
        text_config={
            **sizes["text"],
            "num_key_value_heads": KV_HEADS[size],
            "head_dim": 64,
            "vocab_size": VOCABULARY,
            "max_position_embeddings": 65536,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_section": [12, 10, 10],
                "mrope_interleaved": True,
            },
            "tie_word_embeddings": True,
            "bos_token_id": None,
            "eos_token_id": token("<|im_end|>"),
            "pad_token_id": token("<|endoftext|>"),
        },
        vision_config={
            **sizes["vision"],
            "patch_size": 16,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "out_hidden_size": sizes["text"]["hidden_size"],
            "num_position_embeddings": 196,
            "deepstack_visual_indexes": [1, 2],
        },
        image_token_id=token("<|image_pad|>"),
        video_token_id=token("<|video_pad|>"),
        vision_start_token_id=token("<|vision_start|>"),
        vision_end_token_id=token("<|vision_end|>"),
        tie_word_embeddings=True,
    )
    model = transformers.Qwen3VLForConditionalGeneration(config)
    _initialise(model.model.language_model)
    return model


def _initialise(language: Any) -> None:
    """Initial weights for a small language model.

    The usual 0.02 suits wide models: at a width of 256 the first layer's output is much larger than the token's
    embedding.
    """
    hidden, depth = language.config.hidden_size, len(language.layers)
    for name, weight in language.named_parameters():
        if name.startswith("embed_tokens"):
            torch.nn.init.normal_(weight, std=EMBEDDED)
        elif weight.ndim == 2:
            into_stream = name.endswith(("o_proj.weight", "down_proj.weight"))
            torch.nn.init.normal_(weight, std=(weight.shape[1] * (2 * depth if into_stream else 1)) ** -0.5)
    # The output layer is the embedding again; this keeps its first predictions nearly uniform.
    torch.nn.init.constant_(language.norm.weight, 1 / (EMBEDDED * hidden**0.5))


def save_checkpoint(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write a folder that `AutoModelForImageTextToText.from_pretrained` loads without our code."""
    folder.mkdir(parents=True, exist_ok=True)
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    shared: dict[str, Any] = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    shared |= {"patch_size": 16, "merge_size": 2, "temporal_patch_size": 2}
    image = {
        **shared,
        "image_processor_type": "Qwen2VLImageProcessor",
        "processor_class": "Qwen3VLProcessor",
        "size": {"shortest_edge": 1024, "longest_edge": 1048576},
    }
    video = {
        **shared,
        "video_processor_type": "Qwen3VLVideoProcessor",
        "processor_class": "Qwen3VLProcessor",
        "size": {"shortest_edge": 4096, "longest_edge": 25165824},
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(image, indent=2) + "\n")
    (folder / "video_preprocessor_config.json").write_text(json.dumps(video, indent=2) + "\n")


# Token sequences of whole batches, without a loop over frames: backends/qwen3vl/prompt.py for training.
#
# Plain numpy, so that it runs in the processes that make the batches and never waits for the device.

Ints = npt.NDArray[np.int64]

CLOSE_UPS = "The same frames again, larger:"
"""The line between all frames, small, and some of them, large."""
STEP = 8
"""Lengths are multiples of this, as attention kernels with a mask require."""


@dataclass(frozen=True, eq=False)
class Sequences:
    """One prefix of frames per row and several tails after it, each as if it were alone.

    Everything is padded on the right to multiples of eight. Arrays here, tensors on a device in `forward`.
    """

    ids: Any
    """B × (prefix + tails)."""
    positions: Any
    """3 × B × (prefix + tails)."""
    visual: Any
    """Positions of the visual tokens of each prefix, those of smaller groups first: B × tokens."""
    length: Any
    """The length of each prefix without padding: B."""
    tail: Any
    """Which tail of its row a token belongs to, -1 for padding: B × tails."""


class Tokens:
    """The token ids that every sequence is built from."""

    def __init__(self, tokenizer: Any) -> None:
        def encode(text: str) -> list[int]:
            ids: list[int] = tokenizer.encode(text, add_special_tokens=False)
            return ids

        special = tokenizer.convert_tokens_to_ids
        self.head = np.array([special("<|im_start|>"), *encode("user\n")])
        self.turn = [special("<|im_end|>"), *encode("\n"), special("<|im_start|>"), *encode("assistant\n")]
        self.digits = np.array([encode(str(digit))[0] for digit in range(10)])
        self.less, self.point, self.seconds, self.greater = (encode(text)[0] for text in ("<", ".", " seconds", ">"))
        self.comma = encode(",")[0]
        self.close_ups = np.array(encode(f"{CLOSE_UPS}\n"))
        self.start, self.end = special("<|vision_start|>"), special("<|vision_end|>")
        self.stop, self.video, self.pad = special("<|im_end|>"), special("<|video_pad|>"), special("<|endoftext|>")


def lay_out(
    tenths: Ints, tails: list[list[list[int]]], rows: Ints | int, tokens: Tokens, *, close_ups: int = 0
) -> Sequences:
    """Head and frame groups after their time markers; then all tails of the row.

    Args:
        tenths: when each frame group is shown, in tenths of a second: B × groups.
        tails: what follows the frames.
        rows: a group has rows × rows tokens; one number for all, or one for each group, with every sequence having as
            many groups of each size. `visual` then lists the tokens of the smaller groups first.
        tokens: the ids to build from.
        close_ups: how many of the last groups show frames again, after a line that says so.
    """
    sizes = np.broadcast_to(np.asarray(rows), tenths.shape)
    prefix, length = _prefix(tenths, sizes, tokens, close_ups)
    behind = _padded([[token for tail in each for token in tail] for each in tails], tokens.pad)
    number = _padded([[n for n, tail in enumerate(each) for _ in tail] for each in tails], -1)
    visual = np.nonzero(prefix == tokens.video)[1].reshape(len(tenths), -1)
    positions, end, visual = _positions(prefix, visual, length, sizes)
    place = np.arange(behind.shape[1])
    fresh = np.diff(number, axis=1, prepend=-2) != 0
    after = end[:, None] + place - np.maximum.accumulate(np.where(fresh, place, 0), axis=1)
    positions = np.concatenate([positions, np.stack([after, after, after])], axis=2)
    whole = np.concatenate([prefix, behind], axis=1)
    return Sequences(*(part.astype(np.int32) for part in (whole, positions, visual, length, number)))


def _padded(rows: list[list[int]], filler: int) -> Ints:
    width = -(-max(map(len, rows)) // STEP) * STEP
    out = np.full((len(rows), width), filler, dtype=np.int64)
    for place, row in enumerate(rows):
        out[place, : len(row)] = row
    return out


def _prefix(tenths: Ints, sizes: Ints, tokens: Tokens, close_ups: int) -> tuple[Ints, Ints]:
    """Built with room for five-digit seconds and the largest group, and then compacted."""
    count, groups = tenths.shape
    block = int(sizes.max()) ** 2
    whole = np.stack([tenths // 10**power % 10 for power in range(5, -1, -1)], axis=-1)
    dense = np.full((count, groups, 12 + block), tokens.video)
    dense[..., 0] = tokens.less
    dense[..., 1:6] = tokens.digits[whole[..., :5]]
    dense[..., 6], dense[..., 7] = tokens.point, tokens.digits[whole[..., 5]]
    dense[..., 8], dense[..., 9], dense[..., 10] = tokens.seconds, tokens.greater, tokens.start
    dense[..., -1] = tokens.end
    keep = np.ones(dense.shape, dtype=bool)
    keep[..., 1:5] = whole[..., :4].cumsum(-1) > 0  # no leading zeros
    keep[..., 11:-1] = np.arange(block) < sizes[..., None] ** 2
    head = np.broadcast_to(tokens.head, (count, len(tokens.head)))
    line = np.broadcast_to(tokens.close_ups, (count, len(tokens.close_ups)))[:, : None if close_ups else 0]
    early = groups - close_ups
    ids = np.concatenate([head, dense[:, :early].reshape(count, -1), line, dense[:, early:].reshape(count, -1)], axis=1)
    kept = np.concatenate(
        [
            np.ones_like(head, dtype=bool),
            keep[:, :early].reshape(count, -1),
            np.ones_like(line, dtype=bool),
            keep[:, early:].reshape(count, -1),
        ],
        axis=1,
    )
    place = kept.cumsum(axis=1) - 1
    length = place[:, -1] + 1
    width = -(-int(length.max()) // STEP) * STEP
    out = np.full((count, width + 1), tokens.pad)
    np.put_along_axis(out, np.where(kept, place, width), ids, axis=1)
    return out[:, :width], length


def _positions(ids: Ints, visual: Ints, length: Ints, sizes: Ints) -> tuple[Ints, Ints, Ints]:
    """M-RoPE positions, where they continue after each prefix, and the visual tokens, those of smaller groups first.

    A frame's tokens share one moment, count rows and columns, and text continues after them.
    """
    count, blocks = len(ids), sizes**2
    last = blocks.cumsum(axis=1) - 1
    # For every visual token: the size of its group, and its number in it.
    side = np.repeat(sizes.ravel(), blocks.ravel()).reshape(count, -1)
    inside = np.arange(side.shape[1]) - np.repeat((last + 1 - blocks).ravel(), blocks.ravel()).reshape(count, -1)
    step = np.ones_like(ids)
    np.put_along_axis(step, visual, 0, axis=1)
    np.put_along_axis(step, np.take_along_axis(visual, last, axis=1), sizes, axis=1)
    end = step.cumsum(axis=1)
    base = end - step
    positions = np.stack([base, base, base])
    here = np.take_along_axis(base, visual, axis=1)
    np.put_along_axis(positions[1], visual, here + inside // side, axis=1)
    np.put_along_axis(positions[2], visual, here + inside % side, axis=1)
    if sizes.min() < sizes.max():
        visual = np.take_along_axis(visual, side.argsort(axis=1, kind="stable"), axis=1)
    return positions, np.take_along_axis(end, length[:, None] - 1, axis=1)[:, 0], visual
