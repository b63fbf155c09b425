"""gridprobe doctor: what is here, and whether it works."""

import importlib
import importlib.metadata
import json
import platform
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import click
from rich.table import Table
from rich.text import Text

from gridprobe._version import __version__
from gridprobe.cli.console import printable, speaks_unicode, stdout

__all__ = ["doctor"]

CODECS = ("h264", "hevc", "vp8", "vp9", "av1", "mpeg4", "mjpeg", "prores", "gif")


@dataclass(frozen=True)
class Check:
    """One line of the doctor's report."""

    name: str
    state: Literal["ok", "absent", "broken"]
    note: str


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the checks as JSON.")
def doctor(as_json: bool) -> None:
    """Check the installation: versions, decoders, GPU, disk, and a small end-to-end run."""
    checks = [check() for check in (_python, _decoder, _second_decoder, _models, _gpu, _disk, _cache, _self_test)]
    if as_json:
        print(json.dumps([asdict(check) for check in checks], indent=2))
    else:
        _print(checks)
    sys.exit(1 if any(check.state == "broken" for check in checks) else 0)


def _print(checks: list[Check]) -> None:
    console = stdout()
    marks = {"ok": "✓", "absent": "–", "broken": "✗"} if speaks_unicode(console) else {}
    colours = {"ok": "green", "absent": "yellow", "broken": "red"}
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for check in checks:
        mark = marks.get(check.state, check.state)
        table.add_row(Text(mark, colours[check.state]), check.name, Text(check.note))  # notes hold brackets
    console.print(table)


def _python() -> Check:
    return Check("gridprobe", "ok", f"{__version__} on Python {platform.python_version()}, {platform.platform()}")


def _decoder() -> Check:
    try:
        import av
        from av.codec import Codec
    except ImportError as error:
        return Check("video decoding", "broken", f"PyAV does not load: {error}; run: pip install --force-reinstall av")
    here = [name for name in CODECS if name in av.codecs_available and Codec(name, "r")]
    missing = [name for name in CODECS if name not in here]
    note = f"PyAV {av.__version__}: {' '.join(here)}" + (f"; not {' '.join(missing)}" if missing else "")
    return Check("video decoding", "ok", note)


def _second_decoder() -> Check:
    """Whether torchcodec can be used; without it, or with one that does not load, nothing else changes."""
    from gridprobe.video.second import torchcodec_state

    version, reason = torchcodec_state()
    if version is None:
        return Check("second decoder", "absent", f"{reason}; only --decoder torchcodec needs it")
    return Check("second decoder", "ok", f"torchcodec {version} (--decoder torchcodec)")


def _models() -> Check:
    found = []
    for name in ("torch", "transformers", "accelerate", "safetensors"):
        try:
            importlib.import_module(name)
            found.append(f"{name} {importlib.metadata.version(name)}")
        except ModuleNotFoundError:
            return Check("local models", "absent", f"{name} is not installed; run: pip install 'gridprobe[local]'")
        except (ImportError, OSError, RuntimeError) as error:
            return Check("local models", "broken", f"{name} is installed but does not load: {error}")
    return Check("local models", "ok", ", ".join(found))


def _gpu() -> Check:
    if sys.modules.get("torch") is None:
        return Check("GPU", "absent", "needs torch")
    import torch

    if not torch.cuda.is_available():
        return Check("GPU", "absent", "torch finds none; models run on the CPU")
    free, total = torch.cuda.mem_get_info()
    return Check("GPU", "ok", f"{torch.cuda.get_device_name()}, {free / 2**30:.0f} of {total / 2**30:.0f} GiB free")


def _disk() -> Check:
    free = shutil.disk_usage(tempfile.gettempdir()).free / 2**30
    return Check("disk", "ok" if free > 1 else "broken", f"{free:.0f} GiB free in {tempfile.gettempdir()}")


def _cache() -> Check:
    """Where decoded frames are kept. No cache is no fault: everything works without it, only slower."""
    from gridprobe.video import Limits, open_cache

    cache = open_cache(Limits().cache)
    if cache is None:
        return Check("frame cache", "absent", "turned off (GRIDPROBE_CACHE=off), or there is no home directory")
    entries, size = cache.size()
    if cache.trouble:
        return Check("frame cache", "absent", printable(cache.trouble))
    held = f"{size / 2**20:,.1f} MiB of at most {cache.cap / 2**30:g} GiB, {entries:,} entries"
    return Check("frame cache", "ok", f"{printable(str(cache.folder))}: {held}")


def _self_test() -> Check:
    """A real H.264 file, written, planned, sampled, probed and answered by a scripted model."""
    from gridprobe.backends import Scripted
    from gridprobe.demo import DemoVideo, observe, questions
    from gridprobe.errors import GridProbeError
    from gridprobe.pipeline import ask
    from gridprobe.video import Limits, outline

    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "self-test.mp4"
        video = DemoVideo(seconds=60)
        try:
            video.write(path)
            plan = outline(path, cells=64).ways[0]
            question = questions(video)[0]
            answer = ask(path, question, model=Scripted(observe), k=8, limits=Limits(cache=0))
        except GridProbeError as error:
            return Check("self-test", "broken", str(error))
    seconds = time.perf_counter() - start
    if answer.choice != question.answer:
        return Check("self-test", "broken", f"answered {answer.choice}, not {question.answer}")
    planned = f"{len(plan.times)} frames from {plan.groups} groups of pictures, {plan.decode} to decode"
    return Check("self-test", "ok", f"write, plan ({planned}), decode, probe and answer in {seconds:.1f} s")
