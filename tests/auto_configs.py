"""Configurations of the tiny checkpoints in `auto_checkpoints`, each as its family's config class takes it."""

from collections.abc import Callable
from typing import Any

__all__ = [
    "gemma3",
    "gemma4",
    "glm4v",
    "idefics3",
    "internvl",
    "llava_next_video",
    "llava_onevision",
    "minicpmv4_6",
    "qwen2_5_vl",
    "qwen3_5",
    "qwen3_vl_moe",
    "smolvlm",
    "video_llama_3",
]

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


QWEN_VISION: dict[str, Any] = {
    "depth": 2,
    "hidden_size": 16,
    "num_heads": 2,
    "intermediate_size": 32,
    "out_hidden_size": 32,
    "patch_size": 16,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}


def mrope(**more: Any) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2], **more}


def qwen_tokens(token: Callable[[str], int]) -> dict[str, Any]:
    return {
        "image_token_id": token("<|image_pad|>"),
        "video_token_id": token("<|video_pad|>"),
        "vision_start_token_id": token("<|vision_start|>"),
        "vision_end_token_id": token("<|vision_end|>"),
        "tie_word_embeddings": True,
    }


def qwen2_5_vl(token: Callable[[str], int], size: int) -> dict[str, Any]:
    text = TEXT | {"vocab_size": size, "rope_parameters": mrope()}
    vision = QWEN_VISION | {"window_size": 64, "fullatt_block_indexes": [1]}
    return {"text_config": text, "vision_config": vision, **qwen_tokens(token)}


def qwen3_vl_moe(token: Callable[[str], int], size: int) -> dict[str, Any]:
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    text = TEXT | {"vocab_size": size, "head_dim": 16, "rope_parameters": mrope(mrope_interleaved=True), **experts}
    vision = QWEN_VISION | {"num_position_embeddings": 16, "deepstack_visual_indexes": [0]}
    return {"text_config": text, "vision_config": vision, **qwen_tokens(token)}


def qwen3_5(token: Callable[[str], int], size: int) -> dict[str, Any]:
    linear = {f"linear_{name}_head_dim": 8 for name in ("key", "value")}
    linear |= {f"linear_num_{name}_heads": 2 for name in ("key", "value")}
    rope = mrope(mrope_interleaved=True, partial_rotary_factor=1.0)
    text = TEXT | {"vocab_size": size, "head_dim": 16, "rope_parameters": rope, **linear}
    text |= {"layer_types": ["linear_attention", "full_attention"]}
    vision = QWEN_VISION | {"num_position_embeddings": 16}
    return {"text_config": text, "vision_config": vision, **qwen_tokens(token)}


def glm4v(token: Callable[[str], int], size: int) -> dict[str, Any]:
    names = ("image", "video", "image_start", "image_end", "video_start", "video_end")
    tokens = ("image", "video", "begin_of_image", "end_of_image", "begin_of_video", "end_of_video")
    return {
        "text_config": TEXT | {"vocab_size": size, "rope_parameters": mrope(partial_rotary_factor=1.0)},
        "vision_config": QWEN_VISION | {"image_size": 64},
        **{f"{name}_token_id": token(f"<|{written}|>") for name, written in zip(names, tokens, strict=True)},
        "tie_word_embeddings": True,
    }


def video_llama_3(token: Callable[[str], int], size: int) -> dict[str, Any]:
    return {
        "text_config": TEXT | {"model_type": "qwen2", "vocab_size": size},
        "vision_config": VISION | {"patch_size": 16},
        "image_token_id": token("<image>"),
        "video_token_id": token("<video>"),
        "tie_word_embeddings": True,
    }


def llava_next_video(token: Callable[[str], int], size: int) -> dict[str, Any]:
    vision = VISION | {"model_type": "clip_vision_model", "image_size": 32, "patch_size": 8}
    return {
        "text_config": TEXT | {"model_type": "llama", "vocab_size": size},
        "vision_config": vision,
        "image_token_index": token("<image>"),
        "video_token_index": token("<video>"),
        "image_grid_pinpoints": [[32, 64], [64, 32], [64, 64]],
        "image_seq_length": 16,
        "tie_word_embeddings": True,
    }


def minicpmv4_6(token: Callable[[str], int], size: int) -> dict[str, Any]:
    text = qwen3_5(token, size)["text_config"] | {"model_type": "qwen3_5_text", "rope_parameters": {"rope_theta": 1e4}}
    return {
        "text_config": text,
        "vision_config": VISION | {"image_size": 64, "patch_size": 8, "insert_layer_id": 0},
        "insert_layer_id": 0,
        "image_size": 64,
        "image_token_id": token("<|image_pad|>"),
        "video_token_id": token("<|video_pad|>"),
        "tie_word_embeddings": True,
    }


def gemma3(token: Callable[[str], int], size: int) -> dict[str, Any]:
    text = TEXT | {"vocab_size": size, "head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 4096}
    vision = VISION | {"model_type": "siglip_vision_model", "image_size": 32, "patch_size": 8, "vision_use_head": False}
    return {
        "text_config": text | {"layer_types": ["sliding_attention", "full_attention"]},
        "vision_config": vision,
        "mm_tokens_per_image": 4,
        "boi_token_index": token("<start_of_image>"),
        "eoi_token_index": token("<end_of_image>"),
        "image_token_index": token("<image_soft_token>"),
    }


def gemma4(token: Callable[[str], int], size: int) -> dict[str, Any]:
    text = TEXT | {"vocab_size": size, "head_dim": 16, "global_head_dim": 32, "sliding_window": 4096}
    text |= {"vocab_size_per_layer_input": size, "hidden_size_per_layer_input": 8}
    vision = VISION | {"num_key_value_heads": 2, "head_dim": 8, "position_embedding_size": 64}
    return {
        "text_config": text | {"layer_types": ["sliding_attention", "full_attention"]},
        "vision_config": vision,
        "image_token_id": token("<|image|>"),
        "boi_token_id": token("<|image>"),
        "eoi_token_id": token("<image|>"),
    }


def idefics3(token: Callable[[str], int], size: int) -> dict[str, Any]:
    return smolvlm(token, size) | {"tie_word_embeddings": True}
