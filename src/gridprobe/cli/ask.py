"""gridprobe ask: ask one or more questions about a video."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from gridprobe._util import parse_json, printable, watching
from gridprobe.answer import Answer
from gridprobe.ask import ask_many
from gridprobe.cli.console import (
    announce_saved,
    is_quiet,
    notice,
    print_error,
    progress,
    quiet_option,
    speaks_unicode,
    stdout,
)
from gridprobe.cli.help import Verb
from gridprobe.cli.options import (
    FILE,
    in_groups,
    limit_options,
    method_options,
    model_options,
    models_of,
    options_of,
    window_options,
)
from gridprobe.early_exit import calibration_folder
from gridprobe.errors import DataError, GridProbeError, UsageError
from gridprobe.limits import as_flag, learn_from
from gridprobe.models import Model
from gridprobe.options import PUBLISHED
from gridprobe.plan import Plan
from gridprobe.question import Question
from gridprobe.registry import MODELS
from gridprobe.report import answer_view, save_map, save_report
from gridprobe.report.html import check_writable
from gridprobe.report.picture import check_picture
from gridprobe.report.terminal import check_clip, check_folder, save_clip, save_frames, short_view, shows_colour
from gridprobe.report.view import AnswerView, total_words
from gridprobe.video import Video, VideoLimits
from gridprobe.video.pictures import SUFFIXES as PICTURE_SUFFIXES
from gridprobe.video.subtitles import Subtitles, read_named

# The options of `gridprobe ask` that save something, checked before any work starts.

OUTPUTS = ("map", "report", "save_frames", "clip")


def output_options() -> list[Callable[[Any], Any]]:
    """What can be saved."""
    return [
        click.option("--map", type=FILE, help="Save the answer as one picture: .png or .jpg."),
        click.option("--report", type=FILE, help="Save all answers as a self-contained HTML page."),
        click.option("--save-frames", type=FILE, metavar="DIR", help="Save the kept frames as JPEG files."),
        click.option("--clip", type=FILE, help="Save the evidence as a silent .mp4, .mov or .mkv."),
    ]


def checked_outputs(arguments: dict[str, Any], videos: Sequence[Path]) -> dict[str, Path]:
    """The files and folders to write, by option; UsageError for one that cannot be written."""
    files: dict[str, Path] = {name: arguments[name] for name in OUTPUTS if arguments[name]}
    named_file = ["subtitles"] * (arguments["subtitles"] not in (None, "auto", "none"))
    single = [name for name in (*files, *named_file) if name != "report"]
    if len(videos) > 1 and single:
        raise UsageError(
            f"{as_flag(single[0])} is for one video, but there are {len(videos)}; ask about each by itself"
        )
    for name, path in files.items():
        if name == "save_frames":
            check_folder(path)
        elif name == "clip":
            check_clip(path, videos[0])
        else:
            check_writable(path)
    if "map" in files:
        check_picture(files["map"])
    return files


def save_outputs(answers: Sequence[Answer], video: Path, files: dict[str, Path], *, limits: VideoLimits) -> None:
    """Save what was asked for, and print where it is."""
    if path := files.get("map"):
        save_map(answers, path)
        announce_saved("map", path)
    if path := files.get("report"):
        save_report(answers, path)
        announce_saved("report", path)
    if path := files.get("save_frames"):
        save_frames(answers[0], path)
        announce_saved("frames", path)
    if path := files.get("clip"):
        made = save_clip(answers[0], video, path, limits=limits)
        if made is None:
            notice("gridprobe: no clip was saved, as the answer does not point at any moment")
        else:
            announce_saved("clip" if made.copied else "clip, encoded again,", path)


IMPLIED = (
    "gridprobe: no model was named, so the embedded model answers; it knows only gridworld (see gridprobe demo); "
    "to use another, set --model or GRIDPROBE_MODEL"
)


@click.command(
    cls=Verb,
    examples=("gridprobe ask talk.mp4 'Which city is first?' -o Oslo -o Rome -m ./checkpoint",),
)
@in_groups(
    {
        "Question and model": [
            click.argument("words", nargs=-1, required=True, metavar="VIDEO... [QUESTION]"),
            click.option(
                "-o",
                "--option",
                "options",
                multiple=True,
                metavar="TEXT",
                help="An answer to choose from; 2 to 26, or none.",
            ),
            click.option("--questions", type=FILE, help="JSON Lines: question; optional: options, id, answer."),
            click.option("--subtitles", metavar="WORD", help="auto (those of the video), none, or a file."),
            click.option("--subtitle-language", default="", metavar="L", help="Such as en; also what is spoken."),
            click.option(
                "--transcribe", default="", metavar="NAME", help="Whisper folder or name, http://HOST/v1#NAME."
            ),
            *window_options(),
            *model_options(),
        ],
        "Method": method_options(),
        "Limits of a question": limit_options(),
        "Output": [
            click.option("--json", "as_json", is_flag=True, help="Print one JSON object per question."),
            click.option("-v", "--verbose", is_flag=True, help="Also show map, options, and what each stage took."),
            quiet_option,
            *output_options(),
        ],
    }
)
def ask(words: tuple[str, ...], options: tuple[str, ...], **arguments: Any) -> None:
    """Ask a QUESTION about a VIDEO; several VIDEOs, or a folder, give a line each."""
    videos, question = _videos_and_question(words, arguments["questions"])
    files = checked_outputs(arguments, videos)
    questions = _questions(question, options, arguments["questions"])
    subtitles = _subtitles(arguments)
    if len(questions) > 1 and (single := [name for name in files if name != "report"]):
        raise UsageError(
            f"{as_flag(single[0])} is for one answer, but there are {len(questions)} questions; use --report"
        )
    settings = options_of(arguments)
    model, answer_model = models_of(arguments)
    plan = settings.resolve(model=model, answer_model=answer_model, selector=arguments["selector"])
    several = len(videos) > 1
    opened = videos if several else [plan.open(videos[0])]  # find a broken file before loading a large model
    if not arguments["model"]:
        imply(questions, subtitles.text if isinstance(subtitles, Subtitles) else "")
    with progress(*(("load", "hash", "videos") if several else ())):
        answers, errors = _answers_and_errors(opened, questions, plan, {**arguments, "subtitles": subtitles})
    if not several and not arguments["as_json"]:
        _print(answers, verbose=arguments["verbose"])
    if len(answers) > 1 and not is_quiet() and (total := total_words(answers)):
        print(f"\n{total}", file=sys.stderr if arguments["as_json"] else sys.stdout)
    if answers:
        save_outputs(answers, videos[0], files, limits=settings.limits)
    if errors and several:
        click.get_current_context().exit(1)
    for error in dict.fromkeys(map(str, errors[1:])):
        print_error(error)
    if errors:
        raise errors[0]


def _answers_and_errors(
    videos: Sequence[Path | Video], questions: list[Question], plan: Plan, arguments: dict[str, Any]
) -> tuple[list[Answer], list[GridProbeError]]:
    """What comes of all questions about all videos. With several videos it is printed as it comes."""
    several, as_json = len(videos) > 1, arguments["as_json"]
    with watching(_say_profiled):
        loaded = plan.loaded()
    introduce(loaded.model, loaded.answerer)
    if loaded.profile == "auto" and loaded.overview is not None and calibration_folder() is not None:
        notice(f"gridprobe: cautious settings are used; to measure better ones: gridprobe profile {arguments['model']}")
    answers: list[Answer] = []
    errors: list[GridProbeError] = []
    show_map = not as_json or any(arguments[name] for name in OUTPUTS)
    ears = {name: arguments[name] for name in ("subtitles", "subtitle_language", "transcribe")}
    for video, outcome in ask_many(videos, questions, setup=loaded, show_map=show_map, **ears):
        if isinstance(outcome, GridProbeError):
            errors.append(outcome)
            if several:
                print_error(str(outcome) if str(video) in str(outcome) else f"{video}: {outcome}")
            continue
        if plan.sampling is not None and plan.sampling.limits.cache:
            learn_from(outcome, names=(plan.model.identity, plan.answerer.identity))
        if as_json:
            print(json.dumps(outcome.to_dict(), allow_nan=False), flush=True)
        elif several:
            _print_line(str(video), outcome, with_question=len(questions) > 1, verbose=arguments["verbose"])
        if not several or arguments["report"]:  # an answer holds its frames
            answers.append(outcome)
    return answers, errors


def _say_profiled(stage: str, result: Any) -> None:
    if stage == "profile":
        notice(f"gridprobe: this model was measured, once: {result}; --profile off declines")


def _print_line(video: str, answer: Answer, *, with_question: bool, verbose: bool) -> None:
    """One of several videos in a line: its name, the answer, how sure, and where; with --verbose everything follows."""
    console, view = stdout(), AnswerView(answer)
    parts = [video, answer.question.text if with_question else "", f"{view.text} {view.sure}", view.where]
    if is_quiet():
        parts[2:] = [view.text]
    line = Text(printable("  ".join(filter(None, parts))))
    if console.is_terminal:
        console.print(line, no_wrap=True, overflow="ellipsis")
    else:
        console.print(line, soft_wrap=True)
    if verbose:
        _print([answer], verbose=True)
        console.print()


def _subtitles(arguments: dict[str, Any]) -> str | Subtitles:
    """What to show of what is said; a file is read now. The embedded model and published methods never saw any."""
    name = arguments["subtitles"] or ("none" if not arguments["model"] or arguments["preset"] in PUBLISHED else "auto")
    if name in ("auto", "none"):
        return str(name)
    return subtitles_in(Path(name))


def imply(questions: list[Question], subtitles: str = "") -> None:
    """Raise UsageError for words that the embedded model does not know; otherwise print that it is used."""
    vocabulary = MODELS.resolve("embedded")[0].Vocabulary.embedded()
    for text in (*(question.prompt for question in questions), subtitles):
        vocabulary.require(text)
    notice(IMPLIED)


def introduce(*models: Model | None) -> None:
    """Print what is known about models on a server, once."""
    for model in {id(each): each for each in models}.values():
        if model is not None and (summary := model.capabilities.summary):
            notice(f"gridprobe: {summary}")


def _print(answers: list[Answer], *, verbose: bool) -> None:
    console = stdout()
    color = shows_colour(console)
    unicode = speaks_unicode(console)
    for number, answer in enumerate(answers):
        if is_quiet() and not verbose:
            console.print(Text(printable(AnswerView(answer).text)), soft_wrap=True)
            continue
        if number:
            console.print()
        if verbose:
            view = answer_view(answer, width=console.width, color=color, unicode=unicode, all_details=True)
        else:
            view = short_view(answer, width=console.width, color=color, unicode=unicode)
        console.print(view)


VIDEO_SUFFIXES = frozenset(
    {".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".wmv", ".asf", ".mpg", ".mpeg", ".ts", ".mts", ".m2ts"}
    | {".flv", ".ogv", ".3gp", ".h264", ".hevc", ".gif", ".apng"}
)
"""What counts as a video in a folder; a file that is named is opened whatever its suffix."""
ONE_QUESTION = "give either one QUESTION, with -o options or without, or --questions FILE"


def _videos_and_question(words: Sequence[str], questions: Path | None) -> tuple[list[Path], str | None]:
    """The arguments: the last one is the question, unless a file has the questions."""
    names, question = (words, None) if questions else (words[:-1], words[-1])
    if not names:
        raise UsageError(ONE_QUESTION)
    missing = [name for name in names[1:] if not os.path.exists(name)]
    if missing and len(missing) == len(names) - 1:  # words without quotation marks, or a question and a file of them
        raise UsageError(f"{ONE_QUESTION}; there is no video {missing[0]!r}")
    return [video for name in names for video in _videos_in(Path(name))], question


def _videos_in(path: Path) -> list[Path]:
    """The videos of a folder by name; the path itself if it is a file or a folder of pictures."""
    files = [each for each in sorted(path.glob("[!.]*")) if each.is_file()] if path.is_dir() else []
    videos = [file for file in files if file.suffix.lower() in VIDEO_SUFFIXES]
    pictures = [file for file in files if file.suffix.lower() in PICTURE_SUFFIXES]
    if videos and pictures:
        both = f"{path} holds pictures and videos; the pictures are taken, as one video"
        notice(f"gridprobe: {both}; for the videos write {path / '*'}{videos[0].suffix}")
    return videos if videos and not pictures else [path]


def _questions(text: str | None, options: tuple[str, ...], file: Path | None) -> list[Question]:
    """The question on the command line, or the questions in a file."""
    if (text is None) == (file is None):
        raise UsageError(ONE_QUESTION)
    if file is None:
        return [Question(text or "", options).distinct()]
    if options:
        raise UsageError("with --questions, options are read from the file; remove -o")
    return [_parse(file, number, line) for number, line in _lines(file)]


def subtitles_in(file: Path | None) -> Subtitles:
    """The lines of a subtitle file; what cannot be read in it is said on stderr."""
    subtitles = Subtitles(()) if file is None else read_named(file)
    for note in subtitles.notes:
        notice(note)
    return replace(subtitles, notes=())


def _lines(file: Path) -> list[tuple[int, str]]:
    try:
        lines = file.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {printable(str(file))}: {error}") from error
    numbered_lines = [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    if not numbered_lines:
        raise DataError(f"{printable(str(file))} contains no questions")
    return numbered_lines


def _parse(file: Path, number: int, line: str) -> Question:
    where = f"{printable(str(file))}, line {number}"
    try:
        row = parse_json(line)
    except ValueError as error:
        raise DataError(f"{where}: not a JSON object ({error})") from error
    keys = {"question", "options", "id", "answer"}
    if not isinstance(row, dict) or "question" not in row:
        raise DataError(f'{where}: needs an object with a "question"')
    if set(row) - keys:
        raise DataError(f"{where}: unknown key {sorted(set(row) - keys)[0]!r}; known keys: {', '.join(sorted(keys))}")
    options = row.get("options", [])
    if not isinstance(options, list):
        raise DataError(f'{where}: "options" must be a list of strings')
    answer, name = row.get("answer"), row.get("id")
    try:
        return Question(row["question"], options, answer=answer, id=name).distinct()
    except UsageError as error:
        raise DataError(f"{where}: {error}") from error
