"""Evaluations: a benchmark asked to the end, whatever happens on the way; its scores and reports.

    plan = Options().resolve(model="embedded")
    run(benchmark, "runs/first", setup=plan, choice=Choice(limit=100))      # the same call again resumes it
    summary("runs/first")["all"]["accuracy"]

Nothing lost      A question's record is on the disk before the next is asked.
Nothing twice     What has a record is never asked again, whoever asks and with however many workers.
Nothing mixed     A folder has one spec and, by their weights, one pair of models; others are refused.
"""

import importlib
from typing import TYPE_CHECKING, Any

from gridprobe.registry import ASKING, EVALUATING, Entry

if TYPE_CHECKING:
    from gridprobe_eval.metrics import summary
    from gridprobe_eval.reader import Spec
    from gridprobe_eval.records import read_records
    from gridprobe_eval.runner import Counts, Evaluation, PoolOptions, run
    from gridprobe_eval.tasks import Choice, Shard

__all__ = ["Choice", "Counts", "Evaluation", "PoolOptions", "Shard", "Spec", "read_records", "run", "summary"]

_MODULES = {
    "metrics": "summary",
    "reader": "Spec",
    "records": "read_records",
    "runner": "Counts Evaluation PoolOptions run",
    "tasks": "Choice Shard",
}
"""Where the public names are. They are imported when they are first used, so that the entries below load at once."""


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names.split():
            return getattr(importlib.import_module(f"gridprobe_eval.{module}"), name)
    raise AttributeError(f"module 'gridprobe_eval' has no attribute {name!r}")


VIDEO_MME_V2 = Entry(
    "gridprobe_eval.benchmarks.video_mme_v2",
    "3200 questions in groups of four about 800 videos; up to 8 options; scored by group (Non-Lin)",
)
LONGVIDEOBENCH = Entry(
    "gridprobe_eval.benchmarks.longvideobench",
    "validation: 1337 questions about 753 videos of 8 s to an hour; up to 5 options; subtitles",
)
VIDEO_MME = Entry(
    "gridprobe_eval.benchmarks.video_mme",
    "2700 questions about 900 short, medium and long videos; 4 options; subtitles",
)
MLVU = Entry(
    "gridprobe_eval.benchmarks.mlvu",
    "dev: 2175 multiple-choice questions of seven tasks; the score is the mean over tasks",
)
LVBENCH = Entry(
    "gridprobe_eval.benchmarks.lvbench",
    "1549 questions about 103 videos of up to two hours; 4 options",
)
EGOSCHEMA = Entry(
    "gridprobe_eval.benchmarks.egoschema",
    "500 questions with public answers about three-minute first-person clips; 5 options",
)
NEXTQA = Entry(
    "gridprobe_eval.benchmarks.nextqa",
    "4996 validation questions about short clips: causal, temporal, descriptive; 5 options",
)
JSONL = Entry(
    "gridprobe_eval.benchmarks.jsonl",
    "your own: a file of JSON lines with id, video, question, options, answer, subtitles, bins",
)

PLAN = Entry(
    "gridprobe_eval.cli.plan:plan",
    "Estimate the cost of a question or of an evaluation.",
    section=ASKING,
)
EVAL = Entry(
    "gridprobe_eval.cli.evaluate:evaluate", "Ask all questions of a benchmark, or check its files.", section=EVALUATING
)
STATUS = Entry(
    "gridprobe_eval.cli.results:status", "Show the progress and the workers of an evaluation.", section=EVALUATING
)
SCORE = Entry(
    "gridprobe_eval.cli.results:score_runs",
    "Show accuracy and compute of evaluations; export them.",
    section=EVALUATING,
)
REPORT = Entry(
    "gridprobe_eval.cli.results:report",
    "Save evaluations as one HTML page.",
    section=EVALUATING,
)
CALIBRATE = Entry(
    "gridprobe_eval.cli.calibrate:calibrate", "Find how sure the overview must be to answer.", section=EVALUATING
)
