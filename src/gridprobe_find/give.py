"""What comes of a search: lines of JSON, Parquet, edit lists, clips, and a page with a grid that plays."""

import json
import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gridprobe import __version__
from gridprobe._util import one_line
from gridprobe.errors import UsageError, VideoError
from gridprobe.registry import explain_missing
from gridprobe.report.format import amount, clock
from gridprobe.report.html import asset, check_writable, jpeg_source, write_whole
from gridprobe.video import FrameSize, cut
from gridprobe_find.build import sampled
from gridprobe_find.find import FindResult, LibraryMoment

SCHEMA = "gridprobe.find/1"
THUMBNAIL = FrameSize(max_side=480)
USUAL_RATE = 25
"""Frames per second of an edit list of videos that differ in it, or have fewer than any editor takes."""


def moment_dict(moment: LibraryMoment) -> dict[str, Any]:
    """One moment as plain values."""
    numbers = {"start": round(moment.start, 3), "end": round(moment.end, 3), "similarity": round(moment.similarity, 6)}
    return {"video": moment.video, **numbers, "probability": moment.probability, "text": moment.text}


def find_dict(result: FindResult) -> dict[str, Any]:
    """Everything as plain values."""
    work = {**vars(result.work), "model": vars(result.work.model)}
    return {
        "schema": SCHEMA,
        "query": result.query,
        "found": not result.not_found,
        "moments": [moment_dict(each) for each in result.moments],
        "work": work,
        "problems": list(result.problems),
    }


def work_words(result: FindResult) -> str:
    """What the search took, in a line."""
    work = result.work
    parts = [
        f"{_count(work.videos, 'video')}, {_count(work.frames, 'frame')} in the index",
        f"{_count(work.vectors, 'vector')} compared",
        f"{_count(work.segments, 'segment')} proposed",
        f"{_count(work.checked, 'segment')} checked by {_count(work.model.calls, 'model call')}",
        f"{work.model.tflops:.3g} TFLOPs",
        f"{_count(work.encoded, 'frame')} encoded for borders",
        f"{amount(work.seconds)} s",
    ]
    return ", ".join(parts)


def sure_of(moment: LibraryMoment) -> str:
    """How sure the model is, or why it was not asked."""
    if moment.probability is not None:
        return f"{moment.probability:.0%} yes"
    return "said" if moment.text else f"similarity {moment.similarity:.2f}"


def answer_words(result: FindResult) -> str:
    """The answer in a sentence."""
    if result.not_found:
        return f"not found: nothing in {_count(result.work.videos, 'video')} shows or says it"
    videos = len({each.video for each in result.moments})
    return f"{_count(len(result.moments), 'moment')} in {_count(videos, 'video')}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def as_lines(result: FindResult) -> bytes:
    """A line of JSON for each moment."""
    lines = [json.dumps({"query": result.query, **moment_dict(each)}, allow_nan=False) for each in result.moments]
    return "".join(f"{line}\n" for line in lines).encode()


def as_parquet(result: FindResult) -> bytes:
    """The moments as a Parquet file."""
    with explain_missing("find"):
        import pyarrow as pa
        import pyarrow.parquet as pq
    text, real = pa.string(), pa.float64()
    fields = [("query", text), ("video", text), ("start", real), ("end", real)]
    fields += [("similarity", real), ("probability", real), ("text", text)]
    rows = [{"query": result.query, **moment_dict(each)} for each in result.moments]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=pa.schema(fields)), sink)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def as_edl(result: FindResult) -> bytes:
    """An edit list (CMX 3600): the moments one after the other."""
    rate, at = _rate(result.moments), 0
    lines = [f"TITLE: {one_line(result.query)[:70]}", "FCM: NON-DROP FRAME", ""]
    for number, each in enumerate(result.moments, start=1):
        start = round(each.start * rate)
        length = max(1, round(each.end * rate) - start)
        times = [_timecode(frame, rate) for frame in (start, start + length, at, at + length)]
        lines.append(f"{number:03d}  AX       V     C        {' '.join(times)}")
        lines += [f"* FROM CLIP NAME: {one_line(os.path.basename(each.video))}", f"* COMMENT: {sure_of(each)}"]
        at += length
    return ("\n".join(lines) + "\n").encode()


def _rate(moments: Sequence[LibraryMoment]) -> int:
    rates = {round(each.fps) for each in moments}
    return next(iter(rates)) if len(rates) == 1 and min(rates) >= 10 else USUAL_RATE


def _timecode(frame: int, rate: int) -> str:
    seconds, frames = divmod(frame, rate)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}:{frames:02d}"


def as_otio(result: FindResult) -> bytes:
    """A timeline for OpenTimelineIO, which writes it for Final Cut, Premiere, Resolve and others."""
    with explain_missing("find"):
        import opentimelineio as otio
    track = otio.schema.Track(name="moments", kind=otio.schema.TrackKind.Video)
    rate = _rate(result.moments)
    for each in result.moments:
        start, end = (otio.opentime.RationalTime(round(moment * rate), rate) for moment in (each.start, each.end))
        clip = otio.schema.Clip(
            name=os.path.basename(each.video),
            media_reference=otio.schema.ExternalReference(target_url=Path(each.video).as_uri()),
            source_range=otio.opentime.range_from_start_end_time(start, end),
            metadata={"gridprobe": moment_dict(each)},
        )
        track.append(clip)
    timeline = otio.schema.Timeline(name=result.query)
    timeline.tracks.append(track)
    return str(timeline.to_json_string()).encode()


def as_page(result: FindResult, folder: Path) -> bytes:
    """A page for this folder, whose grid plays every moment from its video."""
    moments = [
        {
            "source": f"{quote(os.path.relpath(each.video, folder))}#t={each.start:.2f},{each.end:.2f}",
            "poster": _poster(each),
            "name": os.path.basename(each.video),
            "start": clock(each.start, tenths=True),
            "end": clock(each.end, tenths=True),
            "sure": sure_of(each),
            "text": each.text,
        }
        for each in result.moments
    ]
    values = {"answer": answer_words(result), "work": work_words(result), "version": __version__}
    page = _template().render(result=result, moments=moments, style=asset("answer.css"), **values)
    return str(page).encode()


def _poster(moment: LibraryMoment) -> str:
    """The frame in its middle; empty if it cannot be read."""
    from PIL import Image

    from gridprobe.report.picture import jpeg

    middle = (moment.start + moment.end) / 2
    try:
        pool = sampled(moment.video, ((middle, middle + 0.1),), 1, THUMBNAIL)
    except VideoError:
        return ""
    return jpeg_source(jpeg(Image.fromarray(pool.pixels[0]), quality=72))


@lru_cache(maxsize=1)
def _template() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(loader=PackageLoader("gridprobe_find"), autoescape=True, undefined=StrictUndefined)
    return environment.get_template("find.html.j2")


FORMS: dict[str, Callable[[FindResult], bytes]] = {
    ".jsonl": as_lines,
    ".parquet": as_parquet,
    ".edl": as_edl,
    ".otio": as_otio,
}
PAGES = (".html", ".htm")


def check_file_name(path: Path) -> None:
    """Refuse a file that cannot be written, before any work."""
    if path.suffix.lower() not in (*FORMS, *PAGES):
        raise UsageError(f"cannot save {path}: its name must end in {', '.join((*FORMS, PAGES[0]))}")
    check_writable(path)


def save_moments(result: FindResult, path: Path) -> None:
    """Write the moments in the form that the file's name asks for."""
    suffix = path.suffix.lower()
    content = as_page(result, path.absolute().parent) if suffix in PAGES else FORMS[suffix](result)
    write_whole(path, content)


def save_clips(result: FindResult, folder: Path) -> list[str]:
    """A silent .mp4 of every moment; a sentence for each that cannot be cut."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot create the folder {folder}: {error.strerror}; choose another with --clips") from error
    problems = []
    for number, each in enumerate(result.moments, start=1):
        name = f"{number:03d}-{Path(each.video).stem[:80]}-{each.start:.1f}-{each.end:.1f}.mp4"
        try:
            write_whole(folder / name, cut(each.video, [(each.start, each.end)], suffix=".mp4").content)
        except VideoError as error:
            problems.append(str(error))
    return problems
