"""Tiny random checkpoints of other model families: genuine configurations with small numbers.

The chat templates have the shape of those that were released. One tokenizer, with each family's special tokens added,
serves all of them.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from auto_configs import (
    gemma3,
    gemma4,
    glm4v,
    idefics3,
    internvl,
    llava_next_video,
    llava_onevision,
    minicpmv4_6,
    qwen2_5_vl,
    qwen3_5,
    qwen3_vl_moe,
    smolvlm,
    video_llama_3,
)
from checkpoints import make_tokenizer
from gridprobe.models.transformers import NEEDED

__all__ = ["TINY", "USUAL", "Tiny", "make_auto_checkpoint", "new_enough", "usual_of", "write_processor"]

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
GLM_TURN = (
    "[gMASK]<sop>{% for message in messages %}<|{{ message.role }}|>\n{% for part in message.content %}"
    "{% if part.type == 'image' %}<|begin_of_image|><|image|><|end_of_image|>{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
GEMMA_TURN = (
    "{{ bos_token }}{% for message in messages %}<start_of_turn>{{ message.role }}\n{% for part in message.content %}"
    "{% if part.type == 'image' %}IMAGE{% else %}{{ part.text | trim }}{% endif %}{% endfor %}<end_of_turn>\n"
    "{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
new_enough = pytest.mark.skipif(
    tuple(map(int, transformers.__version__.split(".")[:2])) < NEEDED, reason="needs a newer transformers"
)
NORMAL = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}


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
    video: str = ""
    """The class of the video processor, where transformers does not find it by itself."""


QWEN_PICTURE = "<|vision_start|><|image_pad|><|vision_end|>"
QWEN_IMAGE = {
    "image_processor_type": "Qwen2VLImageProcessor",
    "patch_size": 16,
    "merge_size": 2,
    "temporal_patch_size": 2,
    "size": {"shortest_edge": 65536, "longest_edge": 16777216},
    **NORMAL,
}

IDEFICS_TOKENS = ("<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>", "<video>")

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
        IDEFICS_TOKENS,
    ),
    "idefics3": Tiny(
        idefics3,
        IDEFICS_TURN,
        {
            "image_processor_type": "Idefics3ImageProcessor",
            "size": {"longest_edge": 64},
            "max_image_size": {"longest_edge": 32},
            **NORMAL,
        },
        {"processor_class": "Idefics3Processor", "image_seq_len": 4},
        IDEFICS_TOKENS,
    ),
    "qwen2_5_vl": Tiny(
        qwen2_5_vl,
        QWEN_TURN.replace("IMAGE", QWEN_PICTURE),
        QWEN_IMAGE,
        {"processor_class": "Qwen2_5_VLProcessor"},
    ),
    "qwen3_vl_moe": Tiny(
        qwen3_vl_moe, QWEN_TURN.replace("IMAGE", QWEN_PICTURE), QWEN_IMAGE, {"processor_class": "Qwen3VLProcessor"}
    ),
    "qwen3_5": Tiny(
        qwen3_5, QWEN_TURN.replace("IMAGE", QWEN_PICTURE), QWEN_IMAGE, {"processor_class": "Qwen3VLProcessor"}
    ),
    "glm4v": Tiny(
        glm4v,
        GLM_TURN,
        QWEN_IMAGE | {"image_processor_type": "Glm4vImageProcessor"},
        {"processor_class": "Glm4vProcessor"},
        (
            *("[gMASK]", "<sop>", "<|user|>", "<|assistant|>", "<|image|>", "<|video|>"),
            *("<|begin_of_image|>", "<|end_of_image|>", "<|begin_of_video|>", "<|end_of_video|>"),
        ),
    ),
    "video_llama_3": Tiny(
        video_llama_3,
        QWEN_TURN.replace("IMAGE", "<image>"),
        {"image_processor_type": "VideoLlama3ImageProcessor", "patch_size": 16, "merge_size": 1, **NORMAL},
        {"processor_class": "VideoLlama3Processor"},
        ("<image>", "<video>"),
        {"image_token": "<image>", "video_token": "<video>"},
    ),
    "llava_next_video": Tiny(
        llava_next_video,
        LLAVA_TURN,
        {
            "image_processor_type": "LlavaNextImageProcessor",
            "size": {"shortest_edge": 32},
            "crop_size": {"height": 32, "width": 32},
            "image_grid_pinpoints": [[32, 64], [64, 32], [64, 64]],
            **NORMAL,
        },
        {
            "processor_class": "LlavaNextVideoProcessor",
            "patch_size": 8,
            "vision_feature_select_strategy": "default",
            "num_additional_image_tokens": 1,
        },
        ("<image>", "<video>"),
        video="LlavaNextVideoVideoProcessor",
    ),
    "minicpmv4_6": Tiny(
        minicpmv4_6,
        QWEN_TURN.replace("IMAGE", "<|image_pad|>"),
        {"image_processor_type": "MiniCPMV4_6ImageProcessor", "scale_resolution": 64, "patch_size": 8, **NORMAL},
        {"processor_class": "MiniCPMV4_6Processor"},
        ("<image>", "</image>", "<slice>", "</slice>", "<image_id>", "</image_id>"),
        {
            "image_token": "<|image_pad|>",
            "video_token": "<|video_pad|>",
            "image_start_token": "<image>",
            "image_end_token": "</image>",
            "slice_start_token": "<slice>",
            "slice_end_token": "</slice>",
            "image_id_start_token": "<image_id>",
            "image_id_end_token": "</image_id>",
        },
    ),
    "gemma3": Tiny(
        gemma3,
        GEMMA_TURN.replace("IMAGE", "<start_of_image>"),
        {"image_processor_type": "Gemma3ImageProcessor", "size": {"height": 32, "width": 32}, **NORMAL},
        {"processor_class": "Gemma3Processor", "image_seq_length": 4},
        ("<bos>", "<start_of_turn>", "<end_of_turn>", "<start_of_image>", "<end_of_image>", "<image_soft_token>"),
        {
            "bos_token": "<bos>",
            "boi_token": "<start_of_image>",
            "eoi_token": "<end_of_image>",
            "image_token": "<image_soft_token>",
        },
    ),
    "gemma4": Tiny(
        gemma4,
        GEMMA_TURN.replace("IMAGE", "<|image|>"),
        {"image_processor_type": "Gemma4ImageProcessor", "max_soft_tokens": 70, **NORMAL},
        {"processor_class": "Gemma4Processor"},
        (
            *("<bos>", "<start_of_turn>", "<end_of_turn>", "<|image|>", "<|image>", "<image|>", "<|video|>"),
            *("<|audio|>", "<|audio>", "<audio|>"),
        ),
        {
            "bos_token": "<bos>",
            "boi_token": "<|image>",
            "eoi_token": "<image|>",
            "image_token": "<|image|>",
            "audio_token": "<|audio|>",
            "boa_token": "<|audio>",
            "eoa_token": "<audio|>",
        },
    ),
}


def write_processor(tiny: Tiny, folder: Path) -> transformers.PreTrainedTokenizerFast:
    """Write tokenizer, template and processor files: all of a checkpoint but config and weights."""
    core = make_tokenizer()
    core.add_special_tokens({"additional_special_tokens": list(tiny.tokens)}, replace_extra_special_tokens=False)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=core.backend_tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=tiny.template,
        **({"bos_token": tiny.named["bos_token"]} if "bos_token" in tiny.named else {}),
        extra_special_tokens={name: token for name, token in tiny.named.items() if name != "bos_token"},
    )
    tokenizer.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(tiny.image))
    (folder / "processor_config.json").write_text(json.dumps(tiny.processor))
    if tiny.video:
        (folder / "video_preprocessor_config.json").write_text(json.dumps({"video_processor_type": tiny.video}))
    return tokenizer


def make_auto_checkpoint(family: str, folder: Path, *, seed: int = 0) -> Path:
    """Write config, weights, tokenizer, template and processor files."""
    tiny = TINY[family]
    tokenizer = write_processor(tiny, folder)
    config = transformers.AutoConfig.for_model(family, **tiny.config(tokenizer.convert_tokens_to_ids, len(tokenizer)))
    torch.manual_seed(seed)
    model = transformers.AutoModelForImageTextToText.from_config(config).eval()
    with torch.no_grad():  # transformers' own initialisation is so small that no input would make a difference
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.normal_(0.0, 1.5 * parameter[0].numel() ** -0.5)
    model.save_pretrained(folder)
    return folder


USUAL = ("internvl", "qwen2_5_vl", "qwen3_5")
"""Frames of a fixed and of any number of tokens, and linear attention."""


def usual_of(families: Iterable[str]) -> list[Any]:
    """Parameters for all of them; `make test` runs the usual ones, and compares every family with transformers."""
    return [pytest.param(name, marks=() if name in USUAL else pytest.mark.release) for name in families]
