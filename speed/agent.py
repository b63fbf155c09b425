"""An agent made of the embedded model, which sees videos through the MCP tools alone, on gridworld questions.

    python speed/agent.py [--count 20] [--parts standard fine crowded] [--folder DIR] [--out TABLE.md]

It asks for one sheet of 12 × 12 cells, reads it cell by cell, and answers if it is sure. If not, it asks frames_at for
the cells that the model chooses, and answers from these among the cells. It is compared with the same model on 100
evenly spaced frames at the video's size, in one pass. Tokens are w·h/750 of every picture.
"""

import argparse
import asyncio
import base64
import io
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from mcp import Client
from mcp.types import TextContent
from PIL import Image

import gridprobe as gp
from gridprobe.models.base import FrameGroup, Request
from gridprobe.options import Options
from gridprobe_serve.mcp import make_tools
from gridprobe_serve.store import AllowedFolders
from gridprobe_watch.sheets import GAP, HEAD, LABEL, tokens_of
from gridprobe_watch.tools import MOST_FRAMES, VideoViewer
from gridprobe_world.dataset import WorldItem, items, world_of
from gridprobe_world.render import write_script

SIDE, SMALL, EVENLY, FPS = 12, 64, 10, 2
ABOUT = re.compile(r"to \S+ of ([\d:]+); .*; (\d+) frames, (\d+) columns")
"""What an agent reads of a sheet: the video's length, frames and columns."""


@dataclass
class Score:
    """Answers so far."""

    right: list[bool] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)

    def add(self, right: bool, tokens: int) -> None:
        self.right.append(right)
        self.tokens.append(tokens)

    @property
    def words(self) -> str:
        return f"{100 * np.mean(self.right):.1f} | {np.mean(self.tokens):,.0f}"


def picture(content: Any) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(content.data)), formats=("JPEG",)).convert("RGB")


def cells_of(sheet: Image.Image, count: int, columns: int) -> list[Image.Image]:
    """The cells of a sheet, by its geometry."""
    rows = -(-count // columns)
    width = (sheet.width - GAP) // columns - GAP
    height = (sheet.height - HEAD) // rows - LABEL - GAP
    corners = [
        (GAP + place % columns * (width + GAP), HEAD + place // columns * (height + LABEL + GAP))
        for place in range(count)
    ]
    return [sheet.crop((x, y, x + width, y + height)).resize((SMALL, SMALL)) for x, y in corners]


def seconds_of(clock: str) -> float:
    return sum(float(part) * 60.0**power for power, part in enumerate(reversed(clock.split(":"))))


async def answer(client: Client, model: gp.models.Model, name: str, question: gp.Question) -> tuple[str, int]:
    """What the agent answers, and the tokens of the pictures it saw."""
    found = await client.call_tool("contact_sheet", {"video": name, "rows": SIDE, "columns": SIDE})
    said, shown = found.content
    assert isinstance(said, TextContent)
    text, sheet = said.text, picture(shown)
    match = ABOUT.search(text)
    assert match is not None, text
    length, count, columns = seconds_of(match[1]), int(match[2]), int(match[3])
    times = [(place + 0.5) * length / count for place in range(count)]
    cells = gp.FramePool.from_arrays(cells_of(sheet, count, columns), times)
    tokens = tokens_of(*sheet.size)
    first = gp.ask(cells, question, model=model, preset="gridworld", show_map=True)
    if first.reached.by == "overview":
        return first.choice, tokens
    kept = sorted(first.selection.best(MOST_FRAMES).indices)
    closer = await client.call_tool("frames_at", {"video": name, "times": [times[i] for i in kept], "width": 224})
    large = [picture(each) for each in closer.content if each.type == "image"]
    tokens += sum(tokens_of(*each.size) for each in large)
    plan = Options.from_preset("gridworld").resolve(model=model)
    assert plan.context is not None
    rest = [place for place in range(count) if place not in kept]
    groups = [FrameGroup(gp.FramePool.from_arrays(large, [times[i] for i in kept]), plan.view)]
    groups += [FrameGroup(cells.take(rest), plan.context)] if rest else []
    (response,) = model.run([Request.about(question, groups)])
    assert isinstance(response, gp.models.Posterior)
    return response.choice, tokens


def evenly(model: gp.models.Model, video: Path, question: gp.Question) -> tuple[str, int]:
    """The answer from evenly spaced frames at the video's size, in one pass."""
    found = gp.ask(video, question, model=model, preset="gridworld", k=EVENLY, selector="all", effort="focus")
    return found.choice, len(found.frames) * tokens_of(found.frames.width, found.frames.height)


def written(item: WorldItem, folder: Path) -> Path:
    path = folder / f"{item.part}-{item.seed}.mp4"
    if not path.exists():
        write_script(world_of(item), path, duration=item.duration, fps=FPS, size=224)
    return path


HEAD_LINES = """`python speed/agent.py --count {count} --parts {parts}`, {day}, `embedded:micro`

| questions | right through MCP % | tokens | right from 100 evenly spaced frames % | tokens |
|---|---:|---:|---:|---:|"""


async def measured(folder: Path, parts: Sequence[str], count: int) -> list[str]:
    model, lines = gp.load_model("embedded"), []
    every = Score(), Score()
    viewer = VideoViewer(folder=AllowedFolders.at(folder))
    try:
        async with Client(make_tools(viewer)) as client:
            for part in parts:
                scores = Score(), Score()
                for item in items(count, part=part):
                    video, question = written(item, folder), item.asked.question
                    outcomes = await answer(client, model, video.name, question), evenly(model, video, question)
                    for score, total, (choice, tokens) in zip(scores, every, outcomes, strict=True):
                        score.add(choice == question.answer, tokens)
                        total.add(choice == question.answer, tokens)
                lines.append(f"| {count} {part} | {scores[0].words} | {scores[1].words} |")
                print(lines[-1], flush=True)
    finally:
        viewer.close()
    return [*lines, f"| all {len(every[0].right)} | {every[0].words} | {every[1].words} |"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20, help="questions of each part")
    parser.add_argument("--parts", nargs="+", default=["standard", "fine", "crowded"])
    parser.add_argument("--folder", type=Path, help="where the videos are made, and found again")
    parser.add_argument("--out", type=Path, help="write the table there")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(exist_ok=True)
        lines = asyncio.run(measured(folder, arguments.parts, arguments.count))
    head = HEAD_LINES.format(count=arguments.count, parts=" ".join(arguments.parts), day=date.today().isoformat())
    table = "\n".join([head, *lines])
    print(table)
    if arguments.out:
        arguments.out.write_text(table + "\n")


if __name__ == "__main__":
    main()
