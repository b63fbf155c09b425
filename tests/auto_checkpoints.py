"""Tiny random checkpoints of other model families: genuine configurations with small numbers, loaded by the Auto classes.

The chat templates have the shape of those that were released. One tokenizer, with each family's special tokens added,
serves all of them.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers

from checkpoints import make_tokenizer

__all__ = ["TINY", "Tiny", "make_auto_checkpoint"]

QWEN_TURN = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{% for part in message.content %}"
    "{% if part.type == 'image' %}IMAGE{% else %}{{ part.text }}{% endif %}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAVA_TURN = (
    "{% for message in messages %}<|im_start|>{{ message.role }} "
    "{% for part in message.content | selectattr('type', 'equalto', 'image') %}<image>{% endfor %}"
    "{% for part in message.content | selectattr('type', 'equalto', 'text') %}{{ '\n' + part.text }}{% endfor %}"
    "<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
IDEFICS_TURN = (
    "<|im_start|>{% for message in messages %}{{ message.role | capitalize }}"
    "{% if message.content[0].type == 'image' %}:{% else %}: {% endif %}{% for part in message.content %}"
    "{% if part.type == 'text' %}{{ part.text }}{% elif part.type == 'image' %}<image>{% endif %}{% endfor %}"
    "<end_of_utterance>\n{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
)
NORMAL = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
TEXT: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 64,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
}
VISION: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


@dataclass(frozen=True)
class Tiny:
    """What makes a tiny checkpoint of a family."""

    config: Callable[[Callable[[str], int], int], dict[str, Any]]
    """From a function that gives a token's id, and the size of the vocabulary."""
    template: str
    image: dict[str, Any]
    """preprocessor_config.json."""
    processor: dict[str, Any]
    """processor_config.json."""
    tokens: tuple[str, ...] = ()
    """Special tokens besides those of Qwen."""
    named: dict[str, str] = field(default_factory=dict)
    """Attributes of the tokenizer, such as image_token."""


def internvl(token: Callable[[str], int], size: int) -> dict[str, Any]:
    vision = VISION | {"image_size": [32, 32], "patch_size": [8, 8], "use_absolute_position_embeddings": True}
    text = TEXT | {"model_type": "qwen2", "vocab_size": size}
    return {"text_config": text, "vision_config": vision, "image_token_id": token("<IMG_CONTEXT>")}


def llava_onevision(token: Callable[[str], int], size: int) -> dict[str, Any]:
    vision = VISION | {"model_type": "siglip_vision_model", "image_size": 32, "patch_size": 8, "vision_use_head": False}
    return {
        "text_config": TEXT | {"model_type": "qwen2", "vocab_size": size},
        "vision_config": vision,
        "image_token_id": token("<image>"),
        "video_token_id": token("<video>"),
        "image_grid_pinpoints": [[32, 32], [32, 64], [64, 32], [64, 64]],
    }


def smolvlm(token: Callable[[str], int], size: int) -> dict[str, Any]:
    return {
        "text_config": TEXT | {"model_type": "llama", "vocab_size": size, "pad_token_id": 0},
        "vision_config": VISION | {"image_size": 32, "patch_size": 8},
        "image_token_id": token("<image>"),
        "scale_factor": 2,
        "pad_token_id": 0,
    }


TINY: dict[str, Tiny] = {
    "internvl": Tiny(
        internvl,
        QWEN_TURN.replace("IMAGE", "<IMG_CONTEXT>\n"),
        {"image_processor_type": "GotOcr2ImageProcessor", "size": {"height": 32, "width": 32}, **NORMAL},
        {"processor_class": "InternVLProcessor", "image_seq_length": 4},
        ("<img>", "</img>", "<IMG_CONTEXT>", "<video>"),
        {
            "start_image_token": "<img>",
            "end_image_token": "</img>",
            "context_image_token": "<IMG_CONTEXT>",
            "video_token": "<video>",
        },
    ),
    "llava_onevision": Tiny(
        llava_onevision,
        LLAVA_TURN,
        {
            "image_processor_type": "LlavaOnevisionImageProcessor",
            "size": {"height": 32, "width": 32},
            "image_grid_pinpoints": [[32, 32], [32, 64], [64, 32], [64, 64]],
            **NORMAL,
        },
        {
            "processor_class": "LlavaOnevisionProcessor",
            "num_image_tokens": 16,
            "vision_feature_select_strategy": "full",
        },
        ("<image>", "<video>"),
    ),
    "smolvlm": Tiny(
        smolvlm,
        IDEFICS_TURN,
        {
            "image_processor_type": "SmolVLMImageProcessor",
            "size": {"longest_edge": 64},
            "max_image_size": {"longest_edge": 32},
            **NORMAL,
        },
        {"processor_class": "SmolVLMProcessor", "image_seq_len": 4},
        ("<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>", "<video>"),
    ),
}


def make_auto_checkpoint(family: str, folder: Path, *, seed: int = 0) -> Path:
    """Write config, weights, tokenizer, template and processor files."""
    tiny = TINY[family]
    core = make_tokenizer()
    core.add_special_tokens({"additional_special_tokens": list(tiny.tokens)}, replace_extra_special_tokens=False)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=core.backend_tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=tiny.template,
        extra_special_tokens=tiny.named,
    )
    config = transformers.AutoConfig.for_model(family, **tiny.config(tokenizer.convert_tokens_to_ids, len(tokenizer)))
    torch.manual_seed(seed)
    model = transformers.AutoModelForImageTextToText.from_config(config).eval()
    with torch.no_grad():  # transformers' own initialisation is so small that no input would make a difference
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.normal_(0.0, 1.5 * parameter[0].numel() ** -0.5)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(tiny.image))
    (folder / "processor_config.json").write_text(json.dumps(tiny.processor))
    return folder
