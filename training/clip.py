"""Train the embedded encoder, an ordinary small CLIP, on captions of gridworld's frames.

    python -m training.clip --minutes 5 --out runs/clip

A caption names one or two things of a frame, or its background. It knows neither questions nor negation, count or
order, as captions do not. Words that say nothing about a frame are mixed in, so that the encoder learns to ignore them.
"""

import argparse
import json
import math
import multiprocessing
import random
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import Tensor

from gridprobe._util import usable_cores
from gridprobe_world.parts import PARTS, generate_part
from gridprobe_world.questions import vocabulary
from gridprobe_world.render import render_frames
from gridprobe_world.world import BACKGROUNDS, COLOURS, PATTERNS, SHAPES, TRAINING_SEEDS, Worlds
from training.batches import joined

SIDE = 96
MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)
VIDEOS, FRAMES = 160, 4
"""Of one batch; each frame has a caption."""
RATE, WARM_UP = 1e-3, 200
TELLING = frozenset((*SHAPES, *COLOURS, *BACKGROUNDS, *PATTERNS, "123456789"))

Ints = npt.NDArray[np.int64]


def build_clip_tokenizer() -> Any:
    """Every word of gridworld is a token, any other word is unknown."""
    words = sorted(vocabulary() | {"a", "an", "and", "on", "with", "there", "pattern", "number"})
    ids = {token: place for place, token in enumerate(("<pad>", "<end>", "<start>", "<unknown>", *words))}
    core = Tokenizer(models.WordLevel(ids, unk_token="<unknown>"))
    core.normalizer = normalizers.Lowercase()
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Punctuation("removed"), pre_tokenizers.WhitespaceSplit()]
    )
    core.post_processor = processors.TemplateProcessing(
        single="<start> $A <end>", special_tokens=[("<start>", ids["<start>"]), ("<end>", ids["<end>"])]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token="<start>",
        eos_token="<end>",
        pad_token="<pad>",
        unk_token="<unknown>",
        model_max_length=32,
    )


def build_clip(tokenizer: Any) -> Any:
    """A genuine CLIPModel of 2.6 million parameters with new weights."""
    text = {"hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 512}
    vision = {"hidden_size": 192, "num_hidden_layers": 5, "num_attention_heads": 4, "intermediate_size": 576}
    config = transformers.CLIPConfig(
        text_config={
            **text,
            "vocab_size": len(tokenizer),
            "max_position_embeddings": tokenizer.model_max_length,
            "bos_token_id": tokenizer.bos_token_id,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
        },
        vision_config={**vision, "image_size": SIDE, "patch_size": 12},
        projection_dim=128,
    )
    return transformers.CLIPModel(config)


@dataclass(frozen=True)
class Captions:
    """What captions claim, as arrays: for two things each shape, colour, digit and pattern, and the background.

    -1 stands for "not said"; a thing of which nothing is said is not there.
    """

    things: Ints
    """Captions × 2 × 4."""
    background: Ints
    texts: tuple[str, ...]


def captions_of(worlds: Worlds, times: npt.NDArray[np.float32], rng: random.Random) -> Captions:
    """A caption for each frame, row by row."""
    shown, ground = worlds.visible(times), worlds.scene(times)
    things = np.full((*times.shape, 2, 4), -1, dtype=np.int64)
    grounds = np.full(times.shape, -1, dtype=np.int64)
    texts = []
    for row, frame in np.ndindex(*times.shape):
        visible = [int(j) for j in np.flatnonzero(shown[row, frame])]
        named = rng.sample(visible, min(len(visible), rng.choice((1, 1, 1, 2))))
        if not named or rng.random() < 0.25:
            grounds[row, frame] = ground[row, frame]
        words = []
        for place, j in enumerate(named):
            facts = (
                worlds.shape[row, j],
                worlds.colour[row, j],
                worlds.digit[row, j] or -1,
                worlds.pattern[row, j] - 1,
            )
            mention = _mention(rng, facts)
            things[row, frame, place] = mention
            words.append(_words(mention))
        texts.append(_sentence(rng, words, int(grounds[row, frame])))
    return Captions(things.reshape(-1, 2, 4), grounds.reshape(-1), tuple(texts))


def _mention(rng: random.Random, facts: tuple[int, ...]) -> list[int]:
    """Some of the facts about a thing: mostly its shape."""
    chances = (0.9, 0.5, 0.4, 0.4)
    mention = [int(fact) if rng.random() < chance else -1 for fact, chance in zip(facts, chances, strict=True)]
    return mention if max(mention) >= 0 else [int(facts[0]), -1, -1, -1]


def _words(mention: list[int]) -> list[str]:
    shape, colour, digit, pattern = mention
    words = ["a"]
    words += [list(COLOURS)[colour]] if colour >= 0 else []
    words += [SHAPES[shape]] if shape >= 0 else ["shape"]
    words += ["with", "a", PATTERNS[pattern], "pattern"] if pattern >= 0 else []
    return words + (["with", "the", "number", str(digit)] if digit > 0 else [])


def _sentence(rng: random.Random, things: list[list[str]], background: int) -> str:
    words = things[0] if things else []
    for more in things[1:]:
        words = [*words, "and", *more]
    if background >= 0:
        words = [*words, "on", list(BACKGROUNDS)[background]]
    if rng.random() < 0.6:  # words that say nothing about the frame, anywhere
        for _ in range(rng.randint(1, 8)):
            words.insert(rng.randint(0, len(words)), rng.choice(IDLE))
    return " ".join(words)


IDLE = tuple(sorted(vocabulary() - TELLING - set("123456789")))


def truth(captions: Captions, worlds: Worlds, times: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
    """Which captions are true of which frames: captions × frames."""
    shown = worlds.visible(times).reshape(-1, worlds.shape.shape[1])
    facts = np.stack([worlds.shape, worlds.colour, worlds.digit, worlds.pattern - 1], axis=-1)
    facts = np.repeat(facts, times.shape[1], axis=0)
    true = np.ones((len(captions.texts), len(shown)), dtype=bool)
    for place in range(2):
        mention = captions.things[:, place][:, None, None]
        fits = ((mention < 0) | (mention == facts[None])).all(-1) & shown[None]
        unsaid: npt.NDArray[np.bool_] = np.all(captions.things[:, place] < 0, axis=-1)
        true &= fits.any(-1) | unsaid[:, None]
    ground = worlds.scene(times).reshape(-1)
    true &= (captions.background[:, None] < 0) | (captions.background[:, None] == ground[None])
    return true


def moments(worlds: Worlds, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """Times of frames; most of them while some object is on screen."""
    count = len(worlds)
    times = rng.random((count, FRAMES)).astype(np.float32)
    for row in range(count):
        happened = np.argwhere(worlds.start[row] < 1.0)
        for frame in range(FRAMES):
            if rng.random() < 0.8:
                j, event = happened[rng.integers(len(happened))]
                first, last = worlds.start[row, j, event], worlds.end[row, j, event]
                times[row, frame] = first + rng.random() * (last - first)
    return times.clip(0, 0.999)


def make_batch(seed: int) -> tuple[Worlds, npt.NDArray[np.float32], Captions, npt.NDArray[np.bool_]]:
    """Scripts, times of frames, a caption for each frame, and which captions are true of which frames."""
    rng = np.random.default_rng([TRAINING_SEEDS.start, seed])
    worlds = joined([generate_part(rng, VIDEOS // len(PARTS), part, easy=0.7) for part in PARTS])
    times = moments(worlds, rng)
    captions = captions_of(worlds, times, random.Random(seed))
    return worlds, times, captions, truth(captions, worlds, times)


def batches(
    first: int, workers: int
) -> Iterator[tuple[Worlds, npt.NDArray[np.float32], Captions, npt.NDArray[np.bool_]]]:
    """Batches made by other processes, some ahead."""
    seeds = count(first)
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        waiting = deque(pool.submit(make_batch, seed) for seed in islice(seeds, 3 * workers))
        try:
            while True:
                yield waiting.popleft().result()
                waiting.append(pool.submit(make_batch, next(seeds)))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def loss_of(scores: Tensor, true: Tensor) -> Tensor:
    """Cross entropy in both directions; a caption may be true of several frames, and a frame have several captions."""
    total = scores.new_zeros(())
    for logits, right in ((scores, true), (scores.T, true.T)):
        share = right / right.sum(-1, keepdim=True).clamp(min=1)
        total = total - (share * logits.log_softmax(-1)).sum(-1).mean()
    return total / 2


def train(minutes: float, out: Path, *, device: str, workers: int) -> dict[str, Any]:
    """Train for this many minutes and write an ordinary Hugging Face folder."""
    torch.manual_seed(0)
    tokenizer = build_clip_tokenizer()
    model = build_clip(tokenizer).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.98), weight_decay=0.05)
    mean, std = (torch.tensor(values, device=device)[:, None, None] for values in (MEAN, STD))
    began, losses = time.perf_counter(), [0.0]
    for step, (worlds, times, captions, right) in enumerate(batches(0, workers)):
        spent = (time.perf_counter() - began) / 60 / minutes
        if spent >= 1:
            break
        true = torch.from_numpy(right).to(device)
        pixels = (render_frames(worlds, times, SIDE, device).flatten(0, 1) - mean) / std
        tokens = tokenizer(list(captions.texts), padding=True, truncation=True, return_tensors="pt").to(device)
        rate = min(1.0, (step + 1) / WARM_UP) * 0.5 * (1 + math.cos(math.pi * min(1.0, spent)))
        for group in optimizer.param_groups:
            group["lr"] = RATE * rate
        with torch.autocast(device.partition(":")[0], torch.bfloat16, enabled=device != "cpu"):
            output = model(pixel_values=pixels, **tokens)
        loss = loss_of(output.logits_per_text.float(), true)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        model.logit_scale.data.clamp_(max=math.log(100))
        losses.append(loss.item())
        if step % 200 == 199:
            print(f"{step} steps, {spent:.0%}, loss {np.mean(losses[-200:]):.3f}", flush=True)
    save(model, tokenizer, out)
    return {
        "steps": step,
        "loss": float(np.mean(losses[-200:])),
        "minutes": minutes,
        "parameters": model.num_parameters(),
    }


def save(model: Any, tokenizer: Any, out: Path) -> None:
    """Weights in half precision, tokenizer and the processor's configuration."""
    model.eval().half().save_pretrained(out)
    tokenizer.save_pretrained(out)
    size = {"shortest_edge": SIDE}
    crop = {"height": SIDE, "width": SIDE}
    content = {
        "image_processor_type": "CLIPImageProcessor",
        "size": size,
        "crop_size": crop,
        "image_mean": MEAN,
        "image_std": STD,
        "resample": 3,
        "rescale_factor": 1 / 255,
        "do_resize": True,
        "do_center_crop": True,
        "do_rescale": True,
        "do_normalize": True,
        "do_convert_rgb": True,
    }
    (out / "preprocessor_config.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workers", type=int, default=max(1, usable_cores() - 2))
    options = parser.parse_args()
    print(json.dumps(train(options.minutes, options.out, device=options.device, workers=options.workers)))


if __name__ == "__main__":
    main()
