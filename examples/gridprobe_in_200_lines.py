"""The default method of gridprobe on plain transformers, in one file that needs nothing of gridprobe but its paper.

    python examples/gridprobe_in_200_lines.py CHECKPOINT VIDEO QUESTION OPTION OPTION [OPTION ...]

CHECKPOINT is a Qwen3-VL folder or Hugging Face id. gridprobe gives the same answer (tests/test_examples.py) faster,
with --profile off: a profile chooses among attention heads and shows the large frames behind the small ones.
"""

import math
import string
import sys
from typing import Any, NamedTuple

import av
import numpy as np
import torch
import transformers

K, SMALL, FULL_PIXELS, SURE = 12, 224, 786_432, 0.99
"""K² frames; the longer side of a small one; the most pixels of a large one; how sure the overview must be."""
EXACT, SCALED = 0x46002, 0x46004
"""How FFmpeg converts the colours of a frame: accurately, and bicubic if it is scaled."""


class Frame(NamedTuple):
    """A sampled frame at the size it is shown at."""

    time: float
    pixels: np.ndarray


class Result(NamedTuple):
    """What the method found."""

    choice: str
    probabilities: dict[str, float]
    kept: list[int]
    """Which of the K² frames were shown large; none if the overview was sure."""


def sample(path: str, count: int) -> list[tuple[float, av.VideoFrame]]:
    """Frames in the middles of equal parts of a video, with the times at which they are really shown."""
    with av.open(path) as container:
        stream = container.streams.video[0]
        frames = [(float(frame.time), frame) for frame in container.decode(stream)]
    times, start = [time for time, _ in frames], frames[0][0]
    end = times[-1] + (times[-1] - start) / max(1, len(times) - 1)
    moments = [start + (end - start) * (i + 0.5) / count for i in range(count)]
    return [frames[max(0, int(np.searchsorted(times, moment, side="right")) - 1)] for moment in moments]


def shown(time: float, frame: av.VideoFrame, *, large: bool, multiple: int) -> Frame:
    """A frame whose sides are multiples of what the model needs."""
    scale = 1.0 if large else min(1.0, SMALL / max(frame.width, frame.height))
    sides = [max(multiple, round(side * scale / multiple) * multiple) for side in (frame.width, frame.height)]
    if large and sides[0] * sides[1] > FULL_PIXELS:
        excess = math.sqrt(frame.width * frame.height / FULL_PIXELS)
        sides = [math.floor(side / excess / multiple) * multiple for side in (frame.width, frame.height)]
    how = EXACT if sides == [frame.width, frame.height] else SCALED
    return Frame(time, frame.reformat(sides[0], sides[1], "rgb24", interpolation=how).to_ndarray())


def prompt(question: str, options: list[str]) -> str:
    """The text that follows the frames."""
    listed = "\n".join(f"{label}. {text}" for label, text in zip(string.ascii_uppercase, options, strict=False))
    instruction = "Answer with the option's letter from the given choices directly."
    return f"Question: {question}\n{listed}\n{instruction}<|im_end|>\n<|im_start|>assistant\n"


def patches(pixels: np.ndarray, vision: Any) -> torch.Tensor:
    """Flat patches of one frame, twice, since the tower fuses frames in pairs; those of a merged block are adjacent."""
    patch, merge, twice = vision.patch_size, vision.spatial_merge_size, vision.temporal_patch_size
    image = torch.from_numpy(pixels).permute(2, 0, 1).float().sub(127.5).div(127.5)
    rows, columns = (side // (patch * merge) for side in pixels.shape[:2])
    blocks = image[None].repeat(twice, 1, 1, 1).view(twice, 3, rows, merge, patch, columns, merge, patch)
    return blocks.permute(2, 5, 3, 6, 1, 0, 4, 7).reshape(-1, 3 * twice * patch**2)


class Reader:
    """A Qwen3-VL model and its tokenizer."""

    def __init__(self, checkpoint: str, dtype: torch.dtype = torch.float32) -> None:
        load = transformers.Qwen3VLForConditionalGeneration.from_pretrained
        self.model = load(checkpoint, dtype=dtype, trust_remote_code=False).eval()
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint, trust_remote_code=False)
        self.vision = self.model.config.vision_config
        self.multiple = self.vision.patch_size * self.vision.spatial_merge_size

    def read(self, frames: list[Frame], text: str, labels: list[str]) -> tuple[dict[str, float], np.ndarray]:
        """The probabilities of the letters, and how much the text after the frames looks at each of them."""
        model, pad, opening = self.model, "<|video_pad|>", "<|im_start|>user\n"
        grid = torch.tensor([[1, *(side // self.vision.patch_size for side in f.pixels.shape[:2])] for f in frames])
        counts = grid.prod(1) // self.vision.spatial_merge_size**2
        marked = [
            f"<{frame.time:.1f} seconds><|vision_start|>{pad * int(count)}<|vision_end|>"
            for frame, count in zip(frames, counts, strict=True)
        ]
        prefix, rest = (self.ids(part) for part in (opening + "".join(marked), text))
        ids = torch.cat([prefix, rest], dim=1)
        video = ids == model.config.video_token_id
        positions, _ = model.model.get_rope_index(ids, mm_token_type_ids=2 * video.int(), video_grid_thw=grid)
        length = prefix.shape[1]
        with torch.inference_mode():
            model.set_attn_implementation("sdpa")
            cache = model.model(
                input_ids=prefix,
                position_ids=positions[:, :, :length],
                pixel_values_videos=torch.cat([patches(f.pixels, self.vision) for f in frames]).to(model.dtype),
                video_grid_thw=grid,
                mm_token_type_ids=2 * video[:, :length].int(),
                use_cache=True,
            ).past_key_values
            model.set_attn_implementation("eager")  # the only one that shows where the text looks
            output = model(
                input_ids=rest,
                position_ids=positions[:, :, length:],
                past_key_values=cache,
                mm_token_type_ids=torch.zeros_like(rest),
                output_attentions=True,
                logits_to_keep=1,
            )
        ends = (prefix[0] == self.tokenizer.convert_tokens_to_ids("<|vision_end|>")).nonzero()[:, 0]
        owners = torch.searchsorted(ends, torch.arange(length))  # a frame owns its time, its start and its patches
        owners[: self.ids(opening).shape[1]] = len(frames)  # the opening belongs to none
        looks = []
        for weights in output.attentions[:-1]:  # heads × tokens of the text × all tokens before
            shares = torch.zeros(*weights.shape[1:3], len(frames) + 1)
            shares.index_add_(2, owners, weights[0, :, :, :length].float())
            looks.append(shares[:, :, :-1].amax(1).mean(0))
        return self.letters(output.logits[0, -1], labels), torch.stack(looks).mean(0).numpy().astype(np.float64)

    def ids(self, text: str) -> torch.Tensor:
        """A text, in which special tokens count, as one row of ids."""
        return torch.tensor([self.tokenizer.encode(text, add_special_tokens=False)])

    def letters(self, logits: torch.Tensor, labels: list[str]) -> dict[str, float]:
        """The probabilities of the labels, each in any of the ways to write it as one token."""
        logs = logits.double().log_softmax(-1)
        raw = []
        for label in labels:
            written = [self.ids(form)[0].tolist() for form in (label, f" {label}", f"({label}")]
            raw.append(logs[sorted({ids[0] for ids in written if len(ids) == 1})].logsumexp(0))
        return dict(zip(labels, torch.stack(raw).softmax(0).tolist(), strict=True))


CELLS = [4, 9, 16, 36, 64, 144, 256, 576, 1024, 4096]
LARGEST_OF_NOISE = [10.8, 7.1, 4.95, 4.3, 4.2, 4.3, 4.4, 4.55, 4.75, 5.0]
"""What the largest of this many noise scores exceeds in one map of 100, in robust standard deviations."""


def spread(count: int, wanted: int) -> list[int]:
    """Evenly spaced places."""
    return [(2 * i + 1) * count // (2 * wanted) for i in range(wanted)]


def top(scores: np.ndarray, kept: int) -> list[int]:
    """The highest scores; equal ones evenly over time."""
    threshold = np.sort(scores)[-kept]
    margin = 1e-6 * abs(threshold)
    above = np.flatnonzero(scores > threshold + margin).tolist()
    level = np.flatnonzero(abs(scores - threshold) <= margin).tolist()
    return sorted(above + [level[i] for i in spread(len(level), kept - len(above))])


def keep(scores: np.ndarray) -> list[int]:
    """The frames that stand out from noise, at least K/3 and at most K of them."""
    side = math.isqrt(len(scores) - 1) + 1
    least, most = math.ceil(side / 3), min(len(scores), side)
    above = scores - np.median(scores)
    noise = np.interp(math.log(len(scores)), np.log(CELLS), LARGEST_OF_NOISE)
    floor = max(1.4826 * np.median(abs(above)) * noise, 1e-6 * abs(scores).max())
    hot, cold = above > floor, above < -floor
    if not hot.any() and cold.sum() >= side:  # the evidence is in most of the video
        hot = ~cold
    places = np.flatnonzero(hot).tolist()
    kept = min(most, max(least, len(places)))
    if len(places) <= kept:
        return top(scores, kept)
    best = top(scores, max(1, kept // 2))  # the evidence is redundant: the best, and an even sample of the rest
    others = [place for place in places if place not in best]
    return sorted([*best, *(others[i] for i in spread(len(others), kept - len(best)))])


def ask(reader: Reader, path: str, question: str, options: list[str], *, k: int = K) -> Result:
    """The method: look over all frames small; if that is not sure, show those that the question looks at large."""
    labels, text = list(string.ascii_uppercase[: len(options)]), prompt(question, options)
    frames = sample(path, k * k)
    small = [shown(*frame, large=False, multiple=reader.multiple) for frame in frames]
    probabilities, looks = reader.read(small, text, labels)  # the overview: all frames, small
    kept: list[int] = []
    if max(probabilities.values()) < SURE:  # else the early exit
        kept = keep(looks)
        large = {i: shown(*frames[i], large=True, multiple=reader.multiple) for i in kept}
        mixed = [large.get(i, frame) for i, frame in enumerate(small)]
        probabilities, _ = reader.read(mixed, text, labels)  # the focused pass: the kept frames large among all others
    return Result(max(probabilities, key=lambda label: probabilities[label]), probabilities, kept)


if __name__ == "__main__":
    checkpoint, video, question, *options = sys.argv[1:]
    print(ask(Reader(checkpoint), video, question, options))
