"""gridprobe eval: ask all questions of a benchmark; repeating the command resumes the run."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from gridprobe._util import Watcher, printable, watching
from gridprobe.cli.console import (
    LINE_EVERY_SECONDS,
    debug_option,
    is_quiet,
    notice,
    progress,
    quiet_option,
    stdout,
    stopping,
)
from gridprobe.cli.help import Verb, names_of
from gridprobe.cli.options import (
    FILE,
    in_groups,
    limit_options,
    method_options,
    model_options,
    models_of,
    options_of,
    parse_options,
)
from gridprobe.errors import DataError, UsageError
from gridprobe.plan import Plan
from gridprobe.question import TEMPLATES
from gridprobe.registry import BENCHMARKS
from gridprobe_eval import Evaluation, PoolOptions
from gridprobe_eval.benchmarks import SUBTITLE_MODES, Benchmark, DataProblem, Item, load_benchmark
from gridprobe_eval.benchmarks.verify import KINDS, Verified, verify
from gridprobe_eval.folder import QUESTION_TIMEOUT, START_TIMEOUT, Timeouts
from gridprobe_eval.reader import SPEC_FILE
from gridprobe_eval.runner import MAX_FAILURES, RunState
from gridprobe_eval.tasks import Choice, Shard, Totals

# Options that `eval`, `plan` and `calibrate` share: the benchmark, the questions, the models and the settings.


def benchmark_options() -> list[Callable[[Any], Any]]:
    """Which questions of a benchmark, and how they are put."""
    return [
        click.option("--with", "options", multiple=True, metavar="NAME=VALUE", help="An option of the benchmark."),
        click.option("--subtitles", type=click.Choice(SUBTITLE_MODES), default="none", show_default=True),
        click.option("--template", type=click.Choice(list(TEMPLATES)), help="Prompt, in place of the benchmark's."),
        click.option("--ids", metavar="FILE|A,B,…", help="Ask only these questions."),
    ]


def choice_options() -> list[Callable[[Any], Any]]:
    """How many of the questions."""
    return [
        click.option("--limit", type=int, metavar="N", help="Ask N questions, evenly from the first bin's values."),
        click.option("--seed", type=int, default=0, show_default=True, help="Which ones --limit asks."),
    ]


def eval_arguments(name: str, data: Path, arguments: dict[str, Any]) -> tuple[Benchmark, Plan, Choice]:
    """Turn names into values: read the benchmark, make the plan and say which questions; models are not loaded."""
    benchmark = load_benchmark(name, data, **parse_options(arguments["options"]))
    model = arguments["model"] or benchmark.model
    if not model:
        raise UsageError(f"name the model that is to answer {name} with --model or GRIDPROBE_MODEL")
    probing, answering = models_of(arguments, model=model)
    plan = options_of(arguments).resolve(model=probing, answer_model=answering, selector=arguments["selector"])
    shard = Shard.parse(arguments.get("shard", "1/1"))
    choice = Choice(limit=arguments["limit"], ids=_ids(arguments["ids"]), seed=arguments["seed"], shard=shard)
    return benchmark, plan, choice


def _ids(text: str | None) -> tuple[str, ...] | None:
    """Ids from a file with one id per line, or from a comma-separated list."""
    if text is None:
        return None
    file = Path(text)
    try:
        names = file.read_text(encoding="utf-8").splitlines() if file.is_file() else text.split(",")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the ids in {text}: {error}") from error
    return tuple(dict.fromkeys(name.strip() for name in names if name.strip()))


# The progress of an evaluation: shown at once, with what it is doing, the accuracy until now and the time left.

WIDE = 110
"""On a terminal with that many columns there is room for a long bar and whole names."""


def span(seconds: float) -> str:
    """A time in words: "42 s", "12 min" or "2 h 5 min"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


class RunPace:
    """How long the rest takes, from the questions that this process has asked; those before a resume do not count."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._begun = clock, clock()
        self._first: tuple[float, int] | None = None

    def words(self, state: RunState) -> str:
        """For example "accuracy 61.5%, about 12 min left"."""
        now = self._clock()
        if self._first is None and state.doing.startswith("asking"):
            self._first = now, state.done
        words = [] if state.accuracy is None else [f"accuracy {100 * state.accuracy:.1f}%"]
        if self._first is not None and state.total > state.done > self._first[1]:
            each = (now - self._first[0]) / (state.done - self._first[1])
            words.append(f"about {span(each * (state.total - state.done))} left")
        return ", ".join(words)

    @property
    def elapsed(self) -> float:
        """Seconds since the command was started."""
        return self._clock() - self._begun


@contextmanager
def run_progress() -> Iterator[None]:
    """Show the progress of the evaluation inside: a bar on a terminal, otherwise plain lines, on stderr."""
    if is_quiet():
        yield
    elif sys.stderr.isatty():
        with _bar() as bar, watching(_on_bar(bar)):
            yield
    else:
        with watching(in_plain_lines()):
            yield


def _bar() -> Progress:
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20 if console.width >= WIDE else 8),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[pace]}"),
    )
    return Progress(*columns, console=console, transient=True)


def _on_bar(bar: Progress) -> Watcher:
    """What the run is doing, on the bar."""
    pace, room = RunPace(), 36 if bar.console.width >= WIDE else 20
    task = bar.add_task("opening the benchmark", total=None, pace="")

    def watch(stage: str, state: Any) -> None:
        if isinstance(state, RunState):
            doing = state.doing if len(state.doing) <= room else f"{state.doing[: room - 1]}…"
            bar.update(task, description=doing, completed=state.done, total=state.total, pace=pace.words(state))

    return watch


def in_plain_lines(clock: Callable[[], float] = time.monotonic) -> Watcher:
    """The first steps as they come, then a line every few seconds."""
    pace, due, asked = RunPace(clock), 0.0, False

    def watch(stage: str, state: Any) -> None:
        nonlocal due, asked
        if not isinstance(state, RunState):
            return
        words = pace.words(state)
        if not asked and not state.doing.startswith("ask"):
            notice(state.doing)
            return
        asked = True
        if state.doing.startswith("asked") and clock() >= due:
            due = clock() + LINE_EVERY_SECONDS
            parts = [f"{state.done} of {state.total} questions", words, f"{span(pace.elapsed)} elapsed"]
            notice(", ".join(filter(None, parts)))

    return watch


@click.command(
    "eval",
    cls=Verb,
    examples=(
        "gridprobe eval gridworld --data data/gridworld --out runs/first --limit 20",
        "gridprobe eval mlvu --data data/mlvu --out runs/mlvu -m Qwen/Qwen3-VL-2B-Instruct --workers 2",
        "gridprobe eval jsonl --data mine.jsonl --out runs/mine -m ./checkpoint --selector uniform --frames 8",
        "gridprobe eval mlvu --data data/mlvu --check",
    ),
)
@in_groups(
    {
        "Benchmark": [
            click.argument("benchmark", shell_complete=names_of(BENCHMARKS)),
            click.option("--data", type=FILE, required=True, help="Folder of the benchmark's files."),
            click.option("--out", type=FILE, help="Folder of the run."),
            *benchmark_options(),
            *choice_options(),
            click.option(
                "--shard", default="1/1", show_default=True, metavar="I/N", help="Part I of N; may run at once."
            ),
            click.option(
                "--check", is_flag=True, help="Check rows, videos and subtitles instead; exit code 1 if broken."
            ),
            click.option("--deep", is_flag=True, help="With --check: also decode frames throughout each video."),
            click.option("--no-subtitles", is_flag=True, help="With --check: leave subtitle files out."),
        ],
        "Model": model_options("Folder, hub id, http://HOST/v1#NAME or embedded."),
        "Method": method_options(),
        "Limits of a question": limit_options(),
        "Limits and workers of the run": [
            click.option("--total-tokens", type=int, metavar="N", help="The most tokens of all questions together."),
            click.option("--total-tflops", type=float, metavar="X", help="The most TFLOPs of all questions together."),
            click.option(
                "--total-seconds", type=float, metavar="S", help="The most seconds of all questions together."
            ),
            click.option(
                "--workers", type=int, metavar="N", help="Processes; by default 1, with Ray one for each GPU."
            ),
            click.option("--engine", type=click.Choice(["local", "ray"]), default="local", show_default=True),
            click.option(
                "--timeout", type=float, default=QUESTION_TIMEOUT, show_default=True, help="Seconds without a message."
            ),
            click.option(
                "--start-timeout", type=float, default=START_TIMEOUT, show_default=True, help="While loading."
            ),
            click.option(
                "--max-failures", type=float, default=MAX_FAILURES, show_default=True, help="A number, or a share < 1."
            ),
            click.option("--retry-failed", is_flag=True, help="Ask those again that failed before."),
            click.option("--redo-changed", is_flag=True, help="Ask those again whose video or row was changed."),
        ],
        "Output": [
            click.option("--json", "as_json", is_flag=True, help="Print the summary as one JSON object."),
            quiet_option,
            debug_option,
        ],
    }
)
def evaluate(benchmark: str, data: Path, *, out: Path | None, as_json: bool, **arguments: Any) -> None:
    """Ask all questions of BENCHMARK and record each answer. Repeating the command resumes the run."""
    if arguments["check"]:
        sys.exit(_check(benchmark, data, arguments, as_json=as_json))
    if out is None:
        raise UsageError("name the folder of the run with --out, or check the files of the benchmark with --check")
    with stopping(), run_progress():
        questions, plan, choice = eval_arguments(benchmark, data, arguments)
        timeouts = Timeouts(arguments["timeout"], arguments["start_timeout"])
        evaluation = Evaluation(
            questions,
            out,
            setup=plan,
            choice=choice,
            pool=PoolOptions(arguments["workers"], arguments["engine"], timeouts),
            totals=Totals(arguments["total_tokens"], arguments["total_tflops"], arguments["total_seconds"]),
            **{name: arguments[name] for name in ("subtitles", "max_failures", "retry_failed", "redo_changed")},
        )
        check_data(questions, evaluation.items, begun=(out / SPEC_FILE).exists())
        with evaluation:
            _announce(evaluation)
            try:
                result = evaluation.run()
            except KeyboardInterrupt:
                notice("answers until now are saved; the same command resumes the run")
                raise
    if as_json:
        print(json.dumps(result, allow_nan=False))
    else:
        _print(result, out)


def check_data(benchmark: Benchmark, items: Sequence[Item], *, begun: bool = False) -> None:
    """Print how many rows and videos cannot be used, and the first; DataError if no video of a new run is there."""
    if benchmark.problems:
        notice(benchmark.unusable)
    videos: dict[Path, Item] = {}
    for item in () if benchmark.generated else items:
        videos.setdefault(item.video, item)
    missing = [item for video, item in videos.items() if not os.path.exists(video)]
    if not missing:
        return
    first = f"{benchmark.place(missing[0])} names {missing[0].video}"
    if len(missing) == len(videos) and not begun:
        raise DataError(f"none of the {len(videos)} videos is there: {first}; check the names and --data")
    notice(f"{len(missing)} of {len(videos)} videos are not there, so questions about them fail: {first}")


def _announce(evaluation: Evaluation) -> None:
    """Print what the run will do, before it starts."""
    benchmark, videos = evaluation.benchmark, len({str(item.video) for item in evaluation.items})
    part = "" if evaluation.shard.count == 1 else f", shard {evaluation.shard.number}/{evaluation.shard.count}"
    total = f"{len(evaluation.items)} of {len(benchmark.items)} questions about {videos} videos{part}"
    lines = [f"{benchmark.version}: {total}"]
    if evaluation.other_versions:
        old = ", ".join(f"{name} {version}" for name, version in evaluation.other_versions.items())
        lines.append(f"note: this run was begun with {old}")
    if any(evaluation.rows):
        lines.append(f"rows since the run was begun: {evaluation.rows}; the changed ones are asked again")
    lines += [f"replaced video, asked about again: {video}" for video in evaluation.changed]
    lines += [f"damaged record, asked again: {damage}" for damage in evaluation.damage]
    for line in (*lines, str(evaluation.counts)):
        notice(line)


def _print(result: dict[str, Any], out: Path) -> None:
    overall = result["all"]
    withheld = bool(overall["withheld"]) and overall["accuracy"] is None
    score = "no answers" if overall["accuracy"] is None else f"accuracy {overall['accuracy']:.1%}"
    right = f"{overall['right']} right of {overall['answered']} answered"
    if withheld:
        score, right = "no accuracy, because the answers are withheld", f"{overall['answered']} answered"
    counts = f"{right}, {overall['failed']} failed, {overall['missing']} missing"
    overview = f"; {overall['overview']} from the overview" if overall["overview"] else ""
    kept = "" if overall["kept"] is None else f"{overview}; {overall['kept']:.1f} frames kept on average"
    for sentence in result.get("stopped", ()):
        stdout().print(Text(f"{sentence}; repeat the command with a larger total to go on"))
    stdout().print(Text(f"{score}: {counts}{kept}; see gridprobe score {printable(str(out))}"))


# eval --check: whether the files of a benchmark are whole.

SHOWN = 10
"""The most findings of one kind that are printed; --json lists all."""


def _check(name: str, data: Path, arguments: dict[str, Any], *, as_json: bool) -> int:
    """Print what is missing or broken; 1 if anything is."""
    with progress():
        verification = verify(
            name,
            data,
            parse_options(arguments["options"]),
            deep=arguments["deep"],
            subtitles=not arguments["no_subtitles"],
        )
    if as_json:
        print(json.dumps(verification.to_dict(), allow_nan=False))
    else:
        _print_findings(verification)
    return 1 if verification.findings else 0


def _print_findings(found: Verified) -> None:
    console = stdout()
    release = f" (as released: {found.released_rows})" if found.released_rows is not None else ""
    some = 0 < found.without_subtitles < found.videos
    without = f", {found.without_subtitles} of them without subtitles" if some else ""
    console.print(Text(found.version))
    console.print(Text(f"{found.rows} rows{release}, {found.questions} questions, {found.videos} videos{without}"))
    for kind, meaning in KINDS.items():
        _print_kind(meaning, [each for each in found.findings if each.kind == kind])
    if not found.findings:
        console.print(Text("no problems found"))


def _print_kind(meaning: str, findings: list[DataProblem]) -> None:
    if not findings:
        return
    console = stdout()
    console.print(Text(f"{len(findings)} × {meaning}:"))
    for each in findings[:SHOWN]:
        console.print(Text(printable(f"  {each.where}: {each.what}")), soft_wrap=True)
    if len(findings) > SHOWN:
        console.print(Text(f"  … and {len(findings) - SHOWN} more; --json lists all"))
