"""Print what questions cost as a share of all frames, for every family and for servers; docs/models.md shows it.

    python speed/shares.py                       # all families and servers; a minute on 2 cores, no weights
    python speed/shares.py --families internvl   # one family

A 720p video, 12×12 frames, default settings, a question with four options. A share is floating-point operations, on
servers tokens, divided by those of one pass over all 144 frames at full size. The operations are those of the general
engine's cost model for released shapes (`released.py`), Qwen3-VL's those of its own; text is counted roughly.
"""

import argparse
import copy
import gc
import re
import sys
import tempfile
from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
from released import RELEASED, Shape

from gridprobe.models.base import CHARACTERS_PER_TOKEN, Capabilities, Cost, CostModel, Request, Response, choose
from gridprobe.models.openai.selftest import TokenRule
from gridprobe.options import Options
from gridprobe.question import Question
from gridprobe.registry import FAMILIES
from gridprobe.selectors.gridprobe import overview_request
from gridprobe.video import VideoInfo
from gridprobe_eval.planning import TYPICAL, BlankVideo

INFO = VideoInfo("talk.mp4", "mp4", "h264", 1280, 720, 0, 25, 600, 15000, 600, 15000, 0, "yuv420p", False, "", "")
LATER = Question("Who comes into the room at the end?", ["a cat", "a dog", "a child", "nobody"])
PIECE = re.compile(r"\d|[^\W\d]+|[^\w\s]")
"""About a token, where the text is times: a digit, a word or a sign."""
MULTIPLE = 32
"""Of the sides of pictures, on servers."""
DELIMITERS = 2
"""Tokens around a picture."""


# Families: what they compute.


def family_model(family: str) -> CostModel:
    """The cost model of a released model of a family."""
    if family == "qwen3_vl":
        from gridprobe.models.qwen3vl import cost_model

        released = cost_model("Qwen/Qwen3-VL-8B-Instruct", None)
        assert released is not None
        return released
    return _counted(family, RELEASED[family])


def _counted(family: str, shape: Shape) -> CostModel:
    """As the general engine counts it, with text counted roughly: a released tokenizer is not here."""
    root = Path(__file__).parents[1]
    sys.path[:0] = [str(root), str(root / "tests")]  # tokens, templates and processors of the tests' tiny checkpoints
    import transformers

    from auto_checkpoints import TINY, write_processor
    from gridprobe.models.local.layout import Layout, PreparedRequest
    from gridprobe.models.transformers.engine import _capabilities, picture_sizes
    from gridprobe.models.transformers.pricing import PicturePrice, hollow_tower, language_price, price
    from gridprobe.models.transformers.prompt import FAMILY, read_pictures, time_text

    tiny = TINY[family]
    tiny = replace(tiny, image=tiny.image | shape.image, processor=tiny.processor | shape.processor)
    with tempfile.TemporaryDirectory() as name:
        tokenizer = write_processor(tiny, Path(name))
        fields = _over(tiny.config(tokenizer.convert_tokens_to_ids, len(tokenizer)), shape)
        config = transformers.AutoConfig.for_model(family, **fields)
        pictures = read_pictures(name, Path(name), config=config, tokenizer=tokenizer, family=FAMILY[family])
    language, tower = language_price(config), PicturePrice(hollow_tower(config, pictures), pictures)

    def request_price(request: Request) -> Cost:
        sizes = picture_sizes(request, pictures.multiple)
        visual = [pictures.placeholder(size).tokens for size in sizes]
        times = [len(PIECE.findall(time_text(request.times_of(unit)))) for unit in request.units]
        counts = [DELIMITERS + sum(pair) for pair in zip(visual, times, strict=True)]
        total = sum(counts) + len(request.prompt) // CHARACTERS_PER_TOKEN
        owners = np.repeat(np.arange(len(counts)), counts)
        mask = np.arange(total) < sum(visual)
        layout = Layout(np.zeros(total, np.int64), mask, tuple(sizes), sum(counts), len(counts), owners)
        with without_arithmetic():
            return price(language, PreparedRequest(0, request, layout), tower)

    capabilities = _capabilities(config, pictures, weights=0, pass_bytes=0)
    return CostModel(shape.name, capabilities, request_price)


def _over(config: dict[str, Any], shape: Shape) -> dict[str, Any]:
    """A tiny configuration with the numbers of a released one."""
    config = copy.deepcopy(config)
    text, vision = config["text_config"], config["vision_config"]
    ropes = text.get("rope_parameters", {}) | shape.text.get("rope_parameters", {})
    config |= {**shape.config, "text_config": {**text, **shape.text}, "vision_config": {**vision, **shape.vision}}
    if ropes:
        config["text_config"]["rope_parameters"] = ropes
    return config


LARGE = 2_000_000
"""Numbers in a tensor that is not computed."""


def without_arithmetic() -> AbstractContextManager[Any]:
    """Large tensors have a shape but no content, so that counting what a tower does takes neither time nor memory.

    All on the meta device would not do: towers look into their inputs to see what is padding, and how pictures lie.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves, tree_map_only

    class Skip(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            inputs = (args, kwargs or {})
            tensors = (each for each in tree_leaves(inputs) if isinstance(each, torch.Tensor))
            if operation.is_view or not any(each.is_floating_point() and each.numel() > LARGE for each in tensors):
                return operation(*args, **inputs[1])
            if operation._schema.is_mutable:
                return args[0]
            hollow = tree_map_only(torch.Tensor, lambda each: torch.empty_like(each, device="meta"), inputs)
            hollow = tree_map_only(torch.device, lambda _: torch.device("meta"), hollow)
            results = operation(*hollow[0], **hollow[1])
            return tree_map_only(
                torch.Tensor, lambda each: torch.empty(1, dtype=each.dtype).expand(each.shape), results
            )

    return Skip()  # type: ignore[no-untyped-call]


# A question, step by step.


def costs(model: CostModel, **settings: Any) -> tuple[Cost, ...]:
    """A first question that the overview settles, one with map and focused pass, a later one; and all frames.

    The focused pass shows the most frames that may be kept; the later question is settled by the overview.
    """
    usual = Options(**settings).resolve(model=model)
    video = BlankVideo.of(INFO, usual)
    count = len(video.times)
    plan = usual.never_dearer(TYPICAL, count, video.frames_at)
    everything = usual.focus_request(video.frames(usual.size_of(usual.shown, count)), TYPICAL)
    assert plan.overview is not None
    pool = video.frames(plan.pool_size(count))
    (first,) = choose(model, [overview_request(pool, TYPICAL, plan.overview)])
    rest = Cost()
    if plan.effort != "all":
        selection = plan.selector.with_overview(first).select(pool, TYPICAL)
        kept = plan.select_evenly(min(plan.selector.bounds(count)[1], plan.most_kept or count), pool)
        (focus,) = choose(model, [plan.focus_on(kept, TYPICAL, video.frames_at)])
        rest = selection.cost + focus.cost
    again = overview_request(pool, LATER, plan.overview, keep_kv=True)
    if model.capabilities.kv_reuse:
        again = replace(again, visible_frames=tuple(range(count)))
    (later,) = choose(model, [again])
    return first.cost, first.cost + rest, later.cost, model.cost(everything)


def percent(part: float, whole: float) -> str:
    """Two digits."""
    share = 100 * part / whole
    return f"{share:.2g}" if share < 10 else f"{share:.0f}"


# Servers: what they are sent, and what of it they must compute.


@dataclass(frozen=True)
class Service:
    """A server, as docs/models.md describes it."""

    names: str
    rule: TokenRule
    """Tokens of a picture."""
    caches: bool = True
    samples: int = 1
    """How many requests one answer takes."""


QWEN3_VL = TokenRule()
SERVICES = (
    Service("vLLM, SGLang, llama-server, Ollama", QWEN3_VL),
    Service("LM Studio", QWEN3_VL, caches=False, samples=16),
    Service("an API with 258 tokens per picture", TokenRule(least=258, fixed=258, per_pixel=0)),
)


@dataclass(frozen=True)
class Served(CostModel):
    """A model on a server, which keeps what it has read, picture by picture from the first one on."""

    service: Service = field(kw_only=True)
    read: list[tuple[Hashable, ...]] = field(default_factory=list)
    """The pictures of every request so far."""

    def run(self, requests: Sequence[Request]) -> list[Response]:
        """At the price of what is not in the cache."""
        return [response for each in requests for response in self._one(each)]

    def _one(self, request: Request) -> list[Response]:
        pictures = _pictures(request)
        known = max((_common(pictures, each) for each in self.read), default=0) if self.service.caches else 0
        self.read.append(pictures)
        whole = self.price(request)
        frames = whole.tokens - whole.calls * (len(request.prompt) // CHARACTERS_PER_TOKEN)
        cached = frames * known // max(1, len(pictures))
        served = CostModel(self.identity, self.capabilities, lambda _: replace(whole, cached_tokens=cached))
        return served.run([request])


def _pictures(request: Request) -> tuple[Hashable, ...]:
    """What its pictures are, in the order they are sent."""
    sizes = [group.size(MULTIPLE) for group in request.groups]
    return tuple((request.times_of(unit), sizes[unit.group]) for unit in request.units)


def _common(one: Sequence[Hashable], other: Sequence[Hashable]) -> int:
    """How many pictures two requests begin with alike."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def server_model(service: Service) -> Served:
    """A server with an empty cache."""
    fixed = service.rule.image(1) if service.rule.per_pixel == 0 else None
    capabilities = Capabilities(
        logprobs=service.samples == 1,
        generates=True,
        frame_pairs=False,
        frame_multiple=MULTIPLE,
        tokens_per_image=fixed,
    )

    def price(request: Request) -> Cost:
        calls = service.samples if request.labels else 1
        return Cost(calls, calls * service.rule.total(request, MULTIPLE), unpriced=calls)

    return Served(service.names, capabilities, price, service=service)


def main() -> None:
    """Print both tables, in percent of all frames."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="*", default=list(FAMILIES), choices=FAMILIES)
    arguments = parser.parse_args()
    print("| family | model | overview | focused | next |\n|---|---|---:|---:|---:|")
    for family in arguments.families:
        model = family_model(family)
        *parts, whole = (cost.flops for cost in costs(model))
        print(f"| `{family}` | {model.identity} | {' | '.join(percent(part, whole) for part in parts)} |", flush=True)
        del model
        gc.collect()  # its caches hold gigabytes of zeros, in a circle
    print("\n| server | overview | 24 probes, focused | *when*, focused | next |\n|---|---:|---:|---:|---:|")
    for service in SERVICES:
        overview, probed, later, every = costs(server_model(service), probes="fresh")
        _, asked, _, _ = costs(server_model(service), probes="when")
        cells = (_sent_and_computed(cost, every) for cost in (overview, probed, asked, later))
        print(f"| {service.names} | {' | '.join(cells)} |")


def _sent_and_computed(cost: Cost, whole: Cost) -> str:
    """Shares of tokens: all, and those that were not in the server's cache."""
    return "/".join(percent(tokens, whole.tokens) for tokens in (cost.tokens, cost.tokens - cost.cached_tokens))


if __name__ == "__main__":
    main()
