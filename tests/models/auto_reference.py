"""What transformers' own processors and models make of the same frames: the yardstick for the generic backend.

Run as a program, in a process of its own: `python auto_reference.py JOBS.json FRAMES.npy OUT.npz`. A job is a family,
its folder, the kind of turn, and the options that turn tiling off. It needs torchvision, for the video part of
processors that is not used here; pixels are prepared by the image processors on top of PIL, as in the test's process.
"""

import json
import sys
from typing import Any

import numpy as np
import torch
from PIL import Image


def turn(processor: Any, job: dict[str, Any]) -> str:
    """The turn as the checkpoint's template writes it, unless that would put all times after all pictures."""
    times, prompt = job["times"], job["prompt"]
    if job["pictures_first"] and times:
        shown = "".join(f"Time: {time:.1f}s<image>" for time in times)
        return f"<|im_start|>user {shown}\n{prompt}<|im_end|><|im_start|>assistant\n"
    content: list[dict[str, str]] = []
    for number in range(job["frames"]):
        content += [{"type": "text", "text": f"Time: {times[number]:.1f}s"}] if times else []
        content.append({"type": "image"})
    content.append({"type": "text", "text": prompt})
    message = [{"role": "user", "content": content}]
    return str(processor.tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True))


def run(job: dict[str, Any], frames: np.ndarray) -> dict[str, np.ndarray]:
    from transformers import AutoImageProcessor, AutoModelForImageTextToText, AutoProcessor

    processor = AutoProcessor.from_pretrained(job["folder"])
    processor.image_processor = AutoImageProcessor.from_pretrained(job["folder"], backend="pil")
    model = AutoModelForImageTextToText.from_pretrained(job["folder"], dtype=torch.float32).eval()
    if job["family"] == "llava_next_video":
        size = model.config.vision_config.image_size
        processor.image_processor.image_grid_pinpoints = model.config.image_grid_pinpoints = [[size, size]]
    images = [Image.fromarray(frame) for frame in frames[: job["frames"]]]
    inputs = processor(text=[turn(processor, job)], images=[images], return_tensors="pt", **job["options"])
    with torch.inference_mode():
        logits = model(**inputs, logits_to_keep=1).logits[0, -1]
    return {"ids": inputs["input_ids"][0].numpy(), "logits": logits.numpy()}


def main(jobs_file: str, frames_file: str, out_file: str) -> None:
    from reference import repair_torchvision  # type: ignore[import-not-found]  # beside this file

    repair_torchvision()
    with open(jobs_file, encoding="utf-8") as stream:
        jobs = json.load(stream)
    frames = np.load(frames_file, allow_pickle=False)
    found: dict[str, Any] = {
        f"{name}/{key}": value for name, job in jobs.items() for key, value in run(job, frames).items()
    }
    np.savez(out_file, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
