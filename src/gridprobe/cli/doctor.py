"""gridprobe doctor: check the installation."""

import importlib
import importlib.metadata
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import click
import numpy as np
import numpy.typing as npt
from rich.text import Text

from gridprobe import __version__
from gridprobe._util import printable
from gridprobe.cli.console import debug_option, print_rows, speaks_unicode, stdout
from gridprobe.cli.help import Verb
from gridprobe.errors import GridProbeError
from gridprobe.models import FrameGroup, Model, Posterior, Request, View, load_model
from gridprobe.models.base import LOW_MASS, choose
from gridprobe.models.profile import find_profile
from gridprobe.question import Question
from gridprobe.registry import MODELS, install_command
from gridprobe.video import FramePool, FrameSize


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    name: str
    state: Literal["ok", "absent", "broken"]
    note: str


def print_checks(checks: list[Check]) -> None:
    """Print a line for each check."""
    marks = {"ok": "✓", "absent": "–", "broken": "✗"} if speaks_unicode(stdout()) else {}
    colours = {"ok": "green", "absent": "yellow", "broken": "red"}
    column = 3 if marks else 8
    rows = []
    for check in checks:
        mark = marks.get(check.state, check.state).ljust(column)
        rows.append((Text.assemble((mark, colours[check.state]), check.name), [Text(check.note)]))  # not markup
    print_rows(rows)


# gridprobe doctor --model: whether a model can be used, and how fast it is here; any backend, local or remote.

CHECK_FRAMES = 12
"""Frames of a probe: one row of the default grid."""
WIDTH, HEIGHT = 224, 128
"""Their size, as in the default preset for a video of 16:9."""
ENOUGH = 5.0
"""Seconds of measuring, after which no further round begins."""
MOST = 64
"""Probes of a round; more at once are not sent by any method here."""
SAME = 1e-6
"""Log-probabilities that differ by less are equal."""

QUESTION = Question("What colour is the circle?", ["red", "blue", "green", "none of these"])


def check_model(name: str, **options: Any) -> list[Check]:
    """Load a model and check it."""
    start = time.perf_counter()
    try:
        model = load_model(name, **options)
    except GridProbeError as error:
        return [Check("model", "broken", str(error))]
    return [Check("model", "ok", f"{model.identity}, loaded in {time.perf_counter() - start:.1f} s"), *checks_of(model)]


def checks_of(model: Model, *, clock: Callable[[], float] = time.perf_counter) -> list[Check]:
    """What a loaded model can do, and how fast; the first error ends the list."""
    checks = []
    try:
        for check in (_answers, _looks, _abilities, _profiled):
            checks.append(check(model))
        checks.append(_speed(model, clock))
    except GridProbeError as error:
        checks.append(Check("request", "broken", str(error)))
    return checks


def _answers(model: Model) -> Check:
    """Whether it answers with an option letter."""
    (posterior,) = choose(model, [_probe(0, frames=1)])
    note = f"{posterior.mass:.0%} of the probability is on the option letters"
    if posterior.mass < LOW_MASS:
        return Check("letters", "absent", f"only {note}, so its answers mean little; use an Instruct checkpoint")
    return Check("letters", "ok", note)


def _looks(model: Model) -> Check:
    """Whether its answer depends on the frames, on their order and on their times."""
    base = _probe(1, frames=2)
    frames = base.frames
    swapped = FramePool(frames.pixels[::-1].copy(), frames.times, frames.source)
    later = FramePool(frames.pixels, tuple(60.0 + time for time in frames.times), frames.source)
    requests = [base, _probe(2, frames=2), *(_shown(pool) for pool in (swapped, later))]
    first, *others = choose(model, requests)
    names = ("the frames", "their order", "their times")
    blind = [what for what, other in zip(names, others, strict=True) if _equal(first, other)]
    if blind:
        state: Literal["absent", "broken"] = "broken" if names[0] in blind else "absent"
        return Check("frames", state, f"its answer does not depend on {' or '.join(blind)}")
    return Check("frames", "ok", "its answer depends on the frames, their order and their times")


def _profiled(model: Model) -> Check:
    """What was measured on it with needles."""
    profile = find_profile(model.identity) or model.capabilities.profile
    if profile is None:
        return Check(
            "profile", "absent", "none: cautious settings are used; gridprobe profile MODEL measures better ones"
        )
    return Check("profile", "ok", str(profile))


def _equal(a: Posterior, b: Posterior) -> bool:
    return max(abs(x - y) for x, y in zip(a.logprobs, b.logprobs, strict=True)) < SAME


def _abilities(model: Model) -> Check:
    """What methods it allows, and what a frame costs."""
    lacks = [
        what
        for what, can in (
            ("a map from attention", model.capabilities.attention_map),
            ("close-ups behind the overview", model.capabilities.close_ups),
            ("a look at single frames of what was read", model.capabilities.masks_frames),
            ("texts", model.capabilities.generates),
        )
        if not can
    ]
    cost = model.cost(_probe(3))
    tokens = (
        f"{cost.visual_tokens / CHECK_FRAMES:g} tokens for a frame of {WIDTH}×{HEIGHT}" if cost.visual_tokens else ""
    )
    fixed = "and as many for one of any other size" if model.capabilities.tokens_per_image else ""
    lacking = f"lacks {', '.join(lacks)}" if lacks else "everything works"
    return Check("abilities", "ok", "; ".join(filter(None, (lacking, " ".join(filter(None, (tokens, fixed)))))))


def _speed(model: Model, clock: Callable[[], float]) -> Check:
    """Probes and tokens a second, from rounds of new probes, each with twice as many as the one before."""
    choose(model, [_probe(4)])  # the first pass of a process is slow
    seeds, start = iter(range(5, 1 << 20)), clock()
    count = 1
    while True:
        begin = clock()
        posteriors = choose(model, list(_probes(seeds, count)))
        seconds = max(clock() - begin, 1e-9)
        if count >= MOST or clock() - start + 2 * seconds > ENOUGH:
            break
        count *= 2
    tokens = sum(posterior.cost.tokens for posterior in posteriors)
    rate = f"{count / seconds:.3g} probes a second, {count} at once, each of {CHECK_FRAMES} frames of {WIDTH}×{HEIGHT}"
    return Check("speed", "ok", f"{rate}; {tokens / seconds:,.0f} tokens a second" if tokens else rate)


def _probes(seeds: Iterator[int], count: int) -> Iterator[Request]:
    return (_probe(next(seeds)) for _ in range(count))


def _probe(seed: int, *, frames: int = CHECK_FRAMES) -> Request:
    """A question about noise that no other probe shows, so that nothing can be reused."""
    pixels = np.random.default_rng(seed).integers(0, 256, (frames, HEIGHT, WIDTH, 3), dtype=np.uint8)
    return _shown(FramePool(pixels, tuple(5.0 * i for i in range(frames)), f"noise {seed}"))


def _shown(pool: FramePool) -> Request:
    return Request.about(QUESTION, (FrameGroup(pool, View(FrameSize(max_side=WIDTH))),))


CODECS = ("h264", "hevc", "vp8", "vp9", "av1", "mpeg4", "mjpeg", "prores", "gif")
FRAMES = 120
"""Frames of the self-test video: one minute at 2 frames per second."""


@click.command(
    cls=Verb,
    examples=(
        "gridprobe doctor",
        "gridprobe doctor -m Qwen/Qwen3-VL-2B-Instruct",
    ),
)
@click.option("-m", "--model", metavar="NAME", help="Check this model instead: can it be used, how fast is it here?")
@click.option("--device", default="auto", show_default=True, help="Of the model: auto, cpu, cuda or cuda:N.")
@click.option("--dtype", default="auto", show_default=True, help="Of the model: auto, float32, bfloat16 or float16.")
@click.option("--json", "as_json", is_flag=True, help="Print the checks as JSON.")
@debug_option
def doctor(model: str | None, device: str, dtype: str, as_json: bool) -> None:
    """Check the installation: versions, decoders, GPU, disk, and a small end-to-end run.

    With --model, check a model: whether it loads, answers with an option letter and looks at frames, their order and
    their times; what it lacks; probes and tokens a second.
    """
    if model:
        checks = check_model(model, device=device, dtype=dtype)
    else:
        parts = (_python, _decoder, _models, _embedded, _gpu, _disk, _cache, _self_test)
        checks = [check() for check in parts]
    if as_json:
        print(json.dumps([asdict(check) for check in checks], indent=2))
    else:
        print_checks(checks)
    sys.exit(1 if any(check.state == "broken" for check in checks) else 0)


def _python() -> Check:
    return Check("gridprobe", "ok", f"{__version__} on Python {platform.python_version()}, {platform.platform()}")


def _decoder() -> Check:
    try:
        import av
        from av.codec import Codec
    except (ImportError, OSError) as error:  # OSError: a library of the system is missing or damaged
        return Check("video decoding", "broken", f"PyAV does not load: {error}; run: pip install --force-reinstall av")
    here = [name for name in CODECS if name in av.codecs_available and Codec(name, "r")]
    missing = [name for name in CODECS if name not in here]
    note = f"PyAV {av.__version__}: {' '.join(here)}" + (f"; not {' '.join(missing)}" if missing else "")
    return Check("video decoding", "ok", f"{note}; {_sandbox()}")


def _sandbox() -> str:
    """Which restrictions of the kernel hold where videos are decoded."""
    from gridprobe.video.decoder_child import RESTRICTIONS
    from gridprobe.video.decoder_pool import sandbox

    if os.name != "posix":
        return "decoded in this process"
    try:
        held = sandbox()
    except GridProbeError as error:
        return str(error)
    if missing := [f"{name} ({what})" for name, what in RESTRICTIONS.items() if name not in held]:
        return f"decoded in a child process, where this system lacks {', '.join(missing)}"
    return f"decoded in a child process that can only read its video ({', '.join(held)})"


def _models() -> Check:
    versions = []
    for name in ("torch", "transformers", "accelerate", "safetensors"):
        try:
            importlib.import_module(name)
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except ModuleNotFoundError:
            return Check("local models", "absent", f"{name} is not installed; run: {install_command('local')}")
        except (ImportError, OSError, RuntimeError) as error:
            return Check("local models", "broken", f"{name} is installed but does not load: {error}")
    return Check("local models", "ok", ", ".join(versions))


def _gpu() -> Check:
    if sys.modules.get("torch") is None:
        return Check("GPU", "absent", "needs torch")
    import torch

    if not torch.cuda.is_available():
        return Check("GPU", "absent", "torch finds no GPU; models run on the CPU")
    free, total = torch.cuda.mem_get_info()
    return Check("GPU", "ok", f"{torch.cuda.get_device_name()}, {free / 2**30:.0f} of {total / 2**30:.0f} GiB free")


def _disk() -> Check:
    free = shutil.disk_usage(tempfile.gettempdir()).free / 2**30
    return Check("disk", "ok" if free > 1 else "broken", f"{free:.0f} GiB free in {tempfile.gettempdir()}")


def _embedded() -> Check:
    """Whether the embedded models are installed, load and answer. Their answers are not checked."""
    embedded, _ = MODELS.resolve("embedded")
    if not embedded.WEIGHTS.is_dir():
        return Check(
            "embedded models", "absent", f"not in this installation (no {embedded.WEIGHTS}); reinstall gridprobe"
        )
    if sys.modules.get("torch") is None:
        return Check("embedded models", "absent", "need torch")
    start = time.perf_counter()
    try:
        for size in embedded.SIZES:
            choose(load_model(f"embedded:{size}"), [_glimpse()])
    except GridProbeError as error:
        return Check("embedded models", "broken", str(error))
    weight = sum(file.stat().st_size for file in embedded.WEIGHTS.rglob("*") if file.is_file()) / 1e6
    seconds = time.perf_counter() - start
    return Check(
        "embedded models", "ok", f"{' and '.join(embedded.SIZES)}, {weight:.0f} MB; load and answer in {seconds:.1f} s"
    )


def _glimpse() -> Request:
    """One grey frame and a question in the vocabulary of the embedded models."""
    question = Question("What colour is the circle?", ["red", "blue"])
    frame = FramePool(np.full((1, 64, 64, 3), 128, np.uint8), (0.0,), "grey")
    return Request.about(question, (FrameGroup(frame, View(FrameSize())),))


def _cache(*, clear: bool = False) -> Check:
    """Location and size of the frame cache. It is optional; without it, asking again is slower."""
    from gridprobe.video import VideoLimits, open_cache

    cache = open_cache(VideoLimits().cache)
    if cache is None:
        return Check("frame cache", "absent", "disabled (GRIDPROBE_CACHE=off), or there is no home directory")
    if clear:
        cache.clear()
    files, size = cache.size()
    if cache.warning:
        return Check("frame cache", "absent", printable(cache.warning))
    contents = f"{size / 2**20:,.1f} MiB of at most {cache.cap / 2**30:g} GiB, {files:,} files"
    return Check("frame cache", "ok", f"{printable(str(cache.folder))}: {contents}")


@click.command(
    cls=Verb,
    examples=(
        "gridprobe cache",
        "gridprobe cache --clear",
    ),
)
@click.option("--clear", is_flag=True, help="Remove all files in it; the next questions decode their videos again.")
def cache(clear: bool) -> None:
    """Show where decoded frames are kept on disk, how much space they take, and how many files they are.

    GRIDPROBE_CACHE names another folder, or turns it off.
    """
    before, after = _cache(), _cache(clear=clear)
    print(f"cleared {before.note}\nnow {after.note}" if clear and after.state == "ok" else after.note)


def _self_test() -> Check:
    """Write an H.264 file, then plan, decode, probe and answer with a scripted model."""
    from gridprobe import MockModel
    from gridprobe.ask import ask
    from gridprobe.video import VideoLimits, preview, write_video

    if _decoder().state == "broken":
        return Check("self-test", "absent", "needs PyAV, which does not load")
    start = time.perf_counter()
    question = Question("What colour is the flash?", ["red", "blue"], answer="B")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "self-test.mp4"
        try:
            write_video(path, _flash(), fps=2, size=(64, 64), count=FRAMES)
            plan = preview(path, num_frames=64).ways[0]
            answer = ask(path, question, model=MockModel(_sees), k=8, limits=VideoLimits(cache=0))
        except GridProbeError as error:
            return Check("self-test", "broken", str(error))
    seconds = time.perf_counter() - start
    if answer.choice != question.answer:
        return Check("self-test", "broken", f"answered {answer.choice}, not {question.answer}")
    planned = f"{len(plan.times)} frames from {plan.groups} groups of pictures, {plan.decode} to decode"
    return Check("self-test", "ok", f"write, plan ({planned}), decode, probe and answer in {seconds:.1f} s")


def _flash() -> Iterator[npt.NDArray[np.uint8]]:
    """One minute of grey frames with two seconds of blue."""
    for number in range(FRAMES):
        blue = 80 <= number < 84
        yield np.full((64, 64, 3), (30, 40, 240) if blue else (128, 128, 128), np.uint8)


def _sees(request: Request) -> dict[str, float]:
    """A scripted model: confident of red or blue if a frame clearly shows that colour."""
    means = np.concatenate([group.frames.pixels.mean(axis=(1, 2)) for group in request.groups])
    red_over_blue = means[:, 0] - means[:, 2]
    seen = {"A": red_over_blue.max() > 100, "B": red_over_blue.min() < -100}
    return {label: 10.0 if visible_frames else 1.0 for label, visible_frames in seen.items()}
