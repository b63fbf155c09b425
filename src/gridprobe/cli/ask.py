"""gridprobe ask: ask one or more questions about a video."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import click

from gridprobe._util import parse_json
from gridprobe.answer import Answer
from gridprobe.ask import Session
from gridprobe.benchmarks import parse_options
from gridprobe.cli.console import announce_saved, notice, printable, progress, quiet_option, speaks_unicode, stdout
from gridprobe.cli.help import Verb, names_of
from gridprobe.concurrency import in_sequence
from gridprobe.early_exit import check_threshold
from gridprobe.errors import DataError, UsageError
from gridprobe.importance import Fixed
from gridprobe.limits import LIMITS, UsageLimits, as_flag, learn_from
from gridprobe.models import LazyModel, Model, is_server
from gridprobe.open_ended import OpenWay
from gridprobe.options import PRESETS, Options, Plan, make_plan
from gridprobe.question import Question
from gridprobe.registry import MODELS, SELECTORS
from gridprobe.report import answer_view, save_map, save_report
from gridprobe.report.extracts import check_clip, check_folder, save_clip, save_frames
from gridprobe.report.files import check_writable
from gridprobe.report.picture import check_picture
from gridprobe.report.view import total_words
from gridprobe.subtitles import read_subtitles
from gridprobe.video import VideoLimits

__all__ = [
    "FILE",
    "MODEL_HELP",
    "WAY",
    "FramesType",
    "ask",
    "asked_models",
    "checked_outputs",
    "distinct",
    "given_settings",
    "imply",
    "introduce",
    "limit_options",
    "limits_of",
    "load_options",
    "model_option",
    "named_models",
    "output_options",
    "save_outputs",
    "subtitle_text",
    "usage_limits_of",
    "way_options",
]

# The options of `gridprobe ask` that save something, checked before any work starts.

FILE = click.Path(path_type=Path)
OUTPUTS = ("map", "report", "save_frames", "clip")


def output_options() -> list[Callable[[Any], Any]]:
    """What can be saved."""
    return [
        click.option("--map", type=FILE, help="Save the answer as one picture: .png or .jpg."),
        click.option("--report", type=FILE, help="Save all answers as a self-contained HTML page."),
        click.option(
            "--save-frames", type=FILE, metavar="DIR", help="Save the kept frames and a contact sheet as JPEG files."
        ),
        click.option(
            "--clip",
            type=FILE,
            help="Save the stretches around the evidence, without sound: .mp4, .mov or .mkv. They are copied, not "
            "encoded again, where the codec allows it, and then begin at the keyframe before.",
        ),
    ]


def checked_outputs(given: dict[str, Any], video: Path) -> dict[str, Path]:
    """The files and folders to write, by option; UsageError for one that cannot be written."""
    files: dict[str, Path] = {name: given[name] for name in OUTPUTS if given[name]}
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


# Options that limit what a question may take, shared by ask, eval and plan.

KINDS: dict[str, tuple[type, str]] = {
    "max_frames": (int, "N"),
    "max_tokens": (int, "N"),
    "max_tflops": (float, "X"),
    "max_seconds": (float, "S"),
    "max_gpu_memory": (float, "GB"),
}


def limit_options() -> list[Callable[[Any], Any]]:
    """An option for each limit of a question."""
    return [
        click.option(as_flag(name), name, type=kind, metavar=unit, help=f"{LIMITS[name].capitalize()}.")
        for name, (kind, unit) in KINDS.items()
    ]


def usage_limits_of(given: dict[str, Any]) -> dict[str, UsageLimits]:
    """The limits among the options as a setting; nothing if none was given."""
    limits = {name: given[name] for name in KINDS if given.get(name) is not None}
    return {"usage_limits": UsageLimits(**limits)} if limits else {}


MODEL_HELP = "Folder, Hugging Face id, http://HOST/v1#NAME, or embedded (the default; knows only gridworld)."
IMPLIED = (
    "gridprobe: no model was named, so the embedded model answers; it knows only gridworld (see gridprobe demo); "
    "to use another, set --model or GRIDPROBE_MODEL"
)


WAY = ("k", "frames", "effort", "refine", "probes", "sure", "rotations", "context", "open_way", "window")
"""The settings among `way_options`. An option that is not given is None and leaves the preset's value."""


class FramesType(click.ParamType[Any]):
    """A number of frames, or "auto" to let the importance map decide."""

    name = "auto|N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Apply the same check as the library."""
        if value == "auto":
            return value
        try:
            return Fixed(int(value)).frames
        except (ValueError, UsageError):
            self.fail(f'{value!r} is neither "auto" nor a whole number of at least 1', param, ctx)


class SureType(click.ParamType[Any]):
    """A confidence, or "calibrated" to look one up."""

    name = "calibrated|P"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Apply the same check as the library."""
        if value == "calibrated":
            return value
        try:
            number = float(value)
            check_threshold(number)
        except (ValueError, UsageError):
            self.fail(f'{value!r} is neither "calibrated" nor a number from 0 to 1', param, ctx)
        return number


def model_option(help: str = MODEL_HELP) -> Callable[[Any], Any]:
    """The option for the model."""
    names = names_of(MODELS)
    return click.option("-m", "--model", envvar="GRIDPROBE_MODEL", metavar="NAME", shell_complete=names, help=help)


def _selectors() -> str:
    return "; ".join(SELECTORS.listed()) + "."


def way_options() -> list[Callable[[Any], Any]]:
    """Options for models and frame selection, shared by ask, eval and plan."""
    return [
        click.option("--answer-model", metavar="NAME", help="Another model for the focused pass."),
        click.option(
            "--server", multiple=True, metavar="NAME=VALUE", help="For models on a server: patience, price_in, …"
        ),
        click.option(
            "--selector",
            metavar="NAME",
            default="gridprobe",
            show_default=True,
            shell_complete=names_of(SELECTORS),
            help=_selectors(),
        ),
        click.option("--k", type=int, show_default="the preset's, 12", help="Sample K² frames."),
        click.option("--frames", type=FramesType(), show_default="auto", help="How many frames to keep."),
        click.option(
            "--effort",
            type=click.Choice(["quick", "auto", "full", "focus"]),
            help="quick: the overview answers; auto: if it is sure; full: kept frames answer; focus: no overview.",
        ),
        click.option("--sure", type=SureType(), help="Confidence at which the overview's answer is taken."),
        click.option(
            "--refine", is_flag=True, default=None, help="Where the overview is not sure, sample hot stretches again."
        ),
        click.option(
            "--probes",
            type=click.Choice(["attention", "fresh"]),
            help="What the map is made from; fresh asks about rows and columns, as published.",
        ),
        click.option("--rotations", type=int, metavar="N", help="Average over N orders of the options."),
        click.option(
            "--context",
            type=click.Choice(["none", "small"]),
            help="What is shown next to the kept frames: nothing, or all others at the size of the probes.",
        ),
        click.option(
            "--open-way",
            type=click.Choice(get_args(OpenWay)),
            help="How questions without options are answered; see docs/open-questions.md.",
        ),
        click.option("--window", type=int, metavar="N", help="Show at most N frames in one pass, more in windows."),
        click.option("--preset", type=click.Choice(list(PRESETS)), default="default", show_default=True),
    ]


def load_options() -> list[Callable[[Any], Any]]:
    """Options for loading models and videos, shared by ask and compare."""
    return [
        click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:N."),
        click.option("--dtype", default="auto", show_default=True, help="auto, float32, bfloat16 or float16."),
        click.option("--attn", "attn_implementation", default="sdpa", show_default=True, help="Attention kernel."),
        click.option("--device-map", metavar="MAP", help="Distribute the model over devices, e.g. auto."),
        click.option("--quantization", type=click.Choice(["4bit", "8bit"]), help="Needs bitsandbytes."),
        click.option(
            "--decode-timeout",
            type=float,
            default=120.0,
            show_default=True,
            help="Limit in seconds.",
        ),
        click.option("--no-cache", is_flag=True, help="Do not use the frame cache on disk."),
    ]


def given_settings(given: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The settings among the options that were given."""
    return {name: given[name] for name in names if given[name] is not None}


def _options(command: Any) -> Any:
    """Add the options, in the order of the help page."""
    decorators = [
        click.argument("video", type=FILE),
        click.argument("question", required=False),
        click.option("-o", "--option", "options", multiple=True, metavar="TEXT", help="An option; 2 to 26, or none."),
        click.option("--questions", type=FILE, help="JSON Lines file: question; optional: options, id, answer."),
        click.option("--subtitles", type=FILE, help="An .srt, .vtt or .json subtitle file."),
        model_option(),
        *way_options(),
        *limit_options(),
        click.option("--order", type=click.Choice(["time", "importance"]), show_default="time"),
        click.option("--collage", is_flag=True, default=None, help="Show the kept frames as one 2048×2048 picture."),
        click.option("--seed", type=int, default=0, show_default=True, help="For the random selector."),
        *load_options(),
        click.option("--stream", type=int, metavar="N", help="Number of the video stream, if there are several."),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object per question."),
        click.option("-v", "--details", is_flag=True, help="Also show the map's shape, TFLOPs, tokens and models."),
        quiet_option,
        *output_options(),
    ]
    for decorator in reversed(decorators):
        command = decorator(command)
    return command


@click.command(
    cls=Verb,
    examples=(
        "gridprobe ask talk.mp4 'Which city comes first?' -o Oslo -o Rome -o Lima -m Qwen/Qwen3-VL-2B-Instruct",
        "gridprobe ask talk.mp4 'What does the sign say?' -m ./checkpoint --map answer.png",
        "gridprobe ask talk.mp4 --questions questions.jsonl -m http://localhost:8000/v1#NAME --json",
        "gridprobe ask talk.mp4 'Who scores?' -o red -o blue --max-seconds 20 --clip goal.mp4",
    ),
)
@_options
def ask(video: Path, question: str | None, options: tuple[str, ...], **given: Any) -> None:
    """Ask a QUESTION about VIDEO, with options or without, and see which frames the answer is based on."""
    files = checked_outputs(given, video)
    questions = _questions(question, options, given["questions"], given["subtitles"])
    if len(questions) > 1 and (single := [name for name in files if name != "report"]):
        option = single[0].replace("_", "-")
        raise UsageError(f"--{option} is for one answer, but there are {len(questions)} questions; use --report")
    setup = _setup(given)
    footage = setup.open(video)  # find a broken file before loading a large model
    if not given["model"]:
        imply(questions)
    answers, errors = [], []
    with progress():
        session = Session(footage, setup=setup, reuse=len(questions) > 1)
        introduce(session.setup.model, session.setup.answerer)
        outcomes = session.ask_each(questions, show_map=bool(files) or not given["as_json"])
        for outcome in in_sequence(outcomes):
            if error := outcome.exception():
                errors.append(error)
                continue
            answers.append(outcome.result())
            if not given["no_cache"]:
                learn_from(answers[-1], names=(setup.model.identity, setup.answerer.identity))
            if given["as_json"]:
                print(json.dumps(answers[-1].to_dict(), allow_nan=False), flush=True)
    if not given["as_json"]:
        _print(answers, all_details=given["details"])
    if len(answers) > 1 and (total := total_words(answers)):
        print(f"\n{total}", file=sys.stderr if given["as_json"] else sys.stdout)
    if answers:
        save_outputs(answers, video, files, limits=limits_of(given))
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


def limits_of(given: dict[str, Any]) -> VideoLimits:
    """The limits for decoding."""
    limits = VideoLimits(seconds=given["decode_timeout"])
    return replace(limits, cache=0) if given["no_cache"] else limits


def _setup(given: dict[str, Any]) -> Plan:
    """The setup that the options describe; models are not loaded."""
    changes = given_settings(given, (*WAY, "order", "collage", "seed", "stream")) | usage_limits_of(given)
    settings = Options.from_preset(given["preset"], **changes, limits=limits_of(given))
    model, answer_model = asked_models(given)
    return make_plan(model=model, answer_model=answer_model, selector=given["selector"], settings=settings)


def asked_models(given: dict[str, Any]) -> tuple[LazyModel, LazyModel | None]:
    """The models that the options name; the embedded one, where none is named, refuses what it does not know."""
    names = ("device", "dtype", "attn_implementation", "device_map", "quantization")
    options = tuple((name, given[name]) for name in names)
    implied = () if given["model"] else (("implied", True),)
    model, answer_model = named_models(given, given["model"] or "embedded", options)
    return replace(model, options=(*model.options, *implied)), answer_model


def named_models(
    given: dict[str, Any], model: str, options: tuple[tuple[str, Any], ...]
) -> tuple[LazyModel, LazyModel | None]:
    """The model and the answering model, which may be none, with the options for each."""
    served = tuple(parse_options(given["server"]).items())
    names = [name for name in (model, given["answer_model"]) if name]
    if served and not any(map(is_server, names)):
        raise UsageError(f"--server is for models on a server, such as http://localhost:8000/v1, not for {names[0]}")
    found = [LazyModel(name, (*options, *(served if is_server(name) else ()))) for name in names]
    return found[0], found[1] if len(found) > 1 else None


def _print(answers: list[Answer], *, all_details: bool) -> None:
    console = stdout()
    color = console.is_terminal and not console.no_color
    unicode = speaks_unicode(console)
    for number, answer in enumerate(answers):
        if number:
            console.print()
        hint = number == len(answers) - 1
        view = partial(answer_view, width=console.width, color=color, unicode=unicode)
        console.print(view(answer, hint=hint, all_details=all_details))


def _questions(
    text: str | None, options: tuple[str, ...], file: Path | None, subtitle_file: Path | None
) -> list[Question]:
    """The question on the command line, or the questions in a file."""
    subtitles = subtitle_text(subtitle_file)
    if (text is None) == (file is None):
        raise UsageError("give either one QUESTION, with -o options or without, or --questions FILE")
    if file is None:
        return [distinct(Question(text or "", options, subtitles=subtitles))]
    if options:
        raise UsageError("with --questions, options are read from the file; remove -o")
    return [_parse(file, number, line, subtitles) for number, line in _lines(file)]


def subtitle_text(file: Path | None) -> str:
    """All text of a subtitle file; a line on stderr says how many of its entries cannot be read."""
    if file is None:
        return ""
    found = read_subtitles(file)
    if found.skipped:
        notice(f"{found.skipped} entries of {file} are not timed lines; they were left out")
    return found.text


def distinct(question: Question) -> Question:
    """The question; UsageError if two of its options are the same text, since no answer could choose between them."""
    for first, second in question.repeated:
        raise UsageError(f"options {first} and {second} are the same text, {question.option(first)!r}; remove one")
    return question


def _lines(file: Path) -> list[tuple[int, str]]:
    try:
        lines = file.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {printable(str(file))}: {error}") from error
    found = [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    if not found:
        raise DataError(f"{printable(str(file))} contains no questions")
    return found


def _parse(file: Path, number: int, line: str, subtitles: str) -> Question:
    where = f"{printable(str(file))}, line {number}"
    try:
        row = parse_json(line)
    except ValueError as error:
        raise DataError(f"{where}: not a JSON object ({error})") from error
    known = {"question", "options", "id", "answer"}
    if not isinstance(row, dict) or "question" not in row:
        raise DataError(f'{where}: needs an object with a "question"')
    if set(row) - known:
        raise DataError(f"{where}: unknown key {sorted(set(row) - known)[0]!r}; known keys: {', '.join(sorted(known))}")
    options = row.get("options", [])
    if not isinstance(options, list):
        raise DataError(f'{where}: "options" must be a list of strings')
    answer, name = row.get("answer"), row.get("id")
    try:
        return distinct(Question(row["question"], options, answer=answer, id=name, subtitles=subtitles))
    except UsageError as error:
        raise DataError(f"{where}: {error}") from error
