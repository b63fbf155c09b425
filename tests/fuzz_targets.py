"""What is fuzzed: each target makes seeds, and takes a seed's name and changed content.

A target raises a GridProbeError for input that cannot be used; anything else that it raises is a bug.
"""

import asyncio
import csv
import io
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import httpx
import numpy as np
from PIL import Image

from benchmark_files import as_hub_row, lvb_row, v2_group, write_parquet
from evaluation_runs import item, record, staged, write_run
from gridprobe.errors import GridProbeError
from gridprobe.question import Question
from gridprobe.video import FrameSize, VideoLimits, preview, probe, sample
from gridprobe_eval.benchmarks import SUBTITLE_MODES, Item, load_benchmark, metrics, with_subtitles
from gridprobe_eval.benchmarks.verify import verify
from gridprobe_eval.folder import status
from gridprobe_eval.metrics import bins_of, official, score, summary, verdicts
from gridprobe_eval.reader import read_run
from gridprobe_eval.report.run_page import render_runs
from gridprobe_eval.report.tables import FORMATS, RunScores
from mutants import SEEDS
from serving_kit import as_data, client_of, jpeg, running_service, video_folder
from videos import numbered_video

LIMITS = VideoLimits(max_pixels=1 << 20, seconds=20.0, memory=1 << 26)
TINY = FrameSize(square=16)


class Target:
    """One kind of input."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def seeds(self) -> dict[str, bytes]:
        """Valid content by name; the name is part of every case's name."""
        raise NotImplementedError

    def run(self, name: str, data: bytes) -> None:
        """Use a case as the product would."""
        raise NotImplementedError

    def close(self) -> None:
        """End what was started."""

    def _fresh(self, name: str) -> Path:
        place = self.folder / name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        return place


class Containers(Target):
    """Video files."""

    MORE: ClassVar[dict[str, tuple[str, dict[str, str]]]] = {
        "h264.mkv": ("libx264", {}),
        "asp.avi": ("mpeg4", {}),
        "h264.flv": ("libx264", {}),
        "mjpeg.mov": ("mjpeg", {}),
    }

    def seeds(self) -> dict[str, bytes]:
        found = {}
        for name, (codec, options) in {**SEEDS, **self.MORE}.items():
            form = "yuvj420p" if codec == "mjpeg" else "yuv420p"
            path = numbered_video(
                self.folder / name, 15, size=(64, 64), codec=codec, options=dict(options), pixel_format=form
            )
            found[name] = path.read_bytes()
        frames = [Image.fromarray(np.full((16, 16, 3), 20 * level, np.uint8)) for level in range(4)]
        buffer = io.BytesIO()
        frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:])
        return {**found, "a.gif": buffer.getvalue()}

    def run(self, name: str, data: bytes) -> None:
        path = self.folder / f"case-{name}"
        path.write_bytes(data)
        for look in (
            lambda: probe(path, limits=LIMITS),
            lambda: preview(path, num_frames=4, limits=LIMITS),
            lambda: sample(path, num_frames=4, size=TINY, limits=LIMITS),
            lambda: sample(path, num_frames=4, size=TINY, precision="auto", limits=LIMITS),
        ):
            try:
                look()
            except GridProbeError:
                continue


class Pictures(Target):
    """A folder with two pictures, one of them changed, or its times."""

    def seeds(self) -> dict[str, bytes]:
        pixels = np.arange(24 * 16 * 3, dtype=np.uint8).reshape(24, 16, 3)
        made = {"rgb": Image.fromarray(pixels), "grey16": Image.fromarray(pixels[..., 0].astype(np.uint16) * 256)}
        made |= {"palette": made["rgb"].convert("P"), "alpha": made["rgb"].convert("RGBA")}
        found = {f"{name}.png": _saved(picture, "PNG") for name, picture in made.items()}
        turned = Image.Exif()
        turned[0x0112] = 6
        found |= {"a.jpg": _saved(made["rgb"], "JPEG", exif=turned), "a.webp": _saved(made["rgb"], "WEBP", exif=turned)}
        return {**found, "a.bmp": _saved(made["rgb"], "BMP"), "times.json": b"[0.0, 1.5]"}

    def run(self, name: str, data: bytes) -> None:
        folder = self._fresh("pictures")
        for number in range(2):
            (folder / f"{number}.jpg").write_bytes(jpeg(50 * number))
        (folder / ("times.json" if name == "times.json" else f"0{Path(name).suffix}")).write_bytes(data)
        sample(folder, num_frames=3, size=TINY, limits=LIMITS)


def _saved(picture: Image.Image, form: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, form, **options)
    return buffer.getvalue()


class SubtitleFiles(Target):
    """SubRip, WebVTT and the JSON of the benchmarks, in every mode."""

    def seeds(self) -> dict[str, bytes]:
        rows = [{"start": "00:00:01.000", "end": "00:00:03.000", "line": "Hi."}, {"start": 4, "end": 5.5, "line": "x"}]
        pairs = [{"timestamp": [1.5, 3.0], "text": "Hi"}, {"timestamp": [9.0, None], "text": "b"}]
        words = [{"text": text, "start_time": at, "end_time": at + 0.4} for at, text in enumerate(["We", "left.", "x"])]
        timed = (
            "1\n00:00:01,500 --> 00:00:03,000\n<b>Hello</b>\nthere\n\n2\n00:01:00,000 --> 00:01:02,250\nlate &amp;\n"
        )
        vtt = "WEBVTT\n\n00:01.500 --> 00:03.000 align:start\n<v Ann>Hello\n\n01:00:00.000 --> 01:00:02.250\ny\n"
        return {
            "a.srt": timed.encode(),
            "a.vtt": vtt.encode(),
            "utf16.srt": timed.encode("utf-16"),
            "rows.json": json.dumps(rows).encode(),
            "pairs.json": json.dumps(pairs).encode(),
            "words.jsonl": "\n".join(map(json.dumps, words)).encode(),
        }

    def run(self, name: str, data: bytes) -> None:
        path = self.folder / "subtitles"
        path.write_bytes(data)
        for template in ("default", "longvideobench", "video-mme", "video-mme-v2"):
            asked = Question("Which?", ["x", "y"], template=template)
            about = Item("q", asked, self.folder / "none.mp4", "v", subtitles=path, offset=1.0, duration=15.0)
            for mode in SUBTITLE_MODES:
                try:
                    question = with_subtitles(about, mode)
                    question.between([0.0, 3.0, 9.0])
                    question.prompt.encode()
                except GridProbeError:
                    continue


class BenchmarkFiles(Target):
    """The annotation files of every benchmark; a seed is BENCHMARK@PATH with + for the slashes."""

    def seeds(self) -> dict[str, bytes]:
        files = {**_official(), **_parquets(self._fresh("parquet"))}
        self._all = dict(files)
        return files

    def run(self, name: str, data: bytes) -> None:
        folder, benchmark = self._fresh("benchmark"), name.partition("@")[0]
        for other, content in {**self._all, name: data}.items():
            if other.partition("@")[0] == benchmark:
                path = folder / other.partition("@")[2].replace("+", "/")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        found = load_benchmark(benchmark.partition("~")[0], folder)
        metrics(found.name, found.items, {each.id: True for each in found.items})
        for each in found.items:
            each.question.prompt.encode()
        kept = [[each.id, each.group, dict(each.bins), dict(each.extra), str(each.video)] for each in found.items]
        json.dumps(kept, ensure_ascii=False, allow_nan=False).encode()
        verify(found.name, folder)


def _official() -> dict[str, bytes]:
    """Files of JSON and CSV."""
    own = {"id": "q1", "video": "a.mp4", "question": "Which?", "options": ["x", "y"], "answer": "B", "bins": {"t": 1}}
    asked = {
        "uid": "0",
        "question": "What?\n(A) 1\n(B) 2",
        "answer": "B",
        "question_type": ["x"],
        "time_reference": "1",
    }
    lvbench = {"key": "k", "type": "cartoon", "video_info": {}, "qa": [asked]}
    ego = {"q_uid": "a-1", "question": "What?", **{f"option {i}": f"does {i}" for i in range(5)}}
    mlvu = {"video": "m.mp4", "duration": 480.0, "question": "What?", "candidates": ["a", "b"], "answer": "b"}
    next_row = {
        "video": "40",
        "question": "how",
        "answer": 2,
        "qid": "6",
        "type": "CW",
        **{f"a{i}": i for i in range(5)},
    }
    table = io.StringIO(newline="")
    writer = csv.DictWriter(table, fieldnames=list(next_row))
    writer.writeheader()
    writer.writerow(next_row)
    return {
        "jsonl@questions.jsonl": "\n".join(map(json.dumps, [own, {"video": "b", "question": "Why?"}])).encode(),
        "longvideobench@lvb_val.json": json.dumps([lvb_row("v_0", "v"), lvb_row("w_0", "w")]).encode(),
        "lvbench@video_info.meta.jsonl": "\n".join(map(json.dumps, [lvbench, {**lvbench, "key": "l"}])).encode(),
        "egoschema@questions.json": json.dumps([ego, {**ego, "q_uid": "b-2"}]).encode(),
        "egoschema@subset_answers.json": json.dumps({"a-1": 3}).encode(),
        "mlvu@json+1_plotQA.json": json.dumps([{**mlvu, "question_type": "plotQA"}]).encode(),
        "nextqa@val.csv": table.getvalue().encode(),
        "nextqa@map_vid_vidorID.json": json.dumps({"40": "1164/40"}).encode(),
    }


def _parquets(folder: Path) -> dict[str, bytes]:
    mme = {"videoID": "f1", "question_id": "001-1", "question": "How many?", "options": ["A. 1", "B. 2"], "answer": "B"}
    mme |= dict.fromkeys(("video_id", "domain", "sub_category", "task_type", "url"), "x") | {"duration": "short"}
    ego = {"question_idx": "0", "question": "What?", "video_idx": "a-1", "option": ["A. x", "B. y"], "answer": "1"}
    tables: Mapping[str, list[dict[str, Any]]] = {
        "video-mme@videomme+test-00000-of-00001.parquet": [mme],
        "video-mme-v2@test.parquet": v2_group("001"),
        "egoschema~hub@Subset+test-00000-of-00001.parquet": [ego],
        "longvideobench~hub@validation-00000-of-00001.parquet": [as_hub_row(lvb_row("v_0", "v"))],
    }
    return {name: write_parquet(folder / "x.parquet", rows).read_bytes() for name, rows in tables.items()}


class RunFolders(Target):
    """The files of a run folder, read by status, score and report."""

    def seeds(self) -> dict[str, bytes]:
        items = [item("v1-a"), item("v1-b"), item("v2-a", options=[], answer="a bird"), item("v3-a", answer=None)]
        said = record("v2-a", "a bird", gold="a bird", logprobs={"a bird": -0.2, "a car": -2.0})
        records = [record("v1-a"), staged("v1-b", "A", "focus", overview="A", focus="A"), said, record("v3-a", None)]
        folder = self.folder / "seed"
        write_run(folder, items, records)
        beat = {"worker": "w0", "pid": 1, "host": "h", "records": "records-w0.jsonl", "question": "v1-a", "done": 1}
        beat |= {"started": "2026-11-01T00:00:00Z", "since": "2026-11-01T00:00:00Z", "failed": 0}
        (folder / "heartbeat-w0.json").write_text(json.dumps(beat))
        (folder / "stopped-1of1.json").write_text(json.dumps({"sentence": "3 questions were not asked"}))
        (folder / "verdicts.json").write_text(json.dumps({"judge": {'["v2-a", "a bird"]': 0.5}}))
        self._all = {path.name: path.read_bytes() for path in folder.iterdir()}
        return self._all

    def run(self, name: str, data: bytes) -> None:
        folder = self._fresh("run")
        for other, content in {**self._all, name: data}.items():
            (folder / other).write_bytes(content)
        for look in (lambda: status(folder), lambda: summary(folder), lambda: verdicts(folder), lambda: _shown(folder)):
            try:
                look()
            except GridProbeError:
                continue


def _shown(folder: Path) -> None:
    run = read_run(folder)
    scores = RunScores([run], score([run], by=bins_of([run])), {run.name: official(run)})
    for form in FORMATS:
        FORMATS[form](scores).encode()
    render_runs([run]).encode()


class Requests(Target):
    """JSON bodies of every route that takes one; a seed is the path with + for the slashes."""

    def seeds(self) -> dict[str, bytes]:
        self._stack = running_service(video_folder(self.folder / "videos"), quota=1 << 22, decode_seconds=60)
        self._service = self._stack.__enter__()
        self._loop = asyncio.new_event_loop()
        self._client = client_of(self._service, timeout=None)
        self.status = 0
        settings = {"k": 2, "effort": "full", "frames": "shape", "max_tokens": 10**6}
        ask = {"video": "talk.mp4", "question": "Which?", "options": ["x", "y"], "settings": settings, "map": True}
        pictures = [as_data(jpeg(level), "image/jpeg") for level in (0, 100)]
        text, shown = (
            {"type": "text", "text": "Which?\nA. x\nB. y"},
            {"type": "image_url", "image_url": {"url": pictures[0]}},
        )
        parts = [text, {"type": "video_url", "video_url": {"url": "talk.mp4"}}]
        chat = {
            "model": "gridprobe",
            "messages": [{"role": "user", "content": parts}],
            "logprobs": True,
            "stream": False,
        }
        seen = {**chat, "messages": [{"role": "user", "content": [text, shown, shown]}], "stream": True}
        seen |= {
            "media_io_kwargs": {"video": {"fps": 1.0, "frames_indices": [0, 5], "total_num_frames": 9, "duration": 9.0}}
        }
        seen |= {"mm_processor_kwargs": {"fps": 1.0, "max_pixels": 100_000}}
        wire = [{"type": "input_video", "video_url": "talk.mp4"}, {"type": "input_text", "text": "Which?"}]
        source = {"type": "base64", "media_type": "image/jpeg", "data": pictures[0].partition(",")[2]}
        source_message = {"role": "user", "content": [{"type": "image", "source": source}, text]}
        session = self._send("/v1/gridprobe/sessions", json.dumps({"video": "talk.mp4", "settings": {"k": 2}}).encode())
        plan = {"settings": settings, "question": "Which?", "options": ["x", "y"]}
        bodies = {
            "/v1/gridprobe/ask": ask,
            "/v1/gridprobe/jobs": {**ask, "video": as_data(b"no video")},
            "/v1/gridprobe/sessions": {"video": f"data:video/jpeg;base64,{pictures[0].partition(',')[2]}"},
            "/v1/chat/completions": {**chat, "gridprobe": settings},
            "/v1/chat/completions#pictures": seen,
            "/v1/responses": {
                "model": "gridprobe",
                "input": [{"role": "user", "content": wire}],
                "gridprobe": settings,
            },
            "/v1/messages": {
                "model": "gridprobe",
                "max_tokens": 9,
                "system": "Be brief.",
                "messages": [source_message],
            },
        }
        self._session = str(session.json()["id"])
        found = {path.replace("/", "+"): json.dumps(body).encode() for path, body in bodies.items()}
        return {**found, "+v1+gridprobe+sessions+ID+plan": json.dumps(plan).encode()}

    def _send(self, path: str, data: bytes) -> httpx.Response:
        kind = {"Content-Type": "application/json"}
        return self._loop.run_until_complete(self._client.post(path, content=data, headers=kind))

    def run(self, name: str, data: bytes) -> None:
        path = name.partition("#")[0].replace("+", "/")
        reply = self._send(path.replace("/ID/", f"/{self._session}/"), data)
        self.status = reply.status_code
        if reply.status_code == 404 and "+ID+" in name:
            opened = self._send("/v1/gridprobe/sessions", b'{"video": "talk.mp4", "settings": {"k": 2}}')
            self._session = str(opened.json()["id"])
        assert reply.status_code < 500 or reply.status_code in (502, 503, 507), reply.text
        assert reply.status_code < 400 or reply.json()["error"]["message"], reply.text
        assert "Traceback" not in reply.text and str(self._service.store.folder) not in reply.text, reply.text

    def close(self) -> None:
        self._loop.run_until_complete(self._client.aclose())
        self._loop.close()
        self._stack.__exit__(None, None, None)


TARGETS: dict[str, type[Target]] = {
    "containers": Containers,
    "pictures": Pictures,
    "subtitles": SubtitleFiles,
    "benchmarks": BenchmarkFiles,
    "records": RunFolders,
    "requests": Requests,
}


@contextmanager
def opened(name: str, folder: Path) -> Iterator[tuple[Target, dict[str, bytes]]]:
    """A target and its seeds."""
    folder.mkdir(parents=True, exist_ok=True)
    target = TARGETS[name](folder)
    seeds = target.seeds()
    try:
        yield target, seeds
    finally:
        target.close()
