"""Print speed/results/gpus.md: what each size of Qwen3-VL needs, by the engine's own estimate.

    python speed/gpus.py        # no GPU and no weights are needed

Memory and TFLOPs are what `gridprobe plan` shows. Seconds are TFLOPs divided by a pace: the pace of the H200 is that of
speed/results/overview.md, other GPUs are assumed to reach the same share of their dense bfloat16 peak.
"""

import argparse
import json
import re
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from gridprobe.models.base import CostModel
from gridprobe.models.qwen3vl import cost_model
from gridprobe.models.qwen3vl.pricing import QWEN3_VL, ModelDims, dims_of, parameters
from gridprobe.options import Options
from gridprobe.video import VideoInfo
from gridprobe_eval.planning import Models, Offer, offers

ROOT = Path(__file__).parents[1]
PEAKS = {"H200": 989.0, "A100": 312.0, "RTX 4090": 165.0, "L4": 121.0}
"""Dense bfloat16 TFLOPs a second, by the makers' data sheets, from memory."""
MEMORY = {"H200": 141, "A100": 80, "RTX 4090": 24, "L4": 24}
"""GB, by the same data sheets; there is an A100 with 40, too."""
VISION_32B = {"depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "out_hidden_size": 5120, "patch_size": 16}
TEXT_32B = {"hidden_size": 5120, "num_hidden_layers": 64, "num_attention_heads": 64, "num_key_value_heads": 8}
CONFIG_32B = {
    "vision_config": {
        **VISION_32B,
        "deepstack_visual_indexes": [8, 16, 24],
        "temporal_patch_size": 2,
        "spatial_merge_size": 2,
    },
    "text_config": {**TEXT_32B, "head_dim": 128, "intermediate_size": 25600, "vocab_size": 151936},
}
"""The shape of 32B, by its published configuration, from memory."""
MEASURED = {"quick": "settled by the overview", "full": "full, map from attention"}
"""Rows of speed/results/overview.md."""
NAMES = {"quick": "first look", "full": "full path"}
SLASH = "/"
HEAD = """# Which GPU

**These are estimates, not measurements.** `python speed/gpus.py` prints this page.

One question about an hour of 1280×720 video, default settings, bfloat16. "First look" is a question that the model
answers from 144 small frames. "Full path" also shows up to {most} frames at full size. "All frames" is what gridprobe
replaces: all 144 frames at full size in one pass. Frames are single; fused in pairs, as Qwen3-VL
does with video, they are half as many tokens.
"""
TAIL = """
- Memory is in 10⁹ bytes: weights and the largest pass, by the same estimate as `gridprobe plan`. A GPU needs a little
  more. If yours has less, use `--load quantization=4bit`, or [a
  server](../../docs/models.md#models-on-a-server) with more GPUs.
- Seconds are without decoding: TFLOPs divided by a pace. The H200's comes from
  [a measurement with random weights](overview.md), in which the 8B shape's first look reaches
  {share:.0f}% of the peak of {peak:.0f} TFLOPs; others are assumed to reach as much of theirs
  ({peaks}).
- Downloads are two bytes for each parameter. Peaks, memory of GPUs and the shape of 32B are from memory.

How far the estimate is off where there is a measurement, with random weights (8B's first look fits by construction):
"""


def main() -> None:
    """Print the section."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print(section(), end="")


def section() -> str:
    """The whole section as Markdown."""
    found = {size: (model, _offers(model, 1280, 720)) for size, model in cost_models()}
    share = pace(dict(cost_models())["8B"]) / PEAKS["H200"]
    peaks = ", ".join(f"{name} {peak:.0f}" for name, peak in PEAKS.items() if name != "H200")
    most = max(ways["full"].frames[1] for _, ways in found.values())
    tail = TAIL.format(share=100 * share, peak=PEAKS["H200"], peaks=peaks)
    return (
        "\n".join([HEAD.format(most=most), *_memory(found), "", *_seconds(found, share), tail, *_checks(share)]) + "\n"
    )


def cost_models() -> Iterator[tuple[str, CostModel]]:
    """Each size, and what it costs."""
    for size in QWEN3_VL:
        found = cost_model(f"Qwen/Qwen3-VL-{size}-Instruct", None)
        assert found is not None
        yield size, found
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(CONFIG_32B), encoding="utf-8")
        found = cost_model("Qwen/Qwen3-VL-32B-Instruct", Path(folder))
        assert found is not None
        yield (
            "32B",
            replace(
                found, capabilities=replace(found.capabilities, weight_bytes=2 * parameters(_dims_32b(), tied=False))
            ),
        )


def pace(model: CostModel) -> float:
    """TFLOPs a second of the H200 in a first question that the overview settles, single frames, 8B."""
    return _offers(model, 1152, 640)["quick"].tflops[0] / measured("8B", MEASURED["quick"])


def measured(size: str, way: str) -> float:
    """Seconds on the H200 with random weights, single frames."""
    results = (ROOT / "speed" / "results" / "overview.md").read_text(encoding="utf-8").partition(f"## {size}")[2]
    seconds = re.search(rf"{way} \| single \| ([\d.]+)", results)
    assert seconds is not None
    return float(seconds[1])


def _checks(share: float) -> Iterator[str]:
    """The estimate next to what was measured, for frames of the measured size."""
    yield "| H200, frames of 1152×640 | first look, estimated/measured s | full path |"
    yield "|---|---:|---:|"
    for size, model in cost_models():
        pairs = (
            f"{_offers(model, 1152, 640)[name].tflops[1] / (PEAKS['H200'] * share):.3f}/{measured(size, way):.3f}"
            for name, way in (MEASURED.items() if size in ("2B", "8B") else ())
        )
        if cells := " | ".join(pairs):
            yield f"| {size} | {cells} |"


def _dims_32b() -> ModelDims:
    return dims_of(json.loads(json.dumps(CONFIG_32B), object_hook=lambda values: SimpleNamespace(**values)))


def _offers(model: CostModel, width: int, height: int) -> dict[str, Offer]:
    info = VideoInfo(
        "talk.mp4", "mp4", "h264", width, height, 0, 25.0, 3600.0, 90000, 3600.0, 90000, 0.0, "yuv420p", False, "", ""
    )
    return {each.name: each for each in offers(Options.from_preset("default"), info, Models(model, model))}


def _memory(found: dict[str, tuple[CostModel, dict[str, Offer]]]) -> Iterator[str]:
    yield "| Qwen3-VL | download GB | memory GB, first look | memory GB, full path | memory GB, all frames |"
    yield "|---|---:|---:|---:|---:|"
    for size, (model, ways) in found.items():
        needs = (ways[name].memory_gb for name in ("quick", "full", "all frames"))
        yield f"| {size} | {model.capabilities.memory(0):.1f} | {' | '.join(f'{each:.1f}' for each in needs)} |"


def _seconds(found: dict[str, tuple[CostModel, dict[str, Offer]]], share: float) -> Iterator[str]:
    names = ("quick", "full", "all frames")
    yield "Seconds for first look / full path / all frames; a dash where the memory is too small:\n"
    heads = (f"{gpu}, {MEMORY[gpu]} GB" for gpu in PEAKS)
    yield f"| Qwen3-VL | TFLOPs | {' | '.join(heads)} |"
    yield f"|---|---:|{'---:|' * len(PEAKS)}"
    for size, (_, ways) in found.items():
        tflops = SLASH.join(f"{ways[name].tflops[1]:.0f}" for name in names)
        cells = (SLASH.join(_on(gpu, ways[name], share) for name in names) for gpu in PEAKS)
        yield f"| {size} | {tflops} | {' | '.join(cells)} |"


def _on(gpu: str, way: Offer, share: float) -> str:
    """Seconds on a GPU, or a dash if its memory is too small."""
    return _short(way.tflops[1] / (PEAKS[gpu] * share)) if way.memory_gb < MEMORY[gpu] else "–"


def _short(seconds: float) -> str:
    return f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.2g}"


if __name__ == "__main__":
    main()
