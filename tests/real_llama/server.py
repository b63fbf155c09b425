"""Write an embedded model as GGUF, with its projector, and serve it with llama.cpp, by the Python of its environment.

    python server.py CHECKPOINT FOLDER PORT        # FOLDER/model.gguf and FOLDER/mmproj.gguf

The names are those of llama.cpp's architecture qwen3vl and of its projector qwen3vl_merger.
"""

import json
import re
import signal
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import xllamacpp

LANGUAGE = {
    "embed_tokens": "token_embd",
    "norm": "output_norm",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
VISION = {
    "patch_embed.proj": "v.patch_embd",
    "pos_embed": "v.position_embd",
    "merger.norm": "v.post_ln",
    "merger.linear_fc1": "mm.0",
    "merger.linear_fc2": "mm.2",
    "attn.qkv": "attn_qkv",
    "attn.proj": "attn_out",
    "mlp.linear_fc1": "ffn_up",
    "mlp.linear_fc2": "ffn_down",
    "norm1": "ln1",
    "norm2": "ln2",
    "norm": "norm",
    "linear_fc1": "fc1",
    "linear_fc2": "fc2",
}


def tensors(file: Path) -> dict[str, Any]:
    """The tensors of a safetensors file as float32; numpy has no bfloat16."""
    data = file.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    header.pop("__metadata__", None)
    read = {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        halves = np.frombuffer(data[start + first : start + last], np.uint16)
        assert entry["dtype"] == "BF16", entry
        read[name] = (halves.astype(np.uint32) << 16).view(np.float32).reshape(entry["shape"])
    return read


def write_language(folder: Path, config: dict[str, Any], weights: dict[str, Any], out: Path) -> None:
    """The language model with its tokenizer and chat template."""
    text = config["text_config"]
    writer = gguf.GGUFWriter(out, "qwen3vl")
    writer.add_name(folder.name)
    writer.add_block_count(text["num_hidden_layers"])
    writer.add_context_length(text["max_position_embeddings"])
    writer.add_embedding_length(text["hidden_size"])
    writer.add_feed_forward_length(text["intermediate_size"])
    writer.add_head_count(text["num_attention_heads"])
    writer.add_head_count_kv(text["num_key_value_heads"])
    writer.add_key_length(text["head_dim"])
    writer.add_value_length(text["head_dim"])
    writer.add_layer_norm_rms_eps(text["rms_norm_eps"])
    writer.add_rope_freq_base(text["rope_parameters"]["rope_theta"])
    writer.add_rope_dimension_sections([*text["rope_parameters"]["mrope_section"], 0])
    writer.add_num_deepstack_layers(len(config["vision_config"]["deepstack_visual_indexes"]))
    _write_tokenizer(writer, folder, text)
    for name, tensor in weights.items():
        if match := re.fullmatch(r"model\.language_model\.(?:layers\.(\d+)\.)?(.+)\.weight", name):
            block = "" if match[1] is None else f"blk.{match[1]}."
            writer.add_tensor(f"{block}{LANGUAGE[match[2]]}.weight", tensor)
    _close(writer)


def _write_tokenizer(writer: gguf.GGUFWriter, folder: Path, text: dict[str, Any]) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    added = {each["content"]: each["id"] for each in tokenizer["added_tokens"]}
    ids = {number: token for token, number in {**tokenizer["model"]["vocab"], **added}.items()}
    kinds = [gguf.TokenType.CONTROL if ids[n] in added else gguf.TokenType.NORMAL for n in range(len(ids))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([ids[number] for number in range(len(ids))])
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["model"]["merges"]])
    writer.add_eos_token_id(text["eos_token_id"])
    writer.add_pad_token_id(text["pad_token_id"])
    writer.add_add_bos_token(False)
    writer.add_chat_template((folder / "chat_template.jinja").read_text(encoding="utf-8"))


def write_projector(folder: Path, config: dict[str, Any], weights: dict[str, Any], out: Path) -> None:
    """The vision tower with its mergers."""
    vision, image = config["vision_config"], json.loads((folder / "preprocessor_config.json").read_text("utf-8"))
    deep = vision["deepstack_visual_indexes"]
    writer = gguf.GGUFWriter(out, "clip")
    writer.add_type(gguf.GGUFType.MMPROJ)
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type(gguf.VisionProjectorType.QWEN3VL)
    writer.add_vision_projection_dim(vision["out_hidden_size"])
    writer.add_vision_image_size(round(vision["num_position_embeddings"] ** 0.5) * vision["patch_size"])
    writer.add_vision_patch_size(vision["patch_size"])
    writer.add_vision_embedding_length(vision["hidden_size"])
    writer.add_vision_feed_forward_length(vision["intermediate_size"])
    writer.add_vision_block_count(vision["depth"])
    writer.add_vision_head_count(vision["num_heads"])
    writer.add_vision_attention_layernorm_eps(1e-6)
    writer.add_vision_image_mean(image["image_mean"])
    writer.add_vision_image_std(image["image_std"])
    writer.add_vision_spatial_merge_size(vision["spatial_merge_size"])
    writer.add_vision_use_gelu(True)
    writer.add_vision_is_deepstack_layers([number in deep for number in range(vision["depth"])])
    for name, tensor in weights.items():
        if match := re.fullmatch(
            r"model\.visual\.(?:(blocks|deepstack_merger_list)\.(\d+)\.)?(.+)\.(weight|bias)", name
        ):
            _add_vision(writer, match, tensor, deep)
    _close(writer)


def _add_vision(writer: gguf.GGUFWriter, match: "re.Match[str]", tensor: Any, deep: list[int]) -> None:
    part, number, name, kind = match.groups()
    place = {"blocks": f"v.blk.{number}.", "deepstack_merger_list": "", None: ""}[part]
    if part == "deepstack_merger_list":
        place = f"v.deepstack.{deep[int(number)]}."
    named = f"{place}{VISION[name]}.{kind}"
    if name == "patch_embed.proj" and kind == "weight":  # one for each of the two frames that a patch holds
        writer.add_tensor(named, np.ascontiguousarray(tensor[:, :, 0]))
        writer.add_tensor(f"{named}.1", np.ascontiguousarray(tensor[:, :, 1]))
    else:
        writer.add_tensor(named, tensor)


def _close(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def serve(folder: Path, port: int) -> None:
    """Serve both files on this machine until the process ends."""
    settings = xllamacpp.CommonParams()
    settings.model.path, settings.mmproj.path = str(folder / "model.gguf"), str(folder / "mmproj.gguf")
    settings.hostnames, settings.port, settings.model_alias = ["127.0.0.1"], port, ["micro"]
    settings.n_ctx, settings.n_parallel = 16384, 1
    settings.image_min_tokens = 1  # llama.cpp enlarges pictures of fewer than 8 tokens; gridworld's frames have 4
    settings.cpuparams.n_threads = 1  # more wait for each other in a loop, which takes forever on a busy machine
    settings.warmup, settings.use_jinja = False, True
    server = xllamacpp.Server(settings)
    print(server.listening_address, flush=True)
    signal.pause()


def main() -> None:
    """Write both files and serve them."""
    checkpoint, folder, port = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    weights = tensors(checkpoint / "model.safetensors")
    write_language(checkpoint, config, weights, folder / "model.gguf")
    write_projector(checkpoint, config, weights, folder / "mmproj.gguf")
    serve(folder, port)


if __name__ == "__main__":
    main()
