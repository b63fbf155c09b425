"""gridprobe ask: ask one or more questions about a video."""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from gridprobe._util import parse_json, printable
from gridprobe.answer import Answer
from gridprobe.ask import Session
from gridprobe.cli.console import announce_saved, is_quiet, notice, progress, quiet_option, speaks_unicode, stdout
from gridprobe.cli.help import Verb
from gridprobe.cli.options import (
    FILE,
    in_groups,
    limit_options,
    method_options,
    model_options,
    models_of,
    options_of,
)
from gridprobe.concurrency import in_sequence
from gridprobe.errors import DataError, UsageError
from gridprobe.limits import learn_from
from gridprobe.models import Model
from gridprobe.question import Question
from gridprobe.registry import MODELS
from gridprobe.report import answer_view, save_map, save_report
from gridprobe.report.html import check_writable
from gridprobe.report.picture import check_picture
from gridprobe.report.terminal import check_clip, check_folder, save_clip, save_frames, short_view, shows_colour
from gridprobe.report.view import AnswerView, total_words
from gridprobe.video import VideoLimits
from gridprobe.video.subtitles import read_subtitles

# The options of `gridprobe ask` that save something, checked before any work starts.

OUTPUTS = ("map", "report", "save_frames", "clip")


def output_options() -> list[Callable[[Any], Any]]:
    """What can be saved."""
    return [
        click.option("--map", type=FILE, help="Save the answer as one picture: .png or .jpg."),
        click.option("--report", type=FILE, help="Save all answers as a self-contained HTML page."),
        click.option("--save-frames", type=FILE, metavar="DIR", help="Save the kept frames as JPEG files."),
        click.option("--clip", type=FILE, help="Save the evidence as a video without sound: .mp4, .mov or .mkv."),
    ]


def checked_outputs(arguments: dict[str, Any], video: Path) -> dict[str, Path]:
    """The files and folders to write, by option; UsageError for one that cannot be written."""
    files: dict[str, Path] = {name: arguments[name] for name in OUTPUTS if arguments[name]}
    for name, path in files.items():
        if name == "save_frames":
            check_folder(path)
        elif name == "clip":
            check_clip(path, video)
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
    examples=(
        "gridprobe ask talk.mp4 'Which city comes first?' -o Oslo -o Rome -o Lima -m Qwen/Qwen3-VL-2B-Instruct",
        "gridprobe ask talk.mp4 'What does the sign say?' -m ./checkpoint --map answer.png",
        "gridprobe ask talk.mp4 --questions questions.jsonl -m http://localhost:8000/v1#NAME --json",
        "gridprobe ask talk.mp4 'Who scores?' -o red -o blue --max-seconds 20 --clip goal.mp4",
    ),
)
@in_groups(
    {
        "Question": [
            click.argument("video", type=FILE),
            click.argument("question", required=False),
            click.option("-o", "--option", "options", multiple=True, metavar="TEXT", help="2 to 26 of them, or none."),
            click.option("--questions", type=FILE, help="JSON Lines file: question; optional: options, id, answer."),
            click.option("--subtitles", type=FILE, help="An .srt, .vtt or .json subtitle file."),
        ],
        "Model": model_options(),
        "Method": method_options(),
        "Limits of a question": limit_options(),
        "Output": [
            click.option("--json", "as_json", is_flag=True, help="Print one JSON object per question."),
            click.option(
                "-v", "--verbose", is_flag=True, help="Also show the map, the options, and what each stage took."
            ),
            quiet_option,
            *output_options(),
        ],
    }
)
def ask(video: Path, question: str | None, options: tuple[str, ...], **arguments: Any) -> None:
    """Ask a QUESTION about VIDEO, with options or without, and see which frames the answer is based on."""
    files = checked_outputs(arguments, video)
    questions = _questions(question, options, arguments["questions"], arguments["subtitles"])
    if len(questions) > 1 and (single := [name for name in files if name != "report"]):
        option = single[0].replace("_", "-")
        raise UsageError(f"--{option} is for one answer, but there are {len(questions)} questions; use --report")
    settings = options_of(arguments)
    model, answer_model = models_of(arguments)
    plan = settings.resolve(model=model, answer_model=answer_model, selector=arguments["selector"])
    opened = plan.open(video)  # find a broken file before loading a large model
    if not arguments["model"]:
        imply(questions)
    answers, errors = [], []
    with progress():
        session = Session(opened, setup=plan, reuse=len(questions) > 1)
        introduce(session.setup.model, session.setup.answerer)
        outcomes = session.ask_each(questions, show_map=bool(files) or not arguments["as_json"])
        for outcome in in_sequence(outcomes):
            if error := outcome.exception():
                errors.append(error)
                continue
            answers.append(outcome.result())
            if settings.limits.cache:
                learn_from(answers[-1], names=(plan.model.identity, plan.answerer.identity))
            if arguments["as_json"]:
                print(json.dumps(answers[-1].to_dict(), allow_nan=False), flush=True)
    if not arguments["as_json"]:
        _print(answers, verbose=arguments["verbose"])
    if len(answers) > 1 and not is_quiet() and (total := total_words(answers)):
        print(f"\n{total}", file=sys.stderr if arguments["as_json"] else sys.stdout)
    if answers:
        save_outputs(answers, video, files, limits=settings.limits)
    if errors:
        raise errors[0]


def imply(questions: list[Question]) -> None:
    """Raise UsageError for words that the embedded model does not know; otherwise print that it is used."""
    vocabulary = MODELS.resolve("embedded")[0].Vocabulary.embedded()
    for question in questions:
        vocabulary.require(question.prompt)
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


def _questions(
    text: str | None, options: tuple[str, ...], file: Path | None, subtitle_file: Path | None
) -> list[Question]:
    """The question on the command line, or the questions in a file."""
    subtitles = subtitle_text(subtitle_file)
    if (text is None) == (file is None):
        raise UsageError("give either one QUESTION, with -o options or without, or --questions FILE")
    if file is None:
        return [Question(text or "", options, subtitles=subtitles).distinct()]
    if options:
        raise UsageError("with --questions, options are read from the file; remove -o")
    return [_parse(file, number, line, subtitles) for number, line in _lines(file)]


def subtitle_text(file: Path | None) -> str:
    """All text of a subtitle file; a line on stderr says how many of its entries cannot be read."""
    if file is None:
        return ""
    subtitles = read_subtitles(file)
    if subtitles.skipped:
        notice(f"{subtitles.skipped} entries of {file} are not timed lines; they were left out")
    return subtitles.text


def _lines(file: Path) -> list[tuple[int, str]]:
    try:
        lines = file.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {printable(str(file))}: {error}") from error
    numbered_lines = [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    if not numbered_lines:
        raise DataError(f"{printable(str(file))} contains no questions")
    return numbered_lines


def _parse(file: Path, number: int, line: str, subtitles: str) -> Question:
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
        return Question(row["question"], options, answer=answer, id=name, subtitles=subtitles).distinct()
    except UsageError as error:
        raise DataError(f"{where}: {error}") from error
