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

from gridprobe import Answer, Question, UsageError
from gridprobe.report import save_report
from gridprobe.report.answer_page.page import render
from gridprobe.report.answer_page.thumbnails import MOST_THUMBNAILS
from report.answers import CITIES, balloon, handmade, info, without_map

VOID = {"meta", "img", "br", "rect", "circle"}
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


def test_one_thumbnail_for_each_kept_frame_with_its_time() -> None:
    page = Page(render([handmade(kept=(1, 4, 5))]))

    assert [image["alt"] for image in page.all("img")] == [f"frame at 0:{minute}0:00.0" for minute in (1, 4, 5)]
    for image in page.all("img"):
        jpeg = base64.b64decode((image["src"] or "").partition(",")[2])
        with Image.open(io.BytesIO(jpeg)) as picture:
            assert (picture.format, picture.size) == ("JPEG", (64, 36))


def test_map_marks_the_kept_cells_and_tells_times() -> None:
    text = render([handmade(cells=7, kept=(1, 4, 5))])
    page = Page(text)
    classes = [attributes.get("class") for attributes in page.all("rect")]

    assert classes.count("cell") == 7
    assert classes.count("blank") == 2
    assert len([circle for circle in page.all("circle") if circle["class"] == "mark"]) == 3
    titles = re.findall(r"<title>(\d[^<]*)</title>", text)
    assert len(titles) == 7
    assert [title for title in titles if title.endswith(", kept")] == [
        "0:10:00.0, importance 0.320, kept",
        "0:40:00.0, importance 0.720, kept",
        "0:50:00.0, importance 0.540, kept",
    ]


def test_selection_without_a_map_has_a_tick_for_each_kept_frame() -> None:
    page = Page(render([without_map(handmade(), (0, 4, 8))]))

    assert [rect.get("class") for rect in page.all("rect")] == ["rail", "kept", "kept", "kept"]
    assert "this selector produces no importance map" in page.text


@pytest.mark.parametrize(("right", "verdict"), [("B", "✓ right"), ("A", "✗ wrong"), (None, "chosen")])
def test_verdict(right: str | None, verdict: str) -> None:
    page = Page(render([handmade(question=replace(CITIES, answer=right))]))

    assert verdict in page.text
    assert ("right answer" in page.text) == (right == "A")


def test_facts_are_on_the_page() -> None:
    text = Page(render([handmade(warnings=("the file ends early",))])).text

    for fact in (
        "75.0%",
        "Not shown",
        "the file ends early",
        "scripted:a",
        "3 of 9 frames",
        "selector.view.pixels.max_side",
    ):
        assert fact in text
    assert "TFLOPs, honest" in text and "TFLOPs, published" in text and "4.0× less" in text
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
    assert len(Page((tmp_path / "report.html").read_text(encoding="utf-8")).all("img")) == 144


def test_more_kept_frames_than_fit_are_thinned_out_and_the_page_says_so() -> None:
    pixels = np.zeros((225, 9, 16, 3), np.uint8)
    page = Page(render([handmade((0.5,) * 15, (0.5,) * 15, kept=tuple(range(225)), pixels=pixels)]))

    assert len(page.all("img")) == MOST_THUMBNAILS
    assert "144 of the 225 kept frames are shown" in page.text


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
