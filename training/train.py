"""Train an embedded model on gridworld.

    python -m training.train --size micro --budget 18 --minutes 9 --out runs/micro
    python -m training.train --size micro --budget 18 --minutes 9 --out runs/micro     # resumes

The learning rate follows the budget (total minutes), so a training may be split into pieces of any length. A piece
writes `state.safetensors` (weights and optimizer), `log.jsonl` (the curve) and `model/`, an ordinary Hugging
Face folder. A trained model learns something new without forgetting the rest at a low rate, without the auxiliary
tests:

    python -m training.train --start weights/micro --budget 2 --rate 0.25 --warm-up 60 --answers-only …
"""

import argparse
import json
import math
import multiprocessing
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor

from gridprobe._util import usable_cores
from gridprobe.models.qwen3vl.blocks import PatchSpec, compiled, cut, rms, text_block, text_weights, vision_block
from gridprobe.models.qwen3vl.vision import VisionTower
from gridprobe_world.render import render_frames
from gridprobe_world.world import SHAPES
from training.batches import EYE, IGNORED, MEMORY, PART_WEIGHTS, SHORT, Batch, BatchMaker, Skills
from training.checkpoint import Sequences, build_model, build_tokenizer, save_checkpoint

# A training step's forward pass: the engine's own blocks, on batches with many questions about the same frames.

SPEC = PatchSpec(patch=16, merge=2, temporal=2, mean=(0.5,) * 3, std=(0.5,) * 3)


def on_device(sequences: Sequences, device: Any) -> Sequences:
    """The sequences as tensors on a device."""
    arrays = (getattr(sequences, each.name) for each in fields(sequences))
    return Sequences(*(torch.from_numpy(array).to(device, non_blocking=True) for array in arrays))


class FastModel:
    """A Qwen3-VL model with frames of one size or of several, for training."""

    def __init__(self, model: Any, *, compile: bool = False) -> None:
        self.model = model
        self._vision = VisionTower(model.model.visual, block=compiled(vision_block) if compile else vision_block)
        self._text_block = compiled(text_block) if compile else text_block

    def features(self, frames: Tensor) -> Tensor:
        """Frame groups, G × 2 × 3 × S × S in 0…1 -> levels × G × tokens × hidden."""
        side = frames.shape[-1] // SPEC.patch
        patches = cut(((frames - 0.5) / 0.5).flatten(0, 1), SPEC)
        return self._vision(patches.view(len(frames), side * side, -1), side, side)

    def hidden(self, sequences: Sequences, features: list[Tensor], *, tap: int = 0) -> tuple[Tensor, Tensor]:
        """Hidden states of all positions, and those of the visual tokens after the first `tap` layers.

        Args:
            sequences: what to run, on the device.
            features: those of the frame groups of each size, smaller ones first.
            tap: a number of layers, or 0 for the features themselves.
        """
        language = self.model.model.language_model
        count, width, eps = len(sequences.ids), features[0].shape[-1], language.config.rms_norm_eps
        levels = torch.cat([each.reshape(len(each), count, -1, width) for each in features], dim=2)
        place = sequences.visual.long()[..., None].expand(-1, -1, width)
        h = language.embed_tokens(sequences.ids).to(levels.dtype).scatter(1, place, levels[0])
        cos, sin = language.rotary_emb(h, sequences.positions)
        mask, tapped = _mask(sequences, h.dtype), levels[0]
        for number, layer in enumerate(language.layers):
            h, _, _ = self._text_block(h, cos, sin, mask, None, eps, *text_weights(layer))
            if number + 1 < len(levels):
                h = h.scatter_add(1, place, levels[number + 1].to(h.dtype))
            if number + 1 == tap:
                tapped = h.gather(1, place)
        return rms(h, language.norm.weight, eps), tapped


def _mask(sequences: Sequences, dtype: torch.dtype) -> Tensor:
    """What the tails may attend to: their own prefix and the earlier tokens of the same tail.

    Added to the scores: B × 1 × tails × (prefix + tails).
    """
    tail, length = sequences.tail, sequences.length
    width = sequences.ids.shape[1] - tail.shape[1]
    prefix = torch.arange(width, device=tail.device) < length[:, None]
    own = (tail[:, :, None] == tail[:, None, :]).tril()
    seen = torch.cat([prefix[:, None].expand(-1, tail.shape[1], -1), own], dim=-1)
    return torch.zeros(seen.shape, dtype=dtype, device=tail.device).masked_fill(~seen, float("-inf"))[:, None]


PEAK_RATE = {"micro": 1.2e-3, "nano": 1.5e-3}
WARM_UP_STEPS = 300
TAP = {"micro": 4, "nano": 2}
"""The memory test reads the states after this many layers of the language model."""
MEMORY_WEIGHT = 0.5
EXPERIENCED = (0.96, 0.96)
"""The assumed skills of a trained model until they are measured."""
CHECK_EVERY = 5


class Trainer:
    """Model, optimizer and clock of one training."""

    def __init__(
        self,
        size: str,
        *,
        budget: float,
        device: str,
        compiled: bool,
        rate: float = 1.0,
        warm_up: int = WARM_UP_STEPS,
        answers_only: bool = False,
    ) -> None:
        """Build a new model.

        Args:
            size: micro or nano.
            budget: minutes of the whole training.
            device: where to train.
            compiled: whether to compile the blocks.
            rate: the learning rate as a share of the peak rate of a new model.
            warm_up: steps until it is reached.
            answers_only: leave out the auxiliary tests, which would begin with random weights again.
        """
        self.tokenizer = build_tokenizer()
        self.model = build_model(size, self.tokenizer).to(device)
        self.fast = FastModel(self.model, compile=compiled)
        # Two auxiliary tests. Eye: from the vision features alone, which shape has which colour, digit and pattern?
        # Memory: half way through the language model, how often was this shape here, how many came before it, and
        # which digit does it carry?
        hidden = self.model.config.text_config.hidden_size
        self.eye = torch.nn.Linear(hidden, len(SHAPES) * sum(EYE)).to(device)
        self.memory = torch.nn.Linear(hidden, len(SHAPES) * sum(MEMORY)).to(device)
        self.tap = TAP[size]
        self.parameters = [*self.model.parameters(), *self.eye.parameters(), *self.memory.parameters()]
        self.optimizers = _optimizers(self.model, [self.eye, self.memory], fused=device.startswith("cuda"))
        self.rate, self.budget, self.device = rate * PEAK_RATE[size], 60.0 * budget, device
        self.warm_up, self.answers_only = warm_up, answers_only
        self.step, self.elapsed, self.skills = 0, 0.0, [0.0, 0.0, 0.0]

    @property
    def progress(self) -> float:
        """From 0 to 1 over the whole training."""
        return min(1.0, self.elapsed / self.budget)

    def train_on(self, batch: Batch) -> dict[str, Any]:
        """One optimizer step."""
        rate = self.rate * min(1.0, (self.step + 1) / self.warm_up)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate * _decay(self.progress)
        with torch.autocast(self.device.split(":")[0], torch.bfloat16):
            losses, right = self._losses(batch)
        for parameter in self.parameters:
            parameter.grad = None
        torch.autograd.backward(losses.sum())
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
        self.step += 1
        return {"losses": losses.detach(), "right": right}

    def _losses(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Of the answers, the eye test and the memory test; and which tails begin with the right token."""
        features = []
        for shown in batch.shown:
            time = np.take_along_axis(batch.time, shown.index, axis=1)
            frames = degrade(render_frames(batch.worlds, time, shown.side, self.device))
            features.append(self.fast.features(_grouped(frames, batch.packing)))
        hidden, states = self.fast.hidden(on_device(batch.sequences, self.device), features, tap=self.tap)
        row, column, token = self._tensor(batch.wanted)
        logits = self.model.lm_head(hidden[row, column]).float()
        loss = F.cross_entropy(logits, token)
        right = (logits.argmax(-1) == token)[self._tensor(batch.first)].detach()
        if batch.packing == "pairs" or self.answers_only:
            return torch.stack([loss, loss.new_zeros(()), loss.new_zeros(())]), right
        order = self._tensor(np.concatenate([shown.index for shown in batch.shown], axis=1))
        place = order[None, :, :, None].expand(3, -1, -1, len(SHAPES))
        seen, recalled = (self._tensor(answers).gather(2, place) for answers in (batch.seen, batch.recalled))
        looks, states = _by_frame(features, F.rms_norm(states, states.shape[-1:]))
        eye = _test(self.eye(looks), seen, EYE)
        memory = _test(self.memory(states), recalled, MEMORY)
        return torch.stack([loss, eye, MEMORY_WEIGHT * memory]), right

    def learned(self, batch: Batch, right: npt.NDArray[Any]) -> None:
        """Update the measured skills with this batch, as a moving average."""
        family = np.array(batch.family)
        few = batch.time.shape[1] <= max(SHORT)
        self.skills[0] = self.progress
        for place, tails in ((1, family == "drill"), (2, (family == "redundant") & few)):
            if tails.any():
                self.skills[place] += 0.1 * (float(right[tails].mean()) - self.skills[place])

    def _tensor(self, array: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self.device, non_blocking=True)

    def save(self, folder: Path) -> None:
        """Save everything needed to resume, and the model as users load it."""
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {}
        for number, parameter in enumerate(self.parameters):
            tensors[f"{number}.value"] = parameter.detach()
            for name, value in self._optimizer_of(parameter).state.get(parameter, {}).items():
                tensors[f"{number}.{name}"] = value.detach().reshape(parameter.shape if value.ndim else (1,))
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "state.safetensors")
        state = {"step": self.step, "elapsed": self.elapsed, "skills": self.skills}
        (folder / "state.json").write_text(json.dumps(state))
        self.save_model(folder)

    def save_model(self, folder: Path) -> None:
        """Save the model as users load it."""
        save_checkpoint(build_model_like(self.model), self.tokenizer, folder / "model")

    def resume(self, folder: Path) -> None:
        """Resume from a saved state."""
        tensors = load_file(folder / "state.safetensors", device=self.device)
        state = json.loads((folder / "state.json").read_text())
        self.step, self.elapsed, self.skills = state["step"], state["elapsed"], state["skills"]
        for number, parameter in enumerate(self.parameters):
            parameter.data.copy_(tensors[f"{number}.value"])
            moments = {
                name.split(".")[1]: tensor
                for name, tensor in tensors.items()
                if name.startswith(f"{number}.") and not name.endswith(".value")
            }
            moments = {name: t.squeeze() if name == "step" else t for name, t in moments.items()}
            if moments:
                self._optimizer_of(parameter).state[parameter] = moments

    def _optimizer_of(self, parameter: Tensor) -> torch.optim.Optimizer:
        muon, adam = self.optimizers
        return muon if any(parameter is other for other in muon.param_groups[0]["params"]) else adam


def _optimizers(
    model: Any, heads: list[torch.nn.Module], *, fused: bool
) -> tuple[torch.optim.Optimizer, torch.optim.Optimizer]:
    """Muon for the weight matrices of the blocks, AdamW for everything else; both for AdamW's learning rate."""
    blocks = [*model.model.visual.blocks, *model.model.language_model.layers]
    matrices = [weight for block in blocks for weight in block.parameters() if weight.ndim == 2]
    matrix_ids = {id(weight) for weight in matrices}
    everything = [*model.parameters(), *(weight for head in heads for weight in head.parameters())]
    others = [weight for weight in everything if id(weight) not in matrix_ids]
    muon = torch.optim.Muon(matrices, weight_decay=0.02, adjust_lr_fn="match_rms_adamw")
    return muon, torch.optim.AdamW(others, betas=(0.9, 0.98), weight_decay=0.02, fused=fused)


def _by_frame(features: list[Tensor], states: Tensor) -> tuple[Tensor, Tensor]:
    """The strongest of each frame's features and of its tokens' states: both B × n × hidden, smaller frames first."""
    count, width = len(states), states.shape[-1]
    looks = [each[0].view(count, -1, each.shape[2], width) for each in features]
    parts = torch.split(states, [each.shape[1] * each.shape[2] for each in looks], dim=1)
    strongest = [part.view(each.shape).amax(2) for part, each in zip(parts, looks, strict=True)]
    return torch.cat([each.amax(2) for each in looks], dim=1), torch.cat(strongest, dim=1)


def _test(scores: Tensor, answers: Tensor, classes: tuple[int, ...]) -> Tensor:
    """Cross-entropy of an auxiliary test with several questions about every shape, without IGNORED ones."""
    parts = torch.split(scores.float().view(-1, sum(classes)), list(classes), dim=-1)
    wrong = [
        F.cross_entropy(part, answer, ignore_index=IGNORED, reduction="sum") / (answer != IGNORED).sum().clamp(min=1)
        for part, answer in zip(parts, answers.flatten(1), strict=True)
    ]
    return torch.stack(wrong).sum()


def _decay(progress: float) -> float:
    """Full rate for the first half, then a cosine down to one per cent."""
    return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * max(0.0, 2 * progress - 1)))


def build_model_like(model: Any) -> Any:
    """A copy on the CPU, so that saving in bfloat16 does not change the weights in training."""
    copy = type(model)(model.config)
    copy.load_state_dict({name: tensor.cpu() for name, tensor in model.state_dict().items()})
    return copy


def _grouped(frames: Tensor, packing: str) -> Tensor:
    """B × n frames -> groups × 2: each frame with itself, or with its neighbour."""
    count, length = frames.shape[:2]
    if packing == "single":
        return frames.flatten(0, 1)[:, None].expand(-1, 2, -1, -1, -1)
    if length % 2:
        frames = torch.cat([frames, frames[:, -1:]], dim=1)
    return frames.reshape(count * ((length + 1) // 2), 2, *frames.shape[2:])


def degrade(frames: Tensor) -> Tensor:
    """Imitate encoding, scaling and decoding: lost colour detail, softness, blocks and noise."""
    flat = frames.flatten(0, 1)
    side = flat.shape[-1]
    chance = torch.rand(4)
    if chance[0] < 0.6:
        gray = flat.mean(1, keepdim=True)
        flat = gray + F.interpolate(F.avg_pool2d(flat - gray, 2), scale_factor=2, mode="bilinear")
    if chance[1] < 0.3:
        flat = torch.lerp(flat, F.avg_pool2d(flat, 3, stride=1, padding=1, count_include_pad=False), float(chance[2]))
    noise = torch.randn(len(flat), 3, side // 8, side // 8, device=flat.device) * 0.015
    flat = flat + F.interpolate(noise, scale_factor=8) + 0.025 * float(chance[3]) * torch.randn_like(flat)
    light = 1 + 0.06 * torch.randn(len(flat), 1, 1, 1, device=flat.device)
    return (flat * light).clamp(0, 1).view(frames.shape)


def _work(queue: Any, skills: Any, size: str, seed: int, tokens: int) -> None:
    """A worker: endless batches for the current state of the training."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.set_num_threads(1)
    maker = BatchMaker(build_tokenizer(), seed=seed, tokens=tokens, parts=PART_WEIGHTS[size])
    while True:
        queue.put(maker.make(Skills(*skills)))


@contextmanager
def _workers(count: int, *, size: str, seed: int, tokens: int) -> Iterator[tuple[Any, Any]]:
    context = multiprocessing.get_context("fork")
    queue, skills = context.Queue(maxsize=2 * count), context.Array("d", 3)
    processes = [
        context.Process(target=_work, args=(queue, skills, size, seed + number, tokens), daemon=True)
        for number in range(count)
    ]
    for process in processes:
        process.start()
    try:
        yield queue, skills
    finally:
        for process in processes:
            process.kill()


class Log:
    """Means over the last steps, one JSON line each time. Nothing is read from the device in between."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.losses: list[Tensor] = []
        self.right: list[Tensor] = []
        self.names: list[str] = []

    def add(self, batch: Batch, result: dict[str, Tensor]) -> None:
        """Remember a step."""
        self.losses.append(result["losses"])
        self.right.append(result["right"])
        self.names += [f"{family}/{batch.bucket}" for family in batch.family]

    def write(self, trainer: Trainer) -> None:
        """One line, on the screen and in the file."""
        loss, eye, memory = torch.stack(self.losses).mean(0).tolist()
        right, names = torch.cat(self.right).cpu().numpy(), np.array(self.names)
        line = {
            "step": trainer.step,
            "minutes": round(trainer.elapsed / 60, 2),
            "loss": round(loss, 4),
            "eye": round(eye, 4),
            "memory": round(memory / MEMORY_WEIGHT, 4),
        }
        line |= {name: round(float(right[names == name].mean()), 3) for name in sorted(set(self.names))}
        self.losses, self.right, self.names = [], [], []
        with self.path.open("a") as stream:
            stream.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)


def run(
    trainer: Trainer, *, minutes: float, log: Log, every: int, feed: tuple[Any, Any], save_every: float = math.inf
) -> None:
    """Train for some minutes of the budget, and save the model next to the log every so many seconds."""
    start, before = time.monotonic(), trainer.elapsed
    saved = start
    queue, skills = feed
    skills[:] = trainer.skills
    while trainer.elapsed - before < 60 * minutes and trainer.progress < 1:
        batch = queue.get()
        result = trainer.train_on(batch)
        log.add(batch, result)
        if trainer.step % CHECK_EVERY == 0:  # reading a result waits for the device, so not every time
            trainer.learned(batch, result["right"].cpu().numpy())
            skills[:] = trainer.skills
        trainer.elapsed = before + time.monotonic() - start
        if trainer.step % every == 0:
            log.write(trainer)
        if time.monotonic() - saved > save_every:
            trainer.save_model(log.path.parent)
            saved = time.monotonic()


def main(arguments: list[str] | None = None) -> None:
    """Parse, build, resume, train, save."""
    parser = argparse.ArgumentParser(description="Train an embedded model on gridworld.")
    parser.add_argument("--size", choices=tuple(PEAK_RATE), default="micro")
    parser.add_argument("--budget", type=float, required=True, help="minutes of the whole training")
    parser.add_argument("--minutes", type=float, help="minutes of this piece; the whole budget by default")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--start", type=Path, help="begin with the weights of this model folder")
    parser.add_argument("--spent", type=float, default=0.0, help="with --start: minutes of the budget already spent")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=120_000, help="tokens per step")
    parser.add_argument("--workers", type=int, default=max(1, usable_cores() - 1))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--log-every", type=int, default=200, help="steps between two lines of the log")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--rate", type=float, default=1.0, help="learning rate, as a share of a new model's")
    parser.add_argument("--warm-up", type=int, default=WARM_UP_STEPS, help="steps until the rate is reached")
    parser.add_argument("--answers-only", action="store_true", help="leave out the auxiliary tests")
    parser.add_argument("--save-every", type=float, default=math.inf, help="seconds between two saves of the model")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    resumed = (options.out / "state.json").is_file()
    elapsed = json.loads((options.out / "state.json").read_text())["elapsed"] if resumed else 60 * options.spent
    # A piece starts from new seeds, so that a resumed training does not see its first batches again.
    seed = options.seed * 1_000_000 + int(elapsed) * 100
    with _workers(options.workers, size=options.size, seed=seed, tokens=options.tokens) as feed:
        torch.manual_seed(seed)
        torch.set_float32_matmul_precision("high")
        # cuDNN seems to plan its attention again for every shape, and no two batches have the same: 4 steps of 100,000
        # tokens a second with it, 9 without. A compile cache made with it keeps it.
        torch.backends.cuda.enable_cudnn_sdp(False)
        trainer = Trainer(
            options.size,
            budget=options.budget,
            device=options.device,
            compiled=not options.no_compile,
            rate=options.rate,
            warm_up=options.warm_up,
            answers_only=options.answers_only,
        )
        if resumed:
            trainer.resume(options.out)
        elif options.start:  # the small checkpoint: no optimizer state, so the learning rate warms up again
            trainer.model.load_state_dict(load_file(options.start / "model.safetensors"), strict=False)
            trainer.elapsed = elapsed
            trainer.skills = [0.0, *EXPERIENCED]
        log = Log(options.out / "log.jsonl")
        minutes = options.minutes or options.budget
        every, save_every = options.log_every, options.save_every
        run(trainer, minutes=minutes, log=log, every=every, feed=feed, save_every=save_every)
    trainer.save(options.out)


if __name__ == "__main__":
    main()
