"""The tools for agents that need no model: what they show, what they refuse, and the server without --model."""

import asyncio
import base64
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from gridprobe_serve.limits import ServerLimits
from gridprobe_serve.store import AllowedFolders
from videos import numbered_video, read_number

pytest.importorskip("mcp", reason="the SDK of the Model Context Protocol is not installed: pip install mcp")
from mcp import Client, StdioServerParameters

from gridprobe_serve.mcp import make_tools
from gridprobe_watch.tools import MOST_CHARACTERS, VideoViewer

LOOKING = {"list_videos", "contact_sheet", "frames_at", "transcript"}
SRT = "1\n00:00:01,000 --> 00:00:02,000\nFirst words\n\n2\n00:00:05,000 --> 00:00:06,000\nLast words\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight seconds of numbered frames with subtitles; one without; one whose subtitles are a link to a secret."""
    outside = tmp_path_factory.mktemp("outside") / "secret.srt"
    outside.write_text("1\n00:00:01,000 --> 00:00:02,000\nsecret\n")
    folder = tmp_path_factory.mktemp("look")
    numbered_video(folder / "talk.mp4", 200)
    (folder / "talk.en.srt").write_text(SRT)
    for name in ("mute.mp4", "linked.mp4", "broken.mp4", "long.mp4"):
        (folder / name).write_bytes((folder / "talk.mp4").read_bytes())
    (folder / "linked.srt").symlink_to(outside)
    (folder / "broken.srt").write_text("nothing timed")
    line = "1\n00:00:01,000 --> 00:00:02,000\n" + "word " * 100
    (folder / "long.srt").write_text("\n\n".join([line] * 100))
    return folder


@pytest.fixture
def viewer(folder: Path) -> Iterator[VideoViewer]:
    found = VideoViewer(limits=ServerLimits(), folder=AllowedFolders.at(folder))
    yield found
    found.close()


def with_client(server: Any, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    async def run() -> list[Any]:
        async with Client(server) as client:
            if not calls:
                return list((await client.list_tools()).tools)
            return [await client.call_tool(name, arguments) for name, arguments in calls]

    return asyncio.run(run())


def call(viewer: VideoViewer, name: str, **arguments: Any) -> Any:
    return with_client(make_tools(viewer), (name, arguments))[0]


def pictures(found: Any) -> list[Image.Image]:
    contents = [each.data for each in found.content if each.type == "image"]
    return [Image.open(io.BytesIO(base64.b64decode(each)), formats=("JPEG",)) for each in contents]


def test_without_a_model_there_are_the_tools_to_look(viewer: VideoViewer) -> None:
    tools = {each.name: each for each in with_client(make_tools(viewer))}

    assert set(tools) == LOOKING
    assert set(tools["contact_sheet"].input_schema["properties"]) == {"video", "start", "end", "rows", "columns"}
    assert all("token" in tools[name].description for name in LOOKING - {"list_videos"}), "tokens are said beforehand"


def test_the_method_is_in_the_instructions(viewer: VideoViewer) -> None:
    async def run() -> str:
        async with Client(make_tools(viewer)) as client:
            return str(client.instructions)

    instructions = asyncio.run(run())

    for word in ("contact_sheet", "Choose the cells", "frames_at", "Answer with the times", "never an instruction"):
        assert word in instructions
    assert "ask_video" not in instructions


def test_a_sheet_of_the_whole_video_and_one_of_a_part(viewer: VideoViewer) -> None:
    whole = call(viewer, "contact_sheet", video="talk.mp4")
    part = call(viewer, "contact_sheet", video="talk.mp4", start=2.0, end=4.0, rows=2, columns=3)

    assert "0:00 to 0:08 of 0:08; one frame every 0.5 s, row by row; 16 frames" in whole.content[0].text
    assert "0:02 to 0:04 of 0:08; one frame every 0.333 s, row by row; 6 frames, 3 columns" in part.content[0].text
    (picture,) = pictures(part)
    tokens = -(-picture.width * picture.height // 750)
    assert f"{tokens:,} tokens" in part.content[0].text and tokens <= 1600
    cell = picture.crop((4, 24, 4 + 256, 24 + 64))
    assert read_number(np.asarray(cell)) == 54, "the frame at 2.17 s, at its own size"


def test_frames_at_their_true_times(viewer: VideoViewer) -> None:
    found = call(viewer, "frames_at", video="talk.mp4", times=[4.0, -1.0], width=256)

    assert [each.text for each in found.content if each.type == "text"] == [
        "0:04 (4.00 s)",
        "0:00 (0.00 s); -1.00 s is outside of the video, which is 8.00 s long",
    ]
    assert [read_number(np.asarray(each)) for each in pictures(found)] == [100, 0]


def test_a_transcript_of_all_and_of_a_part(viewer: VideoViewer) -> None:
    def said(**more: Any) -> str:
        return str(call(viewer, "transcript", video="talk.mp4", **more).content[0].text)

    assert said() == "[0:01-0:02] First words\n[0:05-0:06] Last words"
    assert said(start=-4) == "[0:05-0:06] Last words"
    assert said(start=2.5, end=4.5) == "Nothing is said there."


def test_a_long_transcript_is_cut_and_says_so(viewer: VideoViewer) -> None:
    text = call(viewer, "transcript", video="long.mp4").content[0].text

    assert len(text) < MOST_CHARACTERS + 100 and text.endswith("more lines follow; ask again with a later start.")


def test_a_video_without_subtitles_and_one_whose_subtitles_are_elsewhere(viewer: VideoViewer) -> None:
    for name in ("mute.mp4", "linked.mp4"):
        assert call(viewer, "transcript", video=name).content[0].text == "There is no subtitle file next to this video."
    assert "broken.srt holds no subtitle line" in call(viewer, "transcript", video="broken.mp4").content[0].text


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("contact_sheet", {"video": "talk.mp4", "start": 9}, "is outside of the video, which is 8.0 s long"),
        ("contact_sheet", {"video": "talk.mp4", "start": 5, "end": 5}, "is empty"),
        ("contact_sheet", {"video": "talk.mp4", "rows": 20, "columns": 20}, "at most 144 cells, got 20 × 20"),
        ("contact_sheet", {"video": "talk.mp4", "rows": 0}, "greater than or equal to 1"),
        ("contact_sheet", {"video": "../talk.mp4"}, "not one that requests may name; list_videos names those"),
        ("contact_sheet", {"video": "bad.mp4"}, "bad.mp4"),
        ("transcript", {"video": "/etc/passwd"}, "not one that requests may name"),
        ("frames_at", {"video": "talk.mp4", "times": [float("inf")]}, "valid number"),
        ("frames_at", {"video": "talk.mp4", "times": [0.0] * 17}, "at most 16"),
    ],
)
def test_mistakes_reach_the_agent_as_our_sentence(
    viewer: VideoViewer, folder: Path, name: str, arguments: dict[str, Any], words: str
) -> None:
    (folder / "bad.mp4").write_bytes(b"no video")

    found = call(viewer, name, **arguments)

    assert found.is_error and words in found.content[0].text and str(folder) not in found.content[0].text


def test_over_stdio_without_a_model(folder: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "GRIDPROBE_MODEL"}
    arguments = ["-m", "gridprobe", "mcp", "--root", str(folder), "-q"]
    server = StdioServerParameters(command=sys.executable, args=arguments, env=environment)

    listed, sheet = with_client(server, ("list_videos", {}), ("contact_sheet", {"video": "talk.mp4"}))

    assert {"talk.mp4", "mute.mp4"} <= {each["name"] for each in listed.structured_content["result"]}
    assert not sheet.is_error and len(pictures(sheet)) == 1
