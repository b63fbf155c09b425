"""What was skipped and the command that runs it, printed at the end of a test run."""

import re
from collections import Counter
from collections.abc import Iterable

COMMANDS = {
    r"no CUDA device": "GRIDPROBE_REQUIRE_GPU=1 .venv/bin/python -m pytest -m gpu    (on a machine with a GPU)",
    r"no DejaVu Sans on this machine": "apt-get install fonts-dejavu-core && make test",
    r"no Chromium on this machine": "apt-get install chromium && make test",
    r"Playwright is not installed": ".venv/bin/python -m pip install playwright && make test",
    r"PocketSphinx is not installed": ".venv/bin/python -m pip install pocketsphinx && make test-all",
    r"no eSpeak NG on this machine": "apt-get install espeak-ng && make test-all",
    r"needs strace": "apt-get install strace && make test",
    r"could not import 'ray'|the official client is not|the SDK of the Model Context|could not import 'torch'": (
        "rm .venv/.dev && make test"
    ),
    r"lmms-eval is installed by": "make test-lmms",
    r"Ray Serve is not installed": "make test-ray-serve",
    r"GRIDPROBE_VLLM|marked vllm": "make test-vllm",
    r"GRIDPROBE_OPENWEBUI": "make test-openwebui",
    r"GRIDPROBE_LLAMA": "make test-llama",
    r"marked slow": "make test-slow",
    r"marked release": "make test-all",
    r"needs a newer transformers": "make test    (`make test-oldest` has the oldest transformers)",
    r"only root gives a link away": "sudo make test",
    r"reads /proc|needs Linux|this kernel has no Landlock": "make test    (on Linux)",
    r"needs glibc 2\.33|this Pillow writes no AVIF": "make test    (on a newer system)",
    r"bitsandbytes is installed": ".venv/bin/python -m pip uninstall bitsandbytes && make test",
}
"""What the reason of a skip begins with, and the command that runs the tests."""


def command_for(reason: str) -> str | None:
    return next((command for start, command in COMMANDS.items() if re.match(start, reason)), None)


def skipped_table(reasons: Iterable[str], marks: str = "") -> list[str]:
    """A line for each reason with its count and command, the most frequent first; `marks` is pytest's option -m."""
    counts = Counter(reason.removeprefix("Skipped: ") for reason in reasons)
    rows = [(f"{count}", reason, command_for(reason) or "?") for reason, count in counts.most_common()]
    rows += [
        ("all", f"marked {mark}", command_for(f"marked {mark}") or "?") for mark in re.findall(r"not (\w+)", marks)
    ]
    wide = max((len(reason) for _, reason, _ in rows), default=0)
    return [f"{count:>5}  {reason:{wide}}  {command}" for count, reason, command in rows]
