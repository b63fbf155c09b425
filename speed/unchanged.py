"""Do two versions of gridprobe answer alike? Choices, kept frames, confidences and costs of 55 answers to the demo.

    git worktree add /tmp/old 265e523
    python speed/unchanged.py --old /tmp/old/src            # compares it with the source tree this program lies in

Both versions need the public API (`Session`, presets, selectors by name) and run in the same environment on one CPU.
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1] / "src"
CASES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("gridworld", "gridprobe", {"k": 12}),
    ("paper", "gridprobe", {"k": 8}),
    ("default", "gridprobe", {"k": 6}),
    ("gridworld", "uniform-like", {"k": 8}),
    ("gridworld", "all", {"k": 8}),
    ("gridworld", "gridprobe", {"k": 8, "frames": 8}),
    ("gridworld", "uniform", {"k": 8, "frames": 8}),
    ("gridworld", "random", {"k": 8, "frames": 8}),
    ("gridworld", "gridprobe", {"k": 8, "show": "collage"}),
    ("gridworld", "gridprobe", {"k": 8, "show": "importance"}),
    ("gridworld", "gridprobe", {"k": 8, "packing": "pairs", "prompt_order": "text_first", "probes": "fresh"}),
)
COSTS = (
    "tflops",
    "tflops_paper",
    "probe_tflops",
    "focus_tflops",
    "baseline_tflops",
    "tokens",
    "visual_tokens",
    "calls",
)
TOLERANCE = 1e-3
"""Of log-probabilities and confidences; batches of another size round differently in the sixth digit."""


BEFORE: dict[str, dict[str, Any]] = {"collage": {"collage": True}, "importance": {"order": "importance"}}
"""What the setting `show` was in versions without gridprobe_world."""


def answers(video: Path) -> dict[str, Any]:
    import gridprobe as gp

    try:
        from gridprobe_world import demo
    except ImportError:
        demo = importlib.import_module("gridprobe.demo")
    old = demo.__name__ == "gridprobe.demo"
    if not video.exists():
        demo.write(video)
    model, found = gp.load_model("embedded", device="cpu", dtype="float32"), {}
    for preset, selector, options in CASES:
        settings = BEFORE[options["show"]] | {"k": options["k"]} if "show" in options and old else options
        settings = settings if old else settings | {"profile": "off"}  # a profile changes answers, and should
        with gp.Session(video, model=model, selector=selector, preset=preset, **settings) as session:
            for kind, question in demo.questions().items():
                answer = session.ask(question).to_dict()
                chosen = answer["selection"]
                found[f"{preset} {selector} {options} {kind}"] = {
                    "choice": answer["choice"],
                    "kept": chosen["indices"],
                    "cost": [answer["cost"][name] for name in COSTS],
                    "sure": [*answer["posterior"].values(), *(chosen["row_confidence"] or ())],
                }
    return found


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    found = [f"{name}: {part} differs" for name in old for part in ("choice", "kept", "cost")
             if old[name][part] != new[name][part]]  # fmt: skip
    for name in old:
        off = max(abs(a - b) for a, b in zip(old[name]["sure"], new[name]["sure"], strict=True))
        found += [f"{name}: probabilities differ by {off:.2g}"] if off > TOLERANCE else []
    return found


def run(source: Path, video: Path) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": str(source), "GRIDPROBE_CACHE": "off"}
    done = subprocess.run(
        [sys.executable, __file__, "--answer", str(video)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the answers of two versions.")
    parser.add_argument("--old", type=Path, help="source folder of the other version")
    parser.add_argument("--answer", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.answer:
        print(json.dumps(answers(given.answer)))
        return
    with tempfile.TemporaryDirectory() as folder:
        old, new = (run(source, Path(folder) / "demo.mp4") for source in (given.old, HERE))
    found = differences(old, new)
    print("\n".join(found) or f"{len(old)} of {len(old)} answers are the same")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
