"""The HTML page: well formed, self-contained, every text escaped, small."""

import base64
import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from browser import browser, needs_browser
from gridprobe import Answer, Question, UsageError
from gridprobe.report import save_report
from gridprobe.report.answer_page import MOST_LARGE, render
from report.answers import CITIES, balloon, handmade, info, posterior, without_map

VOID = {"meta", "img", "br"}
PAYLOADS = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</style><svg onload=alert(1)>",
    "<a href=javascript:alert(1)>&lt;b&gt;",
)


class Page(HTMLParser):
    """Collects elements and text, and checks that every element is closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def hostile(payload: str) -> Answer:
    """An answer with the payload wherever a stranger's text can come in."""
    answer = handmade(
        question=Question(payload, options=[payload + "1", payload + "2"], answer="A"),
        warnings=(payload,),
        models=(payload, payload + "b"),
    )
    pool = replace(answer.pool, info=info(f"/videos/{payload.replace('/', '')}.mp4"), source=payload)
    return replace(answer, pool=pool, selection=replace(answer.selection, selector=payload))


# A16 of tests/reliability.md
@pytest.mark.parametrize("payload", PAYLOADS)
def test_hostile_text_is_shown_as_text(payload: str) -> None:
    text = render([hostile(payload), without_map(hostile(payload))], title=payload)
    page = Page(text)

    assert payload not in text
    assert page.text.count(payload) >= 8
    assert {tag for tag, _ in page.elements} == {
        tag for tag, _ in Page(render([handmade(question=CITIES, warnings=("w",)), without_map(handmade())])).elements
    }
    for tag, attributes in page.elements:
        assert not any(name.startswith("on") for name in attributes), tag
        assert not any(payload in (value or "") for value in attributes.values()), tag


def test_page_loads_nothing_and_runs_nothing() -> None:
    text = render([balloon(k=4, wide=64, high=36), without_map(handmade())])
    page = Page(text)

    assert not page.all("script") and not page.all("link") and not page.all("iframe")
    assert not re.search(r"(https?:)?//|url\(|@import", text.replace(*_without_data(text)))
    assert all((image["src"] or "").startswith("data:image/jpeg;base64,") for image in page.all("img"))
    assert all((link["href"] or "").startswith("#") for link in page.all("a"))
    policy = next(meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'unsafe-inline'")


def _without_data(text: str) -> tuple[str, str]:
    return (text, re.sub(r"data:image/jpeg;base64,[A-Za-z0-9+/=]+", "", text))


def large(page: Page) -> list[dict[str, str | None]]:
    """The kept frames; the other picture of an answer is its contact sheet."""
    return [image for image in page.all("img") if (image["alt"] or "").startswith("frame at ")]


def picture(image: dict[str, str | None]) -> Image.Image:
    jpeg = base64.b64decode((image["src"] or "").partition(",")[2])
    return Image.open(io.BytesIO(jpeg))


def test_kept_frames_are_large_and_have_their_times() -> None:
    page = Page(render([handmade(kept=(1, 4, 5))]))

    assert [image["alt"] for image in large(page)] == [f"frame at {minute}0:00.0" for minute in (1, 4, 5)]
    for image in large(page):
        with picture(image) as found:
            assert (found.format, found.size) == ("JPEG", (64, 36))


def test_the_order_is_where_timeline_frames_sheet_options_bill_details() -> None:
    text = render([handmade()])
    marks = ["<h2", 'class="headline"', 'class="where"', 'class="timeline"', 'class="frames"', 'class="sheet"']
    marks += ['class="options"', "Answered from", 'class="bill"', "<details>"]
    places = [text.index(mark) for mark in marks]

    assert places == sorted(places)


def test_the_sheet_has_all_frames_with_times_at_row_starts_and_under_the_pointer() -> None:
    text = render([handmade(cells=7, kept=(1, 4, 5))])
    page = Page(text)
    (sheet,) = [image for image in page.all("img") if image not in large(page)]

    assert sheet["alt"] == "contact sheet of 7 frames in rows of 3"
    with picture(sheet) as found:
        assert found.width > found.height
    titles = [span["title"] or "" for span in page.all("span") if "title" in span]
    assert len(titles) == 7
    assert [title for title in titles if title.endswith(", kept")] == [
        "10:00.0, importance 0.320, kept",
        "40:00.0, importance 0.720, kept",
        "50:00.0, importance 0.540, kept",
    ]
    starts = text[text.index('class="row-times"') : text.index('class="tiles"')]
    assert re.findall(r">([\d:]+)<", starts) == ["0:00", "30:00", "1:00:00"]
    assert "Time runs left to right, row by row. Framed: kept; the darker, the less important." in page.text


def test_the_timeline_marks_kept_frames_and_names_the_main_stretches() -> None:
    text = render([handmade(kept=(1, 4, 5))])

    assert text.count('class="kept"') == 3 and text.count('class="level"') == 6
    assert re.findall(r'class="moments">(.*?)</div>', text)[0].endswith(">40:00–50:00</span>")


def test_selection_without_a_map_has_a_mark_for_each_kept_frame() -> None:
    page = Page(render([without_map(handmade(), (0, 4, 8))]))

    assert [rect.get("class") for rect in page.all("rect")] == ["kept"] * 3
    assert "Framed: kept; dark: not kept." in page.text and "importance" not in page.text


def test_unlikely_options_share_a_line() -> None:
    page = Page(render([handmade(posterior=posterior(B=0.9999))]))

    assert [span for span in page.all("span") if span.get("class") == "label"] == [{"class": "label"}]
    assert "3 others below 0.05% each: Oslo, on the market square, Lima" in page.text


@needs_browser
@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_shows_everything_without_scrolling_sideways(tmp_path: Path, dark: bool) -> None:
    long = Question("Why " * 60 + "?", options=["because of the weather " * 12 + letter for letter in "abcdefgh"])
    answers = [balloon(k=12, wide=64, high=36), handmade(question=long), without_map(handmade())]
    page = render(answers, others={"the published method": answers})
    (tmp_path / "page.html").write_text(page.replace("<html ", '<html data-ready="yes" '), encoding="utf-8")
    with browser(tmp_path) as tab:
        tab.look(390, dark=dark)
        tab.open(tmp_path / "page.html")
        assert tab.run("document.documentElement.scrollWidth") == 390
        outside = "[...document.querySelectorAll('main :not(details *)')].filter(e => e.getClientRects().length && "
        outside += "e.getBoundingClientRect().right > 391).map(e => e.tagName + '.' + e.className)"
        assert tab.run(outside) == []
        assert tab.complaints == []


@pytest.mark.parametrize(("right", "verdict"), [("B", "✓ right"), ("A", "✗ wrong"), (None, "")])
def test_verdict(right: str | None, verdict: str) -> None:
    page = Page(render([handmade(question=replace(CITIES, answer=right))]))

    assert verdict in page.text
    assert ("right answer" in page.text) == (right is not None) and ("✓" in page.text) == (right == "B")


def test_facts_are_on_the_page() -> None:
    text = Page(render([handmade(warnings=("the file ends early",))])).text

    for fact in (
        "75.0%",
        "25% of the compute of showing all 9 frames at full size",
        "Not shown",
        "the file ends early",
        "scripted:a",
        "3 of 9 frames",
        "selector.view.pixels.max_side",
    ):
        assert fact in text
    assert "TFLOPs, honest" in text and "TFLOPs, published" in text
    assert "honest: causal attention" in text and "published: all-pairs attention" in text


def test_many_answers_have_an_overview_whose_links_lead_somewhere() -> None:
    wrong = handmade(question=replace(CITIES, answer="A"))
    page = Page(render([handmade(), wrong, handmade(question=replace(CITIES, answer=None))]))

    ids = [attributes["id"] for attributes in page.all("article")]
    assert [link["href"] for link in page.all("a")] == [f"#{name}" for name in ids]
    assert "1 of 2 right" in page.text
    assert not Page(render([handmade()])).all("a")


def test_the_overview_shows_what_other_ways_answered() -> None:
    right, wrong = (handmade(question=replace(CITIES, answer=label)) for label in "BA")

    page = render([right, right], others={"every <frame>": [right, wrong]})

    overview = page[page.index('class="overview"') : page.index("<article")]
    assert "2 of 2 right; every &lt;frame&gt;: 1 of 2 right" in overview
    assert (overview.count("✓ right"), overview.count("✗ wrong")) == (3, 1)


def test_worst_page_at_k_12_is_below_a_megabyte(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (144, 200, 200, 3), dtype=np.uint8)
    answer = handmade((0.5,) * 12, (0.5,) * 12, kept=tuple(range(144)), pixels=noise)
    answer.save_report(tmp_path / "report.html")

    assert (tmp_path / "report.html").stat().st_size < 1_000_000


@pytest.mark.parametrize("mapped", [True, False])
def test_of_many_kept_frames_eight_are_large_and_the_page_says_which(mapped: bool) -> None:
    pixels = np.zeros((225, 9, 16, 3), np.uint8)
    rows = tuple(0.5 + i / 100 for i in range(15))
    answer = handmade(rows, (0.5,) * 15, kept=tuple(range(200)), pixels=pixels)
    page = Page(render([answer if mapped else without_map(answer, tuple(range(200)))]))

    assert len(large(page)) == MOST_LARGE == 8
    assert f"8 of 200 frames, {'the most important' if mapped else 'evenly spaced'}" in page.text
    first = "30:20:00.0" if mapped else "2:00:00.0"
    assert large(page)[0]["alt"] == f"frame at {first}"


def test_half_a_surrogate_in_a_file_name_does_not_stop_the_page(tmp_path: Path) -> None:
    answer = handmade()
    save_report([replace(answer, pool=replace(answer.pool, info=info("/v/\udc80.mp4")))], tmp_path / "r.html")

    assert "?.mp4" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_a_report_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least one answer"):
        save_report([], tmp_path / "r.html")


def test_unwritable_path_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write"):
        save_report([handmade()], tmp_path / "missing" / "r.html")
