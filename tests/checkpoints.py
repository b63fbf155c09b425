"""A tiny Qwen3-VL checkpoint with random weights, made on the spot: the genuine architecture with small numbers.

The tokenizer is a real byte-level BPE in Qwen2's format with the special tokens of Qwen3-VL. Its vocabulary is small,
so a random model puts a few per cent of its probability on the option letters, enough to be asked.
"""

import json
from pathlib import Path
from string import ascii_uppercase

import torch
from transformers import PreTrainedTokenizerFast, Qwen3VLConfig, Qwen3VLForConditionalGeneration

from training import checkpoint

SPECIAL = checkpoint.SPECIAL + checkpoint.PADS


def make_tokenizer() -> PreTrainedTokenizerFast:
    """The letters have their bare, spaced and bracketed forms as single tokens, as Qwen's has."""
    corpus = [f" {letter} {letter}" * 50 for letter in ascii_uppercase]
    corpus += [f"({letter}" for letter in ascii_uppercase for _ in range(50)]
    corpus += ["seconds user assistant Question Answer the option letter" for _ in range(5)]
    return checkpoint.train_tokenizer(corpus, 420)


def make_config(tokenizer: PreTrainedTokenizerFast) -> Qwen3VLConfig:
    token = tokenizer.convert_tokens_to_ids
    return Qwen3VLConfig(
        text_config={
            "hidden_size": 64,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 32,
            "intermediate_size": 128,
            "vocab_size": len(tokenizer),
            "max_position_embeddings": 32768,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_section": [6, 5, 5],
                "mrope_interleaved": True,
            },
        },
        vision_config={
            "depth": 3,
            "hidden_size": 32,
            "num_heads": 2,
            "intermediate_size": 64,
            "out_hidden_size": 64,
            "patch_size": 16,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0, 1],
        },
        image_token_id=token("<|image_pad|>"),
        video_token_id=token("<|video_pad|>"),
        vision_start_token_id=token("<|vision_start|>"),
        vision_end_token_id=token("<|vision_end|>"),
        tie_word_embeddings=True,
    )


def make_checkpoint(folder: Path, *, seed: int = 0) -> Path:
    """Write config, weights, tokenizer and processor files, as `save_pretrained` of a released model would."""
    tokenizer = make_tokenizer()
    torch.manual_seed(seed)
    model = Qwen3VLForConditionalGeneration(make_config(tokenizer)).eval()
    with torch.no_grad():  # transformers' own initialisation is so small that no input would make a difference
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.normal_(0.0, 1.5 * parameter.shape[-1] ** -0.5)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    shared = {
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
        "patch_size": 16,
        "merge_size": 2,
        "temporal_patch_size": 2,
    }
    image = {**shared, "image_processor_type": "Qwen2VLImageProcessor"}
    video = {**shared, "video_processor_type": "Qwen3VLVideoProcessor", "processor_class": "Qwen3VLProcessor"}
    sizes = {"shortest_edge": 65536, "longest_edge": 16777216}
    clip = {"shortest_edge": 4096, "longest_edge": 25165824}
    (folder / "preprocessor_config.json").write_text(json.dumps({**image, "size": sizes}))
    (folder / "video_preprocessor_config.json").write_text(json.dumps({**video, "size": clip}))
    return folder
