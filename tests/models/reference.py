"""What transformers' own processor and model make of the same frames: the yardstick for gridprobe.models.qwen3vl.

Run as a program, in a process of its own: `python reference.py CHECKPOINT CASES.npz OUT.npz`. It needs torchvision,
which has no CPU build; beside a CPU torch its compiled part cannot load, and importing it stops because two operators
are registered that were never declared. Declaring them is enough for everything used here.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def repair_torchvision() -> None:
    try:
        import torchvision
    except RuntimeError:
        make: Any = torch.library.Library
        library = make("torchvision", "FRAGMENT")
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        globals()["keep_alive"] = library
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        import torchvision  # noqa: F401


def run_case(
    processor: Any, model: Any, arrays: Mapping[str, np.ndarray], name: str, case: dict[str, Any]
) -> dict[str, np.ndarray]:
    # One video_pad without the outer vision_start/vision_end pair: 5.x then expands to the form of the release, 4.57.
    text = f"<|im_start|>user\n<|video_pad|>{case['prompt']}<|im_end|>\n<|im_start|>assistant\n"
    repeat = 2 if case["packing"] == "single" else 1
    video = torch.from_numpy(arrays[name]).permute(0, 3, 1, 2).repeat_interleave(repeat, dim=0)
    milliseconds = np.repeat([round(t * 1000) for t in case["times"]], repeat).tolist()
    metadata = {"fps": 1000.0, "frames_indices": milliseconds, "total_num_frames": milliseconds[-1] + 1}
    inputs = processor(
        text=[text], videos=[video], video_metadata=[metadata], do_sample_frames=False, return_tensors="pt"
    )
    model.model.rope_deltas = None
    dtype = next(model.parameters()).dtype
    inputs["pixel_values_videos"] = inputs["pixel_values_videos"].to(dtype)
    with torch.inference_mode():
        logits = model(**inputs, logits_to_keep=1).logits[0, -1]
    positions, _ = model.model.get_rope_index(
        inputs["input_ids"], inputs["mm_token_type_ids"], video_grid_thw=inputs["video_grid_thw"]
    )
    return {
        "ids": inputs["input_ids"][0].numpy(),
        "pixels": inputs["pixel_values_videos"].float().numpy(),
        "grid": inputs["video_grid_thw"].numpy(),
        "positions": positions[:, 0].numpy(),
        "logits": logits.float().numpy(),
    }


def run_images(
    processor: Any, model: Any, arrays: Mapping[str, np.ndarray], name: str, case: dict[str, Any]
) -> dict[str, np.ndarray]:
    """Frames of several sizes as images, in time order, each under its time."""
    shown = [
        (time, frame)
        for number, times in enumerate(case["images"])
        for time, frame in zip(times, arrays[f"{name}/{number}"], strict=True)
    ]
    shown.sort(key=lambda each: each[0])
    markers = "".join(f"<{time:.1f} seconds><|vision_start|><|image_pad|><|vision_end|>" for time, _ in shown)
    text = f"<|im_start|>user\n{markers}{case['prompt']}<|im_end|>\n<|im_start|>assistant\n"
    images = [torch.from_numpy(frame).permute(2, 0, 1) for _, frame in shown]
    inputs = processor(text=[text], images=images, do_resize=False, return_tensors="pt")
    model.model.rope_deltas = None
    inputs["pixel_values"] = inputs["pixel_values"].to(next(model.parameters()).dtype)
    with torch.inference_mode():
        logits = model(**inputs, logits_to_keep=1).logits[0, -1]
    positions, _ = model.model.get_rope_index(
        inputs["input_ids"], inputs["mm_token_type_ids"], image_grid_thw=inputs["image_grid_thw"]
    )
    image, video = (processor.tokenizer.convert_tokens_to_ids(f"<|{kind}_pad|>") for kind in ("image", "video"))
    ids = inputs["input_ids"][0].numpy()
    return {
        "ids": np.where(ids == image, video, ids),  # we write frames as video; their place and features are the same
        "pixels": inputs["pixel_values"].float().numpy(),
        "grid": runs(inputs["image_grid_thw"].tolist()),
        "positions": positions[:, 0].numpy(),
        "logits": logits.float().numpy(),
    }


def runs(grids: list[list[int]]) -> np.ndarray:
    """Neighbours of one size as one grid of several groups."""
    found: list[list[int]] = []
    for groups, rows, columns in grids:
        if found and found[-1][1:] == [rows, columns]:
            found[-1][0] += groups
        else:
            found.append([groups, rows, columns])
    return np.array(found)


def main(checkpoint: str, cases_file: str, out_file: str) -> None:
    repair_torchvision()
    from transformers import AutoModelForImageTextToText, AutoProcessor

    processor = AutoProcessor.from_pretrained(checkpoint)
    arrays = np.load(cases_file, allow_pickle=False)
    results: dict[str, Any] = {}
    for dtype in ("float32", "bfloat16"):
        model = AutoModelForImageTextToText.from_pretrained(checkpoint, dtype=getattr(torch, dtype)).eval()
        for name, case in json.loads(str(arrays["cases"])).items():
            run = run_images if "images" in case else run_case
            for key, value in run(processor, model, arrays, name, case).items():
                results[f"{dtype}/{name}/{key}"] = value
    np.savez(out_file, **results)


if __name__ == "__main__":
    main(*sys.argv[1:])
