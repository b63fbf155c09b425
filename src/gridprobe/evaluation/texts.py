"""Answers in words: how well they match the right texts, and what a judge says of them.

Three scores, from strict to lenient. Exact match, which decides `right`, compares without case, punctuation and
articles, and numbers as numbers. Token F1 compares the words. A judge is a model that is asked, for every answer that
is not an exact match, whether it says the same as the right one (`PROMPT`); its verdicts are kept in the run folder.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from gridprobe.backends import Backend, ScoreRequest
from gridprobe.benchmarks import Metric
from gridprobe.drafts import exact_match
from gridprobe.errors import DataError
from gridprobe.evaluation.disk import write_whole
from gridprobe.evaluation.reader import Result, Run
from gridprobe.files import parse_json
from gridprobe.progress import report
from gridprobe.question import Question

__all__ = ["PROMPT", "judge", "text_metrics", "verdicts"]

PROMPT = (
    "A question about a video was answered.\nQuestion: {question}\nRight answer: {right}\nGiven answer: {given}\n"
    "Does the given answer say the same as the right answer?"
)
"""What a judge is asked, with the options yes and no."""
VERDICTS = "verdicts.json"
BATCH = 32


def text_metrics(run: Run) -> list[Metric]:
    """Token F1, and the share that each judge finds right; nothing for runs whose questions have options."""
    scored = [(each.group, 100.0 * each.f1) for each in run.results if each.f1 is not None]
    if not scored:
        return []
    found = [Metric("token F1", _mean(scored), len(scored), "", [scored])]
    for name, judged in verdicts(run.path).items():
        known = [(each.group, 100.0 * _accepted(each, judged)) for each in run.results if _is_judged(each, judged)]
        if known:
            missing = len(scored) - len(known)
            note = f"{missing} of {len(scored)} not judged" if missing else ""
            found.append(Metric(f"judged by {name.partition('@')[0]}", _mean(known), len(known), note, [known]))
    return found


def _mean(scored: list[tuple[str, float]]) -> float:
    return sum(score for _, score in scored) / len(scored)


def _is_judged(result: Result, judged: Mapping[str, float]) -> bool:
    return result.f1 is not None and (bool(result.right) or result.answered is None or _key(result) in judged)


def _accepted(result: Result, judged: Mapping[str, float]) -> bool:
    return bool(result.right) or (result.answered is not None and judged[_key(result)] > 0.5)


def _key(result: Result) -> str:
    """A verdict is about one answer: another answer to the same question needs another verdict."""
    return json.dumps([result.id, result.answered.choice if result.answered else None], ensure_ascii=False)


def verdicts(folder: Path) -> dict[str, dict[str, float]]:
    """The verdicts of a run folder: name of the judge -> answer -> how likely it says the same as the right one."""
    file = folder / VERDICTS
    if not file.is_file():
        return {}
    try:
        found = parse_json(file.read_bytes())
        return {str(name): {str(key): float(p) for key, p in each.items()} for name, each in found.items()}
    except (OSError, ValueError, AttributeError, TypeError, OverflowError) as error:
        raise DataError(f"{file} does not hold verdicts ({error}); delete it and judge again") from error


def judge(run: Run, model: Backend) -> int:
    """Let a model judge the answers of a run that are no exact match; return how many were judged now.

    Answers that this model has judged before are not judged again. Verdicts are written after every batch.
    """
    every = verdicts(run.path)
    mine = every.setdefault(model.identity, {})
    todo = [each for each in _open(run) if _key(each) not in mine]
    for start in range(0, len(todo), BATCH):
        batch = todo[start : start + BATCH]
        for result, posterior in zip(batch, model.score([_request(each) for each in batch]), strict=True):
            mine[_key(result)] = posterior.probabilities["A"]
        write_whole(run.path / VERDICTS, json.dumps(every, ensure_ascii=False).encode())
        report("judge", start + len(batch), len(todo))
    return len(todo)


def _open(run: Run) -> Iterator[Result]:
    """The answers in words that have a right text and are no exact match."""
    for result in run.results:
        said = result.answered.choice if result.answered else None
        if not result.options and said is not None and result.answer and not exact_match(said, result.answer):
            yield result


def _request(result: Result) -> ScoreRequest:
    assert result.answered is not None
    text = PROMPT.format(question=result.question, right=result.answer, given=result.answered.choice)
    return ScoreRequest.about(Question(text, ("yes", "no")))
