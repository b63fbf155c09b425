"""Evaluations: a benchmark asked to the end, whatever happens on the way.

    setup = make_setup(model="embedded", settings=Settings())
    run(benchmark, "runs/first", setup=setup, choice=Choice(limit=100))      # the same call again resumes it
    summary("runs/first")["all"]["accuracy"]

Nothing lost      A question's record is on the disk before the next is asked.
Nothing twice     What has a record is never asked again, whoever asks and with however many workers.
Nothing mixed     A folder has one spec and, by their weights, one pair of models; others are refused.
"""

from gridprobe.evaluation.metrics import summary
from gridprobe.evaluation.reader import Spec
from gridprobe.evaluation.records import read_records
from gridprobe.evaluation.run import Counts, Evaluation, PoolOptions, run
from gridprobe.evaluation.tasks import Choice, Shard

__all__ = ["Choice", "Counts", "Evaluation", "PoolOptions", "Shard", "Spec", "read_records", "run", "summary"]
