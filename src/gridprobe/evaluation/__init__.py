"""Evaluations: a benchmark asked to the end, whatever happens on the way.

    run(benchmark, "runs/first", model="embedded", limit=100)      # the same call again goes on where it was left
    summary("runs/first")["all"]["accuracy"]

Nothing lost      A question's record is on the disk before the next is asked.
Nothing twice     What has a record is never asked again, whoever asks and with however many workers.
Nothing mixed     A folder has one spec and, by their weights, one pair of models; others are refused.
"""

from gridprobe.evaluation.records import read_records
from gridprobe.evaluation.runner import Counts, Evaluation, run
from gridprobe.evaluation.spec import Spec
from gridprobe.evaluation.summary import summary

__all__ = ["Counts", "Evaluation", "Spec", "read_records", "run", "summary"]
