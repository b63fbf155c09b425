"""What a question costs in seconds: the published way, plain transformers, and our engine, in one run.

    python speed/engine.py --sizes 2B 8B                      # on a GPU: random weights of Qwen3-VL's shapes
    python speed/engine.py --model embedded                   # on a CPU

Weights do not change what a pass costs, so 2B and 8B are the real architecture with random weights. Frames are noise
and are not decoded here. A 12 × 12 grid, 24 probes, 52 frames kept. The published way sends the probes one after
another and computes logits at every position; plain is one batch through transformers' own modules. A follow-up is
another question about the same video with its own kept frames; both sets are drawn at random and share 16. Times are
medians of `--rounds`, after one warm-up, and end when the posterior is on the host. Memory is the peak above the
weights.
"""

import argparse
import datetime
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from plain_transformers import PlainQwen3VL

from gridprobe.importance import Grid
from gridprobe.models import Choose, FrameGroup, Packing, Request, View, choose, load_model
from gridprobe.models.qwen3vl.blocks import PatchSpec, patches
from gridprobe.models.qwen3vl.engine import Qwen3VL
from gridprobe.video import FramePool, FrameSize, VideoInfo
from gridprobe_world.embedded import WEIGHTS

sys.path.insert(0, str(Path(__file__).parents[1]))
from training.checkpoint import build_tokenizer

K, KEPT, SUBTITLES = 12, 52, 800
LABELS = tuple("ABCD")
TEXT = {
    "2B": (2048, 28, 16, 8, 6144, True),
    "8B": (4096, 36, 32, 8, 12288, False),
}
VISION = {"2B": (24, 1024, 4096, [5, 11, 17]), "8B": (27, 1152, 4304, [8, 16, 24])}


def random_model(size: str, device: str) -> Any:
    """Qwen3-VL's architecture and numbers with random weights."""
    hidden, layers, heads, kv_heads, ffn, tied = TEXT[size]
    depth, width, vision_ffn, deep = VISION[size]
    rope = {"rope_type": "default", "rope_theta": 5e6, "mrope_section": [24, 20, 20], "mrope_interleaved": True}
    config = transformers.Qwen3VLConfig(
        text_config={
            "hidden_size": hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": 128,
            "intermediate_size": ffn,
            "vocab_size": 151_936,
            "max_position_embeddings": 262_144,
            "rope_parameters": rope,
            "tie_word_embeddings": tied,
        },
        vision_config={
            "depth": depth,
            "hidden_size": width,
            "num_heads": 16,
            "intermediate_size": vision_ffn,
            "out_hidden_size": hidden,
            "patch_size": 16,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "num_position_embeddings": 2304,
            "deepstack_visual_indexes": deep,
        },
        tie_word_embeddings=tied,
    )
    config._attn_implementation = "sdpa"
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        model = transformers.Qwen3VLForConditionalGeneration(config).eval()
    torch.set_default_dtype(torch.float32)
    return model


@dataclass(frozen=True)
class Case:
    """A model and the sizes its frames are shown at."""

    name: str
    model: Any
    tokenizer: Any
    spec: PatchSpec
    probe: FrameSize
    native: FrameSize
    packing: Packing
    frame: tuple[int, int]
    """Width and height of a frame as decoded."""
    prompt: int
    """Tokens of a question."""

    def engine(self, *, plain: bool, compile: bool = False) -> Qwen3VL:
        options: dict[str, Any] = {"spec": self.spec, "identity": self.name, "min_letter_mass": 0.0}
        if plain:
            return PlainQwen3VL(self.model, self.tokenizer, **options)
        return Qwen3VL(self.model, self.tokenizer, **options, compile=compile)


def noise_info(width: int, height: int) -> VideoInfo:
    """A fingerprint for noise: frames without one are known by their content, and hashing them would be measured."""
    return VideoInfo(
        path="noise",
        container="none",
        codec="none",
        width=width,
        height=height,
        rotation=0,
        fps=None,
        duration_header=None,
        frames_header=None,
        duration_found=None,
        frames_found=None,
        start_time=0.0,
        pixel_format="rgb24",
        hdr=False,
        decoder="none",
        fingerprint="noise",
    )


def pools(case: Case, *, k: int = K) -> tuple[FramePool, FramePool]:
    """Frames of noise at the probes' size and as decoded."""
    noise = np.random.default_rng(0)
    size = case.probe.rounded_to(case.spec.multiple).fit(*case.frame)
    small = noise.integers(0, 256, (k * k, size[1], size[0], 3), dtype=np.uint8)
    large = noise.integers(0, 256, (k * k, case.frame[1], case.frame[0], 3), dtype=np.uint8)
    times = tuple(25.0 * i + 12.5 for i in range(k * k))
    pool, whole = (FramePool(pixels, times, "noise", info=noise_info(*case.frame)) for pixels in (small, large))
    return pool, whole


def requests(case: Case, *, seed: int) -> tuple[list[Request], Request, Request]:
    """The probes, the focused pass and the pass over all frames of one question; frames do not depend on the seed."""
    pool, whole = pools(case)
    word = f" {seed}"
    prompt = word
    while len(case.tokenizer.encode(prompt)) < case.prompt:
        prompt += word
    kept = sorted(np.random.default_rng(seed).choice(K * K, KEPT, replace=False).tolist())
    probe, native = View(case.probe, case.packing), View(case.native, case.packing)

    def ask(frames: FramePool, view: View) -> Request:
        return Request(prompt, Choose(LABELS), (FrameGroup(frames, view),))

    probes = [ask(pool.take(subset), probe) for subset in Grid(K).probes()]
    return probes, ask(whole.take(kept), native), ask(whole, native)


@torch.inference_mode()
def published(case: Case, engine: Qwen3VL, probes: list[Request]) -> None:
    """One call for each probe, logits at every position, as the authors' code has it."""
    for probe in probes:
        layout = engine._layout(probe)
        device = case.model.device
        pixels = probe.frames.pixels
        flat = patches(pixels, size=layout.largest, packing=case.packing, spec=case.spec, device=device)
        ids = torch.from_numpy(layout.ids)[None].to(device)
        ids[0, torch.from_numpy(layout.visual)] = case.model.config.video_token_id
        logits = case.model(
            input_ids=ids,
            mm_token_type_ids=2 * torch.from_numpy(layout.visual).long()[None].to(device),
            attention_mask=torch.ones_like(ids),
            pixel_values_videos=flat.to(case.model.dtype),
            video_grid_thw=torch.tensor(layout.grids, device=device),
            use_cache=False,
        ).logits
        logits[0, -1].float().cpu()


def measured(
    work: Callable[[], Any], rounds: int, before: Callable[[], Any] = lambda: None, *, above: int | None = None
) -> tuple[float, float]:
    """Median seconds, and peak memory in GiB above so many bytes, or above what was there before."""
    seconds, peaks = [], []
    for number in range(rounds + 1):
        before()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            base = torch.cuda.memory_allocated() if above is None else above
        start = time.perf_counter()
        work()
        if number:
            seconds.append(time.perf_counter() - start)
        if torch.cuda.is_available():
            peaks.append((torch.cuda.max_memory_allocated() - base) / 2**30)
    return statistics.median(seconds), max(peaks, default=0.0)


Row = tuple[str, float, float]
"""A way to ask, its seconds and its peak memory."""


def row(name: str, work: Callable[[], Any], rounds: int, before: Callable[[], Any] = lambda: None) -> Row:
    """A line of the table; told as it comes, too, since a run takes minutes."""
    seconds, peak = measured(work, rounds, before)
    print(f"{name}: {seconds:.3f} s", file=sys.stderr, flush=True)
    return name, seconds, peak


def rivals(case: Case, rounds: int) -> list[Row]:
    """The published way and plain transformers."""
    plain = case.engine(plain=True)
    probes, focus, everything = requests(case, seed=1)
    work: list[tuple[str, Callable[[], Any]]] = [
        ("24 probes, published way", lambda: published(case, plain, probes)),
        ("24 probes, plain batch", lambda: choose(plain, probes)),
        (f"{KEPT} kept frames, plain", lambda: choose(plain, [focus])),
        ("all 144 frames, plain", lambda: choose(plain, [everything])),
    ]
    return [row(name, each, rounds) for name, each in work]


def long_texts(case: Case, rounds: int) -> list[Row]:
    """Probes that share a long text, such as subtitles: read behind the frames of each, or once before all of them."""
    ours = case.engine(plain=False)
    probes, _, _ = requests(replace(case, prompt=case.prompt + SUBTITLES), seed=3)
    work = {
        f"24 probes, ours, {SUBTITLES} tokens more of text": probes,
        f"24 probes, ours, {SUBTITLES} tokens more, text first": [
            replace(p, prompt_order="text_first") for p in probes
        ],
    }
    return [row(name, partial(choose, ours, asked), rounds, ours.kept.clear) for name, asked in work.items()]


def rows(case: Case, rounds: int, *, compile: bool) -> list[Row]:
    """Our engine, and what it is called: ours, or ours compiled."""
    ours, name = case.engine(plain=False, compile=compile), "ours, compiled" if compile else "ours"
    probes, focus, everything = requests(case, seed=1)
    later, later_focus, _ = requests(case, seed=2)
    session = [replace(probe, keep_kv=True) for probe in probes]
    follow = [replace(probe, keep_kv=True) for probe in later]
    forget = ours.kept.clear

    def first() -> None:
        choose(ours, probes)
        choose(ours, [focus])

    def remember() -> None:
        forget()
        choose(ours, session)
        choose(ours, [focus])

    def follow_up() -> None:
        choose(ours, follow)
        choose(ours, [later_focus])

    work: list[tuple[str, Callable[[], Any], Callable[[], Any]]] = [
        (f"24 probes, {name}", lambda: choose(ours, probes), forget),
        (f"24 probes, {name}, another question", lambda: choose(ours, follow), remember),
        (f"{KEPT} kept frames, {name}", lambda: choose(ours, [focus]), forget),
        (f"all 144 frames, {name}", lambda: choose(ours, [everything]), forget),
        (f"**first question, {name}**", first, forget),
        (f"**follow-up question, {name}**", follow_up, remember),
    ]
    return [row(way, each, rounds, before) for way, each, before in work]


def table(name: str, found: list[tuple[str, float, float]]) -> str:
    """Markdown: seconds, and ratios to all frames."""
    seconds = {way: value for way, value, _ in found}
    plain, ours = seconds["all 144 frames, plain"], seconds["all 144 frames, ours"]
    lines = [
        f"## {name}",
        "",
        "| way | s | × all frames, plain | × all frames, ours | peak GiB |",
        "|---|---|---|---|---|",
    ]
    lines += [f"| {way} | {s:.3f} | {s / plain:.2f} | {s / ours:.2f} | {peak:.1f} |" for way, s, peak in found]
    published = seconds["24 probes, published way"] + seconds[f"{KEPT} kept frames, plain"]
    first, later = seconds["**first question, ours**"], seconds["**follow-up question, ours**"]
    lines += ["", f"First question ÷ (24 probes, published way + {KEPT} kept frames, plain): {first / published:.2f}. "]
    lines[-1] += f"Follow-up ÷ first question: {later / first:.2f}."
    return "\n".join(lines)


def cases(given: argparse.Namespace) -> Iterator[Case]:
    """One after another, so that one model at a time is in memory."""
    if given.model:
        size = {"embedded": "micro", "embedded:nano": "nano"}.get(given.model)
        engine = load_model(str(WEIGHTS / size) if size else given.model, device=given.device, dtype=given.dtype)
        assert isinstance(engine, Qwen3VL)
        sizes: Any = {"probe": FrameSize(max_side=96), "native": FrameSize(max_side=224)}
        sizes |= {"frame": (224, 224), "prompt": 70}
        dtype = str(engine._model.dtype).removeprefix("torch.")
        name = f"{Path(given.model).name}, {dtype}, frames of 224 px, probes of 96 px"
        yield Case(name, engine._model, engine._tokenizer, engine._spec, packing="single", **sizes)
    for size in given.sizes:
        spec = PatchSpec(patch=16, merge=2, temporal=2, mean=(0.5,) * 3, std=(0.5,) * 3)
        shown: Any = {"probe": FrameSize(square=224), "native": FrameSize()}
        shown |= {"frame": (1152, 640), "prompt": 200}
        yield Case(
            f"{size} shapes, bf16",
            random_model(size, given.device),
            build_tokenizer(),
            spec,
            packing="pairs",
            **shown,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="*", default=[], choices=list(TEXT))
    parser.add_argument("--model", help="a checkpoint; its frames are 224 px and its probes 96 px")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", default="auto", help="of --model")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compile", action="store_true", help="our engine with torch.compile, too")
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    machine = torch.cuda.get_device_name() if given.device != "cpu" else f"{torch.get_num_threads()} CPU cores"
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}, Python {platform.python_version()}"
    text = [f"`python speed/engine.py {shlex.join(sys.argv[1:])}`, {datetime.date.today()}, {machine}, {versions}"]
    text.append(" ".join((__doc__ or "").split("\n\n")[2].split()))
    for case in cases(given):
        found = rivals(case, given.rounds) + rows(case, given.rounds, compile=False)
        found += long_texts(case, given.rounds)
        found += rows(case, given.rounds, compile=True) if given.compile else []
        text.append(table(case.name, found))
        print(text[-1], flush=True)
        del case
    if given.output:
        given.output.write_text("\n\n".join(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
