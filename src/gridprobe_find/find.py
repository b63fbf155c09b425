"""Query in, moments out: propose by similarity and spoken words, check with the model, refine the borders."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from gridprobe._util import announce
from gridprobe.errors import UsageError, VideoError
from gridprobe.models.base import Cost
from gridprobe.plan import Plan
from gridprobe.selectors.base import Encoder
from gridprobe_find.index import IndexedVideo, LibraryIndex, Vectors
from gridprobe_find.propose import Curve, Proposal, cut_level, fuse, seen_segments
from gridprobe_find.verify import ASKED, FRAMES, check_segments, question_about, refined, weighed

EXACT_NUMBERS = 32_000_000
"""Up to that many numbers in vectors are compared directly; beyond it the index proposes videos first."""
MOST_VIDEOS, MOST_LINES = 200, 50
"""Videos that are looked at closely, and spoken lines, for one query."""


@dataclass(frozen=True)
class FindOptions:
    """How a search is done."""

    threshold: float = 0.5
    """The probability of yes from which a moment counts."""
    checks: int = 64
    """The most segments that the model is asked about."""
    precision: float = 0.5
    """Seconds to which borders are refined."""
    frames: int = FRAMES
    asked: str = ASKED
    verify: bool = True
    """Without it similarity alone decides, and nothing can be "not found"."""

    def __post_init__(self) -> None:
        for name, low, high in (
            ("threshold", 0, 1),
            ("checks", 1, 10_000),
            ("frames", 1, 144),
            ("precision", 0.04, 60),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise UsageError(f"{name} must be from {low:g} to {high:g}, got {value:g}")


@dataclass(frozen=True)
class LibraryMoment:
    """Where it is."""

    video: str
    start: float
    end: float
    probability: float | None
    """Of yes, by the model and by how similar it is (`verify.weighed`); None for what was not checked by a model."""
    similarity: float
    text: str = ""
    """What is said there, if words of the query are."""
    fps: float = 25.0


@dataclass(frozen=True)
class FindWork:
    """What a search took."""

    videos: int = 0
    frames: int = 0
    """In the part of the index that was searched."""
    vectors: int = 0
    """Compared exactly with the query."""
    segments: int = 0
    """Proposed."""
    checked: int = 0
    encoded: int = 0
    """Frames for borders."""
    model: Cost = field(default_factory=Cost)
    seconds: float = 0.0


@dataclass(frozen=True)
class FindResult:
    """All moments, most probable first; none is the answer "not found"."""

    query: str
    moments: tuple[LibraryMoment, ...]
    work: FindWork
    problems: tuple[str, ...] = ()

    @property
    def not_found(self) -> bool:
        """Whether nothing reached the threshold."""
        return not self.moments


@dataclass(frozen=True, eq=False)
class Proposals:
    """What the index proposes for a query."""

    segments: list[Proposal]
    curves: dict[str, Curve]
    query: Vectors
    work: FindWork


def find_moments(
    index: LibraryIndex,
    query: str,
    *,
    encoder: Encoder,
    plan: Plan | None,
    videos: Sequence[IndexedVideo] | None = None,
    options: FindOptions | None = None,
) -> FindResult:
    """All moments of these videos, or of all in the index, that show or say the query.

    Args:
        index: the open index.
        query: what to look for, such as "a red triangle", or a yes/no question.
        encoder: the one that the index was made with.
        plan: a loaded plan with an overview, whose model checks; None with `verify=False`.
        videos: rows of `index.videos()`.
        options: limits, threshold and precision.
    """
    begin, options = time.perf_counter(), options or FindOptions()
    query = " ".join(query.split())
    if not query:
        raise UsageError("the query is empty; say what to look for")
    if options.verify and plan is None:
        raise UsageError("no model was given to check what is proposed; name one, or leave checking out")
    scope = {video.key: video for video in (index.videos() if videos is None else videos)}
    proposals = propose(index, query, encoder, scope)
    problems = list(encoder.notes(query))
    kept: list[tuple[Proposal, float | None]] = [(each, None) for each in proposals.segments]
    work = proposals.work
    if options.verify and plan is not None:
        kept, work = _verified(proposals, scope, plan, query, options=options, problems=problems)
    final = [
        _refine(each, _moment(scope, each, probability), proposals, encoder, options.precision, problems)
        for each, probability in kept
    ]
    work = replace(work, encoded=sum(count for _, count in final), seconds=time.perf_counter() - begin)
    ordered = sorted((moment for moment, _ in final), key=lambda each: (-(each.probability or 0), -each.similarity))
    return FindResult(query, tuple(joined(ordered)), work, tuple(dict.fromkeys(problems)))


def propose(index: LibraryIndex, query: str, encoder: Encoder, scope: dict[str, IndexedVideo]) -> Proposals:
    """Segments from the nearest frames and from spoken lines, best first."""
    vector = encoder.texts([query])[0]
    total = sum(video.frames for video in scope.values())
    keys = list(scope)
    if total * len(vector) > EXACT_NUMBERS:
        keys = [key for key in index.nearest(vector, most=MOST_VIDEOS, within=scope) if key in scope]
    curves = index.curves(keys, vector) if keys else {}
    cut = cut_level(curves)
    seen = [segment for key, curve in curves.items() for segment in seen_segments(key, curve, cut)]
    said = [
        Proposal(key, max(0.0, line.start), max(line.end, line.start + 1.0), 0.0, line.text)
        for key, line in index.spoken(query, most=MOST_LINES)
        if key in scope
    ]
    segments = [_inside(scope, each) for each in fuse(seen, said)]
    vectors = sum(len(curve.times) for curve in curves.values())
    work = FindWork(videos=len(scope), frames=total, vectors=vectors, segments=len(segments))
    return Proposals(segments, curves, vector, work)


def _inside(scope: dict[str, IndexedVideo], segment: Proposal) -> Proposal:
    return replace(segment, end=min(segment.end, max(scope[segment.key].duration, segment.start + 0.04)))


def _verified(
    proposals: Proposals,
    scope: dict[str, IndexedVideo],
    plan: Plan,
    query: str,
    *,
    options: FindOptions,
    problems: list[str],
) -> tuple[list[tuple[Proposal, float | None]], FindWork]:
    """The segments that the model and their similarity confirm, and those in which the whole query is said."""
    question = question_about(query, template=plan.template, asked=options.asked)
    spoken = [each for each in proposals.segments if each.text and says(each.text, query)]
    rest = [each for each in proposals.segments if each not in spoken]
    asked, left = rest[: options.checks], rest[options.checks :]
    announce("checks", len(asked))
    if left:
        problems.append(f"{len(left)} less similar segments were not checked; --checks {len(rest)} checks all")
    work, checked = proposals.work, []
    paths = [(scope[each.key].path, each) for each in asked]
    for segment, check in zip(asked, check_segments(plan, question, paths, frames=options.frames), strict=True):
        if isinstance(check, VideoError):
            problems.append(str(check))
            continue
        work = replace(work, checked=work.checked + 1, model=work.model + check.cost)
        problems.extend(check.notes)
        checked.append((segment, check.probability))
    confirmed = [(each, chance) for each, chance in weighed(checked) if chance >= options.threshold]
    return [*((each, None) for each in spoken), *confirmed], work


def says(line: str, query: str) -> bool:
    """Whether a line has the query in it, or all of its words."""
    line, query = line.casefold(), query.casefold()
    return query in line or set(query.split()) <= set(line.split())


def _moment(scope: dict[str, IndexedVideo], segment: Proposal, probability: float | None) -> LibraryMoment:
    video = scope[segment.key]
    return LibraryMoment(video.path, segment.start, segment.end, probability, segment.score, segment.text, video.fps)


def _refine(
    segment: Proposal,
    moment: LibraryMoment,
    proposals: Proposals,
    encoder: Encoder,
    precision: float,
    problems: list[str],
) -> tuple[LibraryMoment, int]:
    """The moment with its borders sampled densely, and how many frames that took."""
    curve = proposals.curves.get(segment.key)
    if curve is None or not segment.score:  # it is said there, not seen
        return moment, 0
    try:
        borders = refined(moment.video, segment, curve, encoder, query=proposals.query, precision=precision)
    except VideoError as error:
        problems.append(str(error))
        return moment, 0
    return replace(moment, start=borders[0], end=borders[1]), borders[2]


def joined(moments: Sequence[LibraryMoment]) -> list[LibraryMoment]:
    """Moments of one video that touch or overlap after refining, as one; the order of the first ones stays."""
    order = {id(each): place for place, each in enumerate(moments)}
    runs: list[list[LibraryMoment]] = []
    in_time = sorted(moments, key=lambda each: (each.video, each.start))
    for before, each in pairwise([None, *in_time]):
        assert each is not None
        if before is not None and before.video == each.video and each.start <= max(old.end for old in runs[-1]):
            runs[-1].append(each)
        else:
            runs.append([each])
    kept = []
    for run in runs:
        first = min(run, key=lambda each: order[id(each)])
        text = next((each.text for each in run if each.text), "")
        kept.append((order[id(first)], replace(first, start=run[0].start, end=max(e.end for e in run), text=text)))
    return [moment for _, moment in sorted(kept, key=lambda each: each[0])]
