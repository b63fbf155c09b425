"""Questions with their options taken away: the text of the right option is the answer to find."""

import hashlib
import re
from collections.abc import Callable
from dataclasses import replace

from gridprobe.benchmarks.base import Benchmark, Item, Problem
from gridprobe.errors import DataError

__all__ = ["opened"]

NEEDS_OPTIONS = re.compile(
    r"\b(?:these|the following|following (?:\w+ )?(?:is|are|was|were|best|most)|below|options?|choices|candidates"
    r"|statements?|not (?:true|correct|mentioned|shown|included|one of))\b|_{2,}",
    re.IGNORECASE,
)
"""What a question says that cannot be understood without its options."""


def opened(benchmark: Benchmark, answer: Callable[[Item], str | None] | None = None) -> Benchmark:
    """The benchmark with open questions. Those that need their options are left out, and named among its problems.

    Args:
        benchmark: one with options.
        answer: the text that answers an item, or None if the item makes no sense without options; by default the text
            of the right option, unless the question speaks of its options.
    """
    items, problems = [], list(benchmark.problems)
    for item in benchmark.items:
        right = answer(item) if answer else _answer(item)
        if right is None and not item.withheld:
            problems.append(Problem(item.id, "the question cannot be understood without its options"))
            continue
        items.append(replace(item, question=replace(item.question, options=(), answer=right)))
    if not items:
        raise DataError(f"no question of {benchmark.name} can be asked without options; leave out open=true")
    mark = hashlib.sha256("".join(item.id for item in items).encode()).hexdigest()[:6]
    version = f"{benchmark.version}-open-{len(items)}-{mark}"
    return replace(benchmark, version=version, items=tuple(items), problems=tuple(problems))


def _answer(item: Item) -> str | None:
    question = item.question
    if question.open or question.answer is None:
        return question.answer
    return None if NEEDS_OPTIONS.search(question.text) else question.option(question.answer)
