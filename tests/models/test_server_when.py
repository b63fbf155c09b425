"""A server is asked when: short questions about the frames of the overview, which its prefix cache holds."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

import gridprobe as gp
from fake_server import Fake, Heard, Open, Prose, by_eye, by_hash
from gridprobe.models.base import Completion
from gridprobe.selectors.base import FLAT
from gridprobe.selectors.gridprobe import NO_SPANS
from videos_of_arrays import gray_pool

QUESTION = gp.Question("Which door opens?", ["the left one", "the right one"])
POOL = gray_pool(36, width=224, height=128)
MOMENT = 200.0
"""Of frame 20."""
CHOICE = re.compile(r"^([A-Z])\. ([\d.]+)(?: to ([\d.]+))? seconds$", re.MULTILINE)


def sees_it(heard: Heard, letters: Sequence[str]) -> Mapping[str, float]:
    """Knows when the door opens, and is sure of no other answer."""
    text = str(heard[-1])
    if "In which part of the video is this shown?" not in text:
        return by_hash(heard, letters)
    ends = {letter: (float(first), float(last or first)) for letter, first, last in CHOICE.findall(text)}
    assert len(ends) >= 2 and "Which door opens?\nPossible answers: the left one; the right one\n" in text
    return {letter: 0.8 if first <= MOMENT <= last else 0.1 / len(ends) for letter, (first, last) in ends.items()}


def lists(reply: str) -> Prose:
    """What it writes when it is asked for time spans."""

    def prose(heard: Heard, body: Mapping[str, Any]) -> Sequence[Completion] | None:
        return [Completion(reply, 12, None, True)] if "[[start, end], ...]" in str(heard[-1]) else None

    return prose


def messages(fake: Fake, start: int) -> list[list[str]]:
    """The parts of the messages since then: texts, and pictures by their ids or bytes."""
    bodies = [body for path, body in fake.requests if "chat" in path][start:]
    assert all(len(body["messages"]) == 1 for body in bodies)
    contents = [body["messages"][0]["content"] for body in bodies]
    return [[each.get("text") or each.get("uuid") or each["image_url"]["url"] for each in parts] for parts in contents]


class TestLetters:
    def test_two_requests_find_the_frame_and_compute_next_to_nothing(self, open_server: Open) -> None:
        fake = Fake(voice=sees_it, caches=True)
        server = open_server(fake)
        start = fake.asked
        with gp.Session(POOL, model=server, effort="quick", probes="when") as session:
            answer = session.ask(QUESTION, show_map=True)

        overview, parts, frames = messages(fake, start)
        assert overview[:-1] == parts[:-1] == frames[:-1] and len(overview) == 2 * 36 + 1
        assert answer.selection.evidence is not None and answer.selection.evidence.kind == "when"
        assert 20 in answer.selection.indices
        assert max(range(36), key=lambda i: answer.selection.scores[i]) == 20  # type: ignore[index]
        assert answer.cost.total.calls == 3 and FLAT not in answer.warnings
        first, more = answer.cost.overview, answer.cost.probe
        assert first.cached_tokens < 20 and first.tokens > 36 * 28
        assert more.tokens > 2 * first.tokens, "what was sent is what counts"
        assert more.cached_tokens > 2 * 36 * 28
        assert more.tokens - more.cached_tokens < 0.3 * first.tokens, "the letters of both questions"

    def test_fresh_probes_read_every_frame_twice_more(self, open_server: Open) -> None:
        fake = Fake(voice=sees_it, caches=True)
        server = open_server(fake)
        start = fake.asked
        with gp.Session(POOL, model=server, effort="quick", probes="fresh") as session:
            answer = session.ask(QUESTION, show_map=True)

        assert answer.cost.total.calls == 1 + 12 and fake.asked - start <= 1 + 12
        assert answer.selection.evidence is not None and answer.selection.evidence.kind == "probes"
        assert answer.cost.probe.tokens - answer.cost.probe.cached_tokens > answer.cost.overview.tokens

    @pytest.mark.parametrize(("width", "by"), [(896, "focus"), (224, "all")])
    def test_the_bill_is_never_higher_than_that_of_all_frames(self, width: int, by: str, open_server: Open) -> None:
        """Every token that is sent counts, cached or not: where three overviews are too many, there is none."""
        pool = gray_pool(36, width=width, height=width // 2)
        answer = gp.ask(pool, QUESTION, model=open_server(Fake(voice=sees_it, caches=True)), k=6, probes="when")

        assert answer.reached.by == by and answer.cost.total.share_of(answer.cost.baseline) <= 1.0
        assert answer.cost.total.calls == (4 if by == "focus" else 1)

    def test_likely_tokens_are_enough(self, open_server: Open) -> None:
        with gp.Session(
            POOL, model=open_server(Fake(voice=sees_it, ids=False)), effort="full", probes="when"
        ) as session:
            answer = session.ask(QUESTION)

        assert 20 in answer.selection.indices and answer.cost.total.calls == 4

    def test_little_probability_on_the_letters_makes_a_note(self, open_server: Open) -> None:
        def vague(heard: Heard, letters: Sequence[str]) -> Mapping[str, float]:
            scale = 0.05 if "In which part" in str(heard[-1]) else 1.0
            return {letter: scale * share for letter, share in sees_it(heard, letters).items()}

        with gp.Session(POOL, model=open_server(Fake(voice=vague)), effort="full", probes="when", frames=4) as session:
            answer = session.ask(QUESTION)

        assert FLAT in answer.warnings and any("in 2 of 2 probes the model puts only" in w for w in answer.warnings)

    def test_no_time_that_is_likelier_makes_a_note(self, open_server: Open) -> None:
        def even(heard: Heard, letters: Sequence[str]) -> Mapping[str, float]:
            flat = "In which part" in str(heard[-1])
            return dict.fromkeys(letters, 1 / len(letters)) if flat else by_hash(heard, letters)

        with gp.Session(POOL, model=open_server(Fake(voice=even)), effort="full", probes="when", frames=4) as session:
            assert FLAT in session.ask(QUESTION).warnings


class TestSpans:
    def ask(self, open_server: Open, reply: str) -> tuple[gp.Answer, list[list[str]]]:
        fake = Fake(voice=by_eye, prose=lists(reply), ids=False, top=0, caches=True)
        server = open_server(fake, samples=4)
        start = fake.asked
        with gp.Session(POOL, model=server, effort="quick", probes="when") as session:
            answer = session.ask(QUESTION, show_map=True)
        return answer, messages(fake, start)

    def test_one_request_asks_for_all_of_them(self, open_server: Open) -> None:
        answer, (overview, spans) = self.ask(
            open_server, "Here they are:\n```json\n[[198, 203.5], [290.0, 290.0]]\n```"
        )

        assert overview[:-1] == spans[:-1] and answer.cost.probe.calls == 1
        assert answer.selection.evidence is not None and answer.selection.evidence.kind == "when"
        assert answer.selection.scores is not None
        assert [i for i, score in enumerate(answer.selection.scores) if score] == [20, 29]
        assert NO_SPANS not in answer.warnings and FLAT not in answer.warnings
        assert answer.cost.probe.cached_tokens > 36 * 28

    @pytest.mark.parametrize("reply", ["It opens at 200 seconds.", "[[200, 2", '["200"]', '{"start": 1}'])
    def test_a_reply_without_spans_makes_a_note(self, reply: str, open_server: Open) -> None:
        answer, _ = self.ask(open_server, reply)

        assert NO_SPANS in answer.warnings and FLAT in answer.warnings

    def test_spans_that_cannot_be_are_counted_and_left_out(self, open_server: Open) -> None:
        answer, _ = self.ask(open_server, "[[200, 200], [9000, 9001], [30, 20]]")

        assert any("2 of 3 time spans end before they begin or lie outside" in text for text in answer.warnings)
        assert 20 in answer.selection.indices and FLAT not in answer.warnings
