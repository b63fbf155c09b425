"""Shapes of released models, one for each family that runs through transformers: what their costs are counted on.

Each is the `config.json` of the checkpoint named first, from memory, compared with transformers' own defaults where
those are the same model (GLM-4.1V, InternViT, SigLIP). They are laid over the tiny configurations of the tests.
MiniCPM-V 4.6 is the least certain: its language model is taken to be that of Qwen3.5-0.8B.
"""

from dataclasses import dataclass, field
from typing import Any

__all__ = ["RELEASED", "Shape"]


@dataclass(frozen=True)
class Shape:
    """One released model."""

    name: str
    text: dict[str, Any]
    vision: dict[str, Any]
    config: dict[str, Any] = field(default_factory=dict)
    """Further fields of config.json."""
    image: dict[str, Any] = field(default_factory=dict)
    """Of preprocessor_config.json."""
    processor: dict[str, Any] = field(default_factory=dict)
    """Of processor_config.json."""


def _text(hidden: int, layers: int, heads: int, kv: int, ffn: int, vocab: int, **more: Any) -> dict[str, Any]:
    more |= {"max_position_embeddings": 1 << 18}
    sizes = {"hidden_size": hidden, "num_hidden_layers": layers, "intermediate_size": ffn, "vocab_size": vocab}
    return {
        **sizes,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "max_position_embeddings": 1 << 18,
        **more,
    }


def _siglip(layers: int, side: int) -> dict[str, Any]:
    """SigLIP-so400m for squares of this side."""
    heads = {"num_attention_heads": 16, "image_size": side, "patch_size": 14}
    return {"hidden_size": 1152, "num_hidden_layers": layers, "intermediate_size": 4304, **heads}


def _qwen_tower(out: int) -> dict[str, Any]:
    """The tower of Qwen3-VL from 8B on, and of Qwen3.5."""
    sizes = {"depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "out_hidden_size": out}
    return {**sizes, "num_heads": 16, "patch_size": 16, "num_position_embeddings": 2304}


def _linear(values: int, layers: int) -> dict[str, Any]:
    """Qwen3.5's linear attention in three of four layers."""
    dims = {"linear_key_head_dim": 128, "linear_value_head_dim": 128}
    kinds = (["linear_attention"] * 3 + ["full_attention"]) * (layers // 4)
    return {**dims, "linear_num_key_heads": 16, "linear_num_value_heads": values, "layer_types": kinds, "head_dim": 256}


def _square(side: int) -> dict[str, Any]:
    return {"size": {"height": side, "width": side}}


PATCH_14 = {"patch_size": 14, "merge_size": 2}
QWEN2_7B = _text(3584, 28, 28, 4, 18944, 152064)
SLIDING = ["sliding_attention"] * 5 + ["full_attention"]
QWEN3_5_ROPE = {"mrope_section": [11, 11, 10], "partial_rotary_factor": 0.25}
GLM_ROPE = {"mrope_section": [8, 12, 12], "partial_rotary_factor": 0.5}
EXPERTS = {"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768}
RELEASED = {
    "qwen3_vl_moe": Shape(
        "Qwen3-VL-30B-A3B",
        _text(2048, 48, 32, 4, 6144, 151936, head_dim=128, rope_parameters={"mrope_section": [24, 20, 20]}, **EXPERTS),
        _qwen_tower(2048) | {"deepstack_visual_indexes": [8, 16, 24]},
    ),
    "qwen3_5": Shape(
        "Qwen3.5-9B",
        _text(4096, 32, 16, 4, 12288, 248320, rope_parameters=QWEN3_5_ROPE, **_linear(32, 32)),
        _qwen_tower(4096),
    ),
    "qwen2_5_vl": Shape(
        "Qwen2.5-VL-7B",
        QWEN2_7B | {"rope_parameters": {"mrope_section": [16, 24, 24]}},
        {
            "depth": 32,
            "hidden_size": 1280,
            "num_heads": 16,
            "intermediate_size": 3420,
            "out_hidden_size": 3584,
            "patch_size": 14,
            "window_size": 112,
            "fullatt_block_indexes": [7, 15, 23, 31],
        },
        image=PATCH_14,
    ),
    "glm4v": Shape(
        "GLM-4.1V-9B",
        _text(4096, 40, 32, 2, 13696, 151552, rope_parameters=GLM_ROPE),
        {
            "depth": 24,
            "hidden_size": 1536,
            "num_heads": 12,
            "intermediate_size": 13696,
            "out_hidden_size": 4096,
            "patch_size": 14,
            "image_size": 336,
        },
        image=PATCH_14,
    ),
    "video_llama_3": Shape("VideoLLaMA3-7B", QWEN2_7B, _siglip(27, 384), image={"patch_size": 14}),
    "internvl": Shape(
        "InternVL3.5-8B",
        _text(4096, 36, 32, 8, 12288, 151936, head_dim=128, model_type="qwen3"),
        {
            "hidden_size": 1024,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "intermediate_size": 4096,
            "image_size": [448, 448],
            "patch_size": [14, 14],
        },
        image=_square(448),
        processor={"image_seq_length": 256},
    ),
    "llava_onevision": Shape(
        "LLaVA-OneVision-7B",
        QWEN2_7B,
        _siglip(26, 384),
        config={"image_grid_pinpoints": [[384, 384], [384, 768], [768, 384], [768, 768]]},
        image=_square(384) | {"image_grid_pinpoints": [[384, 384], [384, 768], [768, 384], [768, 768]]},
        processor={"num_image_tokens": 729},
    ),
    "llava_next_video": Shape(
        "LLaVA-NeXT-Video-7B",
        _text(4096, 32, 32, 32, 11008, 32064),
        {
            "hidden_size": 1024,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "intermediate_size": 4096,
            "image_size": 336,
            "patch_size": 14,
        },
        config={"image_seq_length": 576},
        image={"size": {"shortest_edge": 336}, "crop_size": {"height": 336, "width": 336}},
        processor={"patch_size": 14},
    ),
    "smolvlm": Shape(
        "SmolVLM2-2.2B",
        _text(2048, 24, 32, 32, 8192, 49280),
        _siglip(27, 384),
        config={"scale_factor": 3},
        image={"size": {"longest_edge": 1536}, "max_image_size": {"longest_edge": 384}},
        processor={"image_seq_len": 81},
    ),
    "idefics3": Shape(
        "Idefics3-8B",
        _text(4096, 32, 32, 8, 14336, 128259),
        _siglip(27, 364),
        config={"scale_factor": 2},
        image={"size": {"longest_edge": 1456}, "max_image_size": {"longest_edge": 364}},
        processor={"image_seq_len": 169},
    ),
    "gemma3": Shape(
        "Gemma 3 4B",
        _text(2560, 34, 8, 4, 10240, 262208, head_dim=256, sliding_window=1024, layer_types=(SLIDING * 6)[:34]),
        _siglip(27, 896),
        config={"mm_tokens_per_image": 256},
        image=_square(896),
        processor={"image_seq_length": 256},
    ),
    "gemma4": Shape(
        "Gemma 4 E4B",
        _text(
            *(2560, 42, 8, 2, 10240, 262144),
            head_dim=256,
            global_head_dim=512,
            sliding_window=512,
            layer_types=SLIDING * 7,
            hidden_size_per_layer_input=256,
            vocab_size_per_layer_input=262144,
            num_kv_shared_layers=18,
        ),
        {
            "hidden_size": 768,
            "num_hidden_layers": 16,
            "num_attention_heads": 12,
            "num_key_value_heads": 12,
            "head_dim": 64,
            "intermediate_size": 3072,
            "patch_size": 16,
            "position_embedding_size": 10240,
        },
        image={"max_soft_tokens": 280},
    ),
    "minicpmv4_6": Shape(
        "MiniCPM-V 4.6",
        _text(1024, 24, 8, 2, 3584, 248320, **_linear(16, 24)),
        _siglip(27, 980) | {"insert_layer_id": 6},
        config={"insert_layer_id": 6, "image_size": 448},
        image={"scale_resolution": 448, "patch_size": 14},
    ),
}
