"""gridprobe index and gridprobe find."""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import sleep
from typing import Any

import click
from rich import box
from rich.table import Table
from rich.text import Text

from gridprobe._util import printable, watching
from gridprobe.cli.ask import VIDEO_SUFFIXES, imply, introduce
from gridprobe.cli.console import (
    announce_saved,
    debug_option,
    is_quiet,
    notice,
    print_error,
    progress,
    quiet_option,
    stdout,
)
from gridprobe.cli.help import Verb, names_of
from gridprobe.cli.options import FILE, in_groups, method_options, model_options, models_of, options_of
from gridprobe.errors import UsageError
from gridprobe.plan import Plan
from gridprobe.registry import ENCODERS
from gridprobe.report.format import amount, clock
from gridprobe.selectors.base import Encoder, load_encoder
from gridprobe_find.build import IndexReport, build, meta_of
from gridprobe_find.find import FindOptions, FindResult, find_moments
from gridprobe_find.give import (
    answer_words,
    check_file_name,
    find_dict,
    moment_dict,
    save_clips,
    save_moments,
    sure_of,
    work_words,
)
from gridprobe_find.index import IndexedVideo, LibraryIndex, default_folder, open_index, read_meta
from gridprobe_find.verify import ASKED, question_about

EVERY = 2.0
USUAL_ENCODER = "siglip"


def index_options() -> list[Any]:
    """Where the index is, and what it is made with."""
    return [
        click.option("--index", "folder", type=FILE, metavar="DIR", help="The index; by default next to the cache."),
        click.option(
            "--encoder", metavar="NAME", shell_complete=names_of(ENCODERS), help="From gridprobe list encoders."
        ),
        click.option("--every", type=float, default=EVERY, show_default=True, metavar="S", help="Seconds per frame."),
    ]


@click.command(
    "index", cls=Verb, examples=("gridprobe index ~/Videos", "gridprobe index ~/Videos --encoder clip:./checkpoint")
)
@in_groups(
    {
        "What": [
            click.argument("paths", nargs=-1, type=FILE),
            *index_options(),
            click.option("--device", default="auto", show_default=True, metavar="NAME", help="auto, cpu or cuda."),
            click.option("--rebuild", is_flag=True, help="Make the index anew."),
            click.option("--watch", type=float, metavar="S", help="Look for new videos every S seconds until Ctrl-C."),
            click.option("--stats", is_flag=True, help="Print what is in the index."),
        ],
        "Output": [quiet_option, debug_option],
    }
)
def index(paths: tuple[Path, ...], folder: Path | None, **arguments: Any) -> None:
    """Index the videos at PATHS (files and folders) for gridprobe find; what is in the index already is not read."""
    folder = folder or default_folder()
    if not paths and not arguments["stats"]:
        raise UsageError("name videos or folders to index, or --stats")
    if paths:
        with progress("load", "hash", "videos", "frames indexed"):
            encoder, library = _open(folder, arguments["encoder"] or "", arguments, rebuild=arguments["rebuild"])
            problems = _index(library, encoder, paths, arguments["every"]).problems
            while arguments["watch"]:
                sleep(max(0.1, arguments["watch"]))
                _index(library, encoder, paths, arguments["every"], again=True)
    if arguments["stats"]:
        _print_stats(open_index(folder))
    if paths and problems:
        click.get_current_context().exit(1)


@click.command(
    cls=Verb,
    examples=(
        "gridprobe find 'a red triangle' gridprobe-library --preset gridworld",
        "gridprobe find 'a forklift without a driver' ~/Videos -m ./checkpoint --save moments.html",
    ),
)
@in_groups(
    {
        "What and where": [
            click.argument("query"),
            click.argument("paths", nargs=-1, type=FILE),
            *index_options(),
            click.option("--threshold", type=float, default=0.5, show_default=True, help="Least probability of yes."),
            click.option("--checks", type=int, default=64, show_default=True, help="Most segments the model checks."),
            click.option("--precision", type=float, default=0.5, show_default=True, help="Of borders, in seconds."),
            click.option("--question", "asked", default=ASKED, show_default=True, help="What the model is asked."),
            click.option("--verify/--no-verify", default=True, help="Without it similarity alone decides."),
        ],
        "Model": [option for place, option in enumerate(model_options()) if place != 1],
        "Method": method_options("k", selector=False)[:1] + method_options("k", selector=False)[-1:],
        "Output": [
            click.option("--json", "as_json", is_flag=True, help="A line of JSON per moment, then one of the work."),
            click.option("--save", type=FILE, multiple=True, help=".jsonl, .parquet, .edl, .otio or .html."),
            click.option("--clips", type=FILE, metavar="DIR", help="Save every moment as a silent .mp4."),
            quiet_option,
            debug_option,
        ],
    }
)
def find(query: str, paths: tuple[Path, ...], folder: Path | None, **arguments: Any) -> None:
    """Find all moments that show or say QUERY, in the videos at PATHS or in all of the index."""
    for path in arguments["save"]:
        check_file_name(path)
    names = ("threshold", "checks", "precision", "asked", "verify")
    options = FindOptions(**{name: arguments[name] for name in names})
    plan = _plan(arguments, query) if options.verify else None
    folder = folder or default_folder()
    with progress("load", "hash", "videos", "model"), watching(_announce):
        encoder, library = _open(folder, arguments["encoder"] or _implied(arguments), arguments, need=bool(paths))
        if paths:
            _index(library, encoder, paths, arguments["every"], again=True)
        scope = _scope(library.videos(), paths)
        loaded = plan.loaded() if plan else None
        introduce(loaded.model if loaded else None)
        result = find_moments(library, query, encoder=encoder, plan=loaded, videos=scope, options=options)
    _give(result, arguments)


def _plan(arguments: dict[str, Any], query: str) -> Plan:
    """The model that checks, and how it is shown frames; nothing is loaded yet."""
    model, _ = models_of({**arguments, "answer_model": None})
    if not arguments["model"]:
        imply([question_about(query, asked=arguments["asked"])])
    method = {name: arguments[name] for name in ("preset", "changes")}
    return options_of(method).changed(effort="quick").resolve(model=model)


def _implied(arguments: dict[str, Any]) -> str:
    """The embedded encoder goes with the embedded model, unless the index has another one."""
    return "" if arguments["model"] and not str(arguments["model"]).startswith("embedded") else "embedded"


def _open(
    folder: Path, name: str, arguments: dict[str, Any], *, rebuild: bool = False, need: bool = True
) -> tuple[Encoder, LibraryIndex]:
    """The encoder and the index; without a name the index says which encoder."""
    meta = None if rebuild else read_meta(folder)
    if meta is None and not need:
        open_index(folder)  # says that there is none
    chosen = (arguments["encoder"] or meta.encoder) if meta else (name or USUAL_ENCODER)
    options = {} if arguments["device"] == "auto" else {"device": arguments["device"]}
    encoder = load_encoder(chosen, cache=False, **options)
    return encoder, open_index(folder, meta_of(chosen, encoder), rebuild=rebuild)


def _index(
    library: LibraryIndex, encoder: Encoder, paths: Sequence[Path], every: float, *, again: bool = False
) -> IndexReport:
    """Index what is new, and say what was done; with `again`, only if there was something to do."""
    report = build(library, list(videos_at(paths)), encoder, every=every, roots=[p for p in paths if p.is_dir()])
    for problem in report.problems:
        print_error(problem)
    if report.new or report.dropped or not again:
        notice(
            f"gridprobe: {report.new} videos indexed ({report.seconds / 3600:.2f} hours, {report.frames} frames), "
            f"{report.same} were there, {report.dropped} are gone, {len(report.problems)} cannot be read"
        )
    return report


def videos_at(paths: Sequence[Path]) -> Iterator[Path]:
    """The files that are named, and the videos in folders and folders below; hidden ones are left out."""
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        count = 0
        for folder, below, files in os.walk(path):
            below[:] = sorted(name for name in below if not name.startswith("."))
            for name in sorted(files):
                if Path(name).suffix.lower() in VIDEO_SUFFIXES and not name.startswith("."):
                    count += 1
                    yield Path(folder, name)
        if not count:
            endings = ", ".join(sorted(VIDEO_SUFFIXES)[:6])
            notice(f"gridprobe: there is no video in {path} (files that end in {endings} and the like)")


def _scope(videos: list[IndexedVideo], paths: Sequence[Path]) -> list[IndexedVideo]:
    """The indexed videos at the paths; all without paths."""
    names = [os.path.abspath(path) for path in paths]
    chosen = [
        video
        for video in videos
        if not names or any(video.path == name or video.path.startswith(os.path.join(name, "")) for name in names)
    ]
    if not chosen:
        where = " ".join(map(str, paths)) or "the index"
        raise UsageError(f"there is no video to search in {where}; gridprobe index FOLDER adds some")
    return chosen


def _announce(stage: str, result: Any) -> None:
    if stage == "checks":
        notice(f"gridprobe: {result} segments to check, a model call each")


def _give(result: FindResult, arguments: dict[str, Any]) -> None:
    if arguments["as_json"]:
        for each in result.moments:
            print(json.dumps({"type": "moment", **moment_dict(each)}, allow_nan=False))
        summary = {name: value for name, value in find_dict(result).items() if name != "moments"}
        print(json.dumps({"type": "summary", **summary}, allow_nan=False))
    else:
        _print_table(result)
    for problem in () if arguments["as_json"] else result.problems:
        notice(f"gridprobe: {problem}")
    for path in arguments["save"]:
        save_moments(result, path)
        announce_saved("moments", path)
    if arguments["clips"]:
        for problem in save_clips(result, arguments["clips"]):
            print_error(problem)
        announce_saved("clips", arguments["clips"])


def _print_table(result: FindResult) -> None:
    console = stdout()
    if result.moments:
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), show_edge=False, pad_edge=False)
        for name in ("from", "to", "sure"):
            table.add_column(name, justify="right")
        table.add_column("video", overflow="fold")
        for each in result.moments:
            said = f"  “{each.text}”" if each.text else ""
            cells = (clock(each.start, tenths=True), clock(each.end, tenths=True), sure_of(each))
            table.add_row(*cells, Text(printable(os.path.relpath(each.video) + said)))
        console.print(table)
    if not is_quiet() or not result.moments:
        console.print(Text(answer_words(result)), soft_wrap=True)
    if not is_quiet():
        console.print(Text(work_words(result)), soft_wrap=True)


def _print_stats(library: LibraryIndex) -> None:
    videos, size = library.videos(), library.size()
    hours = sum({video.key: video.duration for video in videos}.values()) / 3600
    frames = sum({video.key: video.frames for video in videos}.values())
    per_hour = f", {amount(size / 1e6 / hours)} MB per hour" if hours else ""
    console = stdout()
    console.print(
        Text(
            f"{library.folder}: {len(videos)} videos, {hours:.2f} hours, {frames:,} frames, "
            f"{sum(video.lines for video in videos):,} spoken lines, {amount(size / 1e6)} MB{per_hour}; "
            f"encoder {library.meta.identity}"
        ),
        soft_wrap=True,
    )
