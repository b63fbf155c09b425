"""The embedded models as ordinary Hugging Face folders: tokenizer, configuration, processor files, weights."""

import json
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import torch
import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from gridprobe.gridworld.wordings import WORDINGS
from gridprobe.gridworld.words import BACKGROUNDS, COLOURS, DIGITS, SHAPES, TIMES

__all__ = ["PADS", "SIZES", "SPECIAL", "build_model", "build_tokenizer", "save_checkpoint", "train_tokenizer"]

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
