"""The page of a run: self-contained, every text escaped, and in a real browser quick, filterable and drawn right."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser import Tab, browser, needs_browser
from evaluation_runs import item, large_run, record, selection, spec_of, staged, write_run
from gridprobe.errors import UsageError
from gridprobe.importance import Grid, ImportanceMap
from gridprobe.report.format import levels
from gridprobe_eval.benchmarks import Metric
from gridprobe_eval.reader import Run, read_run, read_runs
from gridprobe_eval.report.run_data import embedded_json, pack
from gridprobe_eval.report.run_page import render_runs, save_run_report

PAYLOADS = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</script><svg onload=alert(1)>",
    "<!--<script>",
)
MAPPED = selection((0.5, 0.9, 0.5), (0.4, 0.5, 0.8), probe_choices=list("ABCABC"))


def small(folder: Path, **spec: Any) -> Run:
    items = [item("v1-a"), item("v1-b", bins={"duration": "long"}), item("v2-a", video="/x/other.mp4"), item("v3-a")]
    records = [record("v1-a", selection=MAPPED), record("v1-b", "C", selection=MAPPED), record("v2-a", None)]
    return read_run(write_run(folder, items, records, **spec))


def hostile(folder: Path, payload: str) -> Run:
    """A run with the payload wherever a stranger's text can come in."""
    texts = {
        "question": payload,
        "options": [payload + "1", payload + "2"],
        "video": payload,
        "bins": {payload: payload},
    }
    items = [item(f"{payload}-{n}", group=payload, answer="B", **texts) for n in "ab"]
    error = {"class": payload, "message": payload}
    records = [
        record(f"{payload}-a", selection=MAPPED | {"selector": payload}, warnings=[payload]),
        record(f"{payload}-b", None, error=error),
    ]
    spec = spec_of(payload, model=payload or "m")
    return read_run(write_run(folder, items, records, spec=spec, data=payload), name=payload)


# The text.


# A16 of tests/reliability.md
@pytest.mark.parametrize("payload", PAYLOADS)
def test_hostile_text_stays_text(tmp_path: Path, payload: str) -> None:
    page = render_runs([hostile(tmp_path / "r", payload)], notes=[payload])

    assert payload not in page
    assert page.count("<script") == 2 and page.count("</script>") == 2
    assert not re.search(r"<(img|iframe|link|object)", page)


def test_the_policy_allows_one_script_and_one_style_by_hash(tmp_path: Path) -> None:
    page = render_runs([small(tmp_path / "r")])
    found = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)

    assert found and "unsafe" not in found[1] and found[1].startswith("default-src 'none'")
    assert re.search(r"script-src 'sha256-[\w+/=]{44}'", found[1]) and re.search(
        r"style-src 'sha256-[\w+/=]{44}'", found[1]
    )
    for tag in ("script", "style"):
        text = re.search(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        assert text and base64.b64encode(hashlib.sha256(text[1].encode()).digest()).decode() in found[1]
    assert " style=" not in page and not re.search(r"\son\w+=", page.split('<script type="application/json"')[0])


def test_json_in_the_page_survives_the_way_there_and_back() -> None:
    value = ["</script>", "<!--", "&lt;", "\u2028", "ä日", '"\\']

    assert json.loads(embedded_json(value)) == value
    assert not set("<>&\u2028") & set(embedded_json(value))


def test_results_are_packed_by_hand(tmp_path: Path) -> None:
    packed = pack([small(tmp_path / "r")])
    answered = dict(zip(packed["fields"], packed["results"][0][0], strict=True))

    assert packed["questions"][1] == ["v1-b", "What happens in v1-b?", tuple(item("")["options"]), 1, [0], 1, 90.0]
    assert packed["bins"] == [("duration", ["long", "short"])]
    assert packed["results"][0][2:] == ["VideoError: the file ends early", 0]
    assert int(answered["kept"], 16) == sum(1 << index for index in MAPPED["indices"])
    assert (answered["rows"], answered["columns"]) == ([500, 900, 500], [400, 500, 800])
    assert answered["probes"] == "ABCABC"
    assert sum(answered["times"]) == round(10 * MAPPED["timestamps"][-1])
    assert answered["shares"] == [135, 698, 150]


def staged_run(folder: Path) -> Run:
    """One answer from the overview, without a map, and one from the focused pass, with a map by frame."""
    exit = staged("v1-a", "B", "overview", overview="B")
    return read_run(
        write_run(folder, [item("v1-a"), item("v1-b")], [exit, staged("v1-b", "B", "focus", overview="C", focus="B")])
    )


def test_how_answers_were_reached_is_packed(tmp_path: Path) -> None:
    packed = pack([staged_run(tmp_path / "r")])
    exit, focus = (dict(zip(packed["fields"], each, strict=True)) for each in packed["results"][0])

    assert exit["reached"] == "answered from the overview (overview B 60.0%, the limit is 99%)"
    assert focus["reached"] == "answered from the focused pass (overview C 60.0%, focus B 80.0%, the limit is 99%)"
    assert (exit["native"], exit["map"], exit["scores"]) == (0, "", [])
    assert (focus["native"], focus["map"], focus["scores"][8]) == (2, "attention", 0.08)
    assert packed["maps"]["attention"] == "what the question looks at"


def test_the_card_has_the_official_score_and_its_interval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = [(f"v{n}", 100.0 * (n < 6)) for n in range(8)]
    monkeypatch.setattr(
        "gridprobe_eval.report.run_page.official", lambda run: [Metric("Non-Lin <x>", 75.0, 8, "", [scores])]
    )
    page = render_runs([small(tmp_path / "r")])

    assert "<li>Non-Lin &lt;x&gt; 75.00, 95% interval 40.9 to 92.9</li>" in page  # Wilson's, 6 of 8
    assert "<td>75.00</td><td>40.9 … 92.9</td>" in page.replace("\n", "")


def test_the_card_counts_answers_from_the_overview(tmp_path: Path) -> None:
    page = render_runs([staged_run(tmp_path / "r")])

    assert "50.0% answered from the overview" in page and "1.0 frames kept" in page
    assert "How answers were reached" in page and "from the overview %" in page
    assert "answered from the overview</li>" not in render_runs([small(tmp_path / "old")])


def test_what_the_runs_lack_is_said(tmp_path: Path) -> None:
    assert "1 of 4 questions have no record yet" in render_runs([small(tmp_path / "r")])


def test_without_an_answer_there_is_still_a_page(tmp_path: Path) -> None:
    page = render_runs([read_run(write_run(tmp_path / "r", [item("v1-a")], []))])

    assert "Accuracy against compute" not in page and "1 of 1 questions have no record yet" in page


def test_a_single_run_has_a_result_and_no_plot(tmp_path: Path) -> None:
    page = render_runs([small(tmp_path / "one")])

    assert 'class="cards"' in page and "<svg" not in page and "Accuracy against compute" not in page


def test_doubt_is_packed_next_to_the_answer_and_not_again_as_a_warning(tmp_path: Path) -> None:
    doubt = "in the focused pass the model puts only 2.0% of its probability on the option letters"
    records = [record("v1-a", letter_mass=0.02, warnings=[doubt, "slow"]), record("v1-b", letter_mass=0.9)]
    run = read_run(write_run(tmp_path / "one", [item("v1-a"), item("v1-b")], records))
    packed = pack([run])
    first, second = (dict(zip(packed["fields"], each, strict=True)) for each in packed["results"][0])

    assert first["doubt"] == f"doubtful: {doubt}" and first["warnings"] == ["slow"]
    assert second["doubt"] == "" and second["warnings"] == []


def test_a_page_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="at least one run"):
        render_runs([])


# In the browser.


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("large")
    paths = [large_run(folder / name, selector=name) for name in ("all", "gridprobe")]
    save_run_report(read_runs(paths), folder / "r.html")
    return folder / "r.html"


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


def rows(tab: Tab) -> int:
    return int(tab.run("document.querySelectorAll('#list > li').length"))


def choose(tab: Tab, name: str, value: str) -> str:
    """Set a filter; what the count then says."""
    tab.run(
        f"(() => {{ const field = document.getElementById('filters').elements[{json.dumps(name)}];"
        f"field.value = {json.dumps(value)}; field.dispatchEvent(new Event('input', {{bubbles: true}})); }})()"
    )
    tab.run("new Promise(done => setTimeout(done, 150))")
    return str(tab.run("document.getElementById('count').textContent"))


@needs_browser
def test_3200_questions_are_less_than_30_megabytes_and_few_elements_laid_out_few_times(tab: Tab, large: Path) -> None:
    tab.look(1100)
    tab.open(large)

    assert large.stat().st_size < 30_000_000
    assert tab.counts()["LayoutCount"] < 50  # 2 on an idle machine; a layout for each question would be 3,200
    assert tab.run("document.querySelectorAll('*').length") < 5000
    assert tab.run("document.getElementById('count').textContent") == "3,200 of 3,200 questions"
    assert tab.complaints == [] and set(tab.requests) <= {large.resolve().as_uri()}


@needs_browser
@pytest.mark.parametrize("width", [390, 1100])
def test_nothing_sticks_out_sideways(tab: Tab, large: Path, width: int) -> None:
    tab.look(width)
    tab.open(large)
    tab.run("document.querySelector('.row').click()")

    assert tab.run("document.documentElement.scrollWidth") <= width


@needs_browser
def test_filters_agree_with_the_folder(tab: Tab, large: Path) -> None:
    run = read_run(large.parent / "gridprobe")
    tab.open(large)
    wrong = sum(result.right is False and result.outcome == "answered" for result in run.results)
    failed = sum(result.outcome == "failed" for result in run.results)
    long = sum(result.bins["duration"] == "long" and result.outcome == "missing" for result in run.results)

    assert choose(tab, "run", "1") == "3,200 of 3,200 questions"
    assert choose(tab, "outcome", "wrong") == f"{wrong:,} of 3,200 questions"
    assert choose(tab, "outcome", "failed") == f"{failed:,} of 3,200 questions"
    choose(tab, "outcome", "missing")
    assert choose(tab, "bin-0", "0") == f"{long:,} of 3,200 questions"  # values are sorted: long, medium, short
    tab.run("document.querySelector('#filters button[type=reset]').click()")
    assert choose(tab, "search", "V0007 MARKET") == "4 of 3,200 questions"
    assert choose(tab, "search", "nowhere-to-be-found") == "0 of 3,200 questions"


@needs_browser
def test_the_order_is_by_what_was_asked_for(tab: Tab, large: Path) -> None:
    run = read_run(large.parent / "gridprobe")
    kept = {result.id: result.answered.selection["kept"] for result in run.results if result.answered}
    tab.open(large)
    choose(tab, "run", "1")
    choose(tab, "order", "few")

    shown = tab.run("[...document.querySelectorAll('.row .id')].map(each => each.textContent)")

    assert [kept[name] for name in shown] == sorted(kept.values())[: len(shown)]


@needs_browser
def test_it_works_by_keyboard_alone(tab: Tab, large: Path) -> None:
    tab.open(large)
    tab.press("/", "/")
    assert tab.run("document.activeElement.name") == "search" and tab.run("document.activeElement.value") == ""
    tab.run("document.querySelector('.row').focus()")
    tab.press("ArrowDown")
    tab.press("Enter", "\r")

    assert tab.run("document.activeElement.getAttribute('aria-expanded')") == "true"
    assert tab.run("document.activeElement.parentElement.id") == "question-1"
    assert tab.run("document.querySelectorAll('#question-1 .panel').length") == 2
    tab.press("Enter", "\r")
    assert tab.run("document.querySelectorAll('.panel').length") == 0


@needs_browser
def test_arrow_keys_lead_from_a_fresh_page_into_the_list(tab: Tab, large: Path) -> None:
    tab.look(1100)
    tab.open(large)
    tab.press("ArrowDown")
    assert tab.run("document.activeElement.parentElement.id") == "question-0"
    tab.press("ArrowDown")
    assert tab.run("document.activeElement.parentElement.id") == "question-1"
    tab.press("ArrowUp")
    tab.press("/", "/")
    tab.press("ArrowDown")
    assert tab.run("document.activeElement.name") == "search"  # a field keeps its own keys


def many_runs(folder: Path, count: int) -> list[Run]:
    """Runs whose compute differs by a factor of up to 100; the first is right everywhere."""
    names = [f"v{i // 4}-{i % 4}" for i in range(16)]
    paths = []
    for number in range(count):
        answers = [
            record(name, "B" if i % (number + 1) == 0 else "C", tflops=8.0 / (1 + 3 * number))
            for i, name in enumerate(names)
        ]
        path = folder / f"a-run-with-a-long-name-{number:02d}"
        paths.append(write_run(path, [item(name) for name in names], answers, spec=spec_of("uniform")))
    return read_runs(paths)


def test_the_result_comes_first_then_one_plot_and_many_runs_are_folded(tmp_path: Path) -> None:
    few, many = render_runs(many_runs(tmp_path / "few", 3)), render_runs(many_runs(tmp_path / "many", 35))

    assert few.index('class="cards"') < few.index('class="pareto"') < few.index('class="tables"')
    assert few.count("<svg") == 1 and "by the published one: a-run-with-a-long-name-00 16.0; " in few
    assert "<summary>All" not in few and "<summary>All 35 runs</summary>" in many
    assert (
        "<title>toy: 35 runs</title>" in many
        and "long-name-02</title>" in few
        and "3 a-run-with-a-long-name-02</li>" in few
    )
    assert 'class="whisker faint"' in many and 'class="whisker faint"' not in few
    assert "of the compute of all frames" in few and "× less" not in few


@needs_browser
@pytest.mark.parametrize("width", [390, 1280])
def test_no_number_is_clipped_in_a_figure_and_a_question_of_many_runs_is_one_line(
    tab: Tab, tmp_path: Path, width: int
) -> None:
    save_run_report(many_runs(tmp_path / "many", 35), tmp_path / "r.html")
    tab.look(width)
    tab.open(tmp_path / "r.html")
    clipped = "[...document.querySelectorAll('.plot .number')].filter(number => { const box = number.getBBox(); "
    clipped += "const all = number.ownerSVGElement.viewBox.baseVal; return box.x < 0 || box.y < 0 || "
    clipped += "box.x + box.width > all.width || box.y + box.height > all.height; }).map(number => number.textContent)"

    assert tab.run("document.querySelectorAll('.plot .number').length") > 0
    assert tab.run(clipped) == []
    assert tab.run("document.documentElement.scrollWidth") <= width
    assert tab.run("document.querySelector('.row .tally').textContent") == "35 of 35 right"
    assert tab.run("document.querySelector('.row').getBoundingClientRect().height") < 120


@needs_browser
def test_all_runs_draw_a_question_on_the_same_axis(tab: Tab, tmp_path: Path) -> None:
    chosen = [selection(indices=[0, last], timestamps=[0.0, 10.0 * last], kept=2) for last in (1, 8)]
    for name, length in {"unknown": None, "recorded": 240.0}.items():
        paths = [
            write_run(
                tmp_path / name / str(number),
                [item("v1-a", duration=None)],
                [record("v1-a", selection=each, shown_native=2, video={"duration": length})],
            )
            for number, each in enumerate(chosen)
        ]
        save_run_report(read_runs(paths), tmp_path / f"{name}.html")
        tab.open(tmp_path / f"{name}.html")
        tab.run("document.querySelector('.row').click()")

        ends = tab.run("[...document.querySelectorAll('.panel .map text:last-of-type')].map(each => each.textContent)")
        assert ends == (["4:00"] * 2 if length else ["1:20"] * 2)


@needs_browser
def test_more_are_shown_on_demand(tab: Tab, large: Path) -> None:
    tab.open(large)
    first = rows(tab)
    tab.run("document.getElementById('more').click()")

    assert first < 100 and rows(tab) == 2 * first
    assert tab.run("document.activeElement.parentElement.id") == f"question-{first}"


def grey_of(fill: str) -> int:
    """The level of a grey; other colours would falsify nothing here, but hide what is important."""
    red, green, blue = map(int, re.findall(r"\d+", fill))
    assert red == green == blue
    return red


@needs_browser
def test_details_have_the_order_of_an_answer_page(tab: Tab, large: Path) -> None:
    results = read_run(large.parent / "gridprobe").results
    place = next(
        place for place, each in enumerate(results) if each.answered and each.answered.selection["row_confidence"]
    )
    tab.open(large)
    tab.run(f"document.querySelector('#question-{place} .row').click()")

    parts = tab.run(
        f"[...document.querySelector('#question-{place} .panel:nth-child(2)').children]"
        ".map(each => each.className || each.tagName)"
    )

    assert parts[:6] == ["H4", "said", "where", "map", "frames", "map"] and parts[-1] == "DETAILS"
    assert tab.complaints == []


@needs_browser
def test_the_map_has_the_colours_and_marks_of_every_other_map(tab: Tab, large: Path) -> None:
    results = read_run(large.parent / "gridprobe").results
    place, answered = next((place, each.answered) for place, each in enumerate(results) if each.answered)
    tab.open(large)
    tab.run(f"document.querySelector('#question-{place} .row').click()")
    panel = f"#question-{place} .panel:nth-child(2)"

    fills = tab.run(f"[...document.querySelectorAll('{panel} .cell')].map(each => each.getAttribute('fill'))")
    framed = "each.classList.contains('framed') ? [i] : []"
    kept = tab.run(f"[...document.querySelectorAll('{panel} .cell')].flatMap((each, i) => {framed})")

    rows, columns = (
        tuple(round(1000 * v) / 1000 for v in answered.selection[name])
        for name in ("row_confidence", "column_confidence")
    )
    scores = ImportanceMap(Grid(12), rows, columns).scores.tolist()
    for level, fill in zip(levels(scores), fills, strict=True):
        assert grey_of(fill) == pytest.approx(38 + 197 * level, abs=1)
    assert kept == answered.selection["indices"]


@needs_browser
def test_a_map_by_frame_is_drawn_without_bars_and_an_exit_without_a_map(tab: Tab, tmp_path: Path) -> None:
    run = staged_run(tmp_path / "r")
    save_run_report([run], tmp_path / "r.html")
    tab.open(tmp_path / "r.html")
    tab.run("document.querySelectorAll('.row').forEach(each => each.click())")

    fills = tab.run("[...document.querySelectorAll('#question-1 .cell')].map(each => each.getAttribute('fill'))")
    scores = [0.01 * i for i in range(9)]
    for level, fill in zip(levels(scores), fills, strict=True):
        assert grey_of(fill) == pytest.approx(38 + 197 * level, abs=1)
    assert tab.run("document.querySelectorAll('#question-1 details').length") == 0
    assert "what the question looks at" in tab.run("document.querySelector('#question-1 figcaption').textContent")
    assert tab.run("document.querySelectorAll('#question-0 svg').length") == 0
    assert "read from all 9 frames" in tab.run("document.querySelector('#question-0 .panel').textContent")
    assert tab.complaints == []


@needs_browser
@pytest.mark.parametrize("payload", PAYLOADS)
def test_hostile_text_is_inert_in_the_browser(tab: Tab, tmp_path: Path, payload: str) -> None:
    save_run_report([hostile(tmp_path / "r", payload)], tmp_path / "r.html")
    tab.events.clear()
    tab.open(tmp_path / "r.html")
    tab.run("document.querySelectorAll('.row').forEach(each => each.click())")

    assert payload in tab.run("document.querySelector('.row .text').textContent")
    assert tab.run("document.querySelectorAll('#list .options li').length") == 4
    assert tab.run("document.querySelectorAll('#list script, #list img').length") == 0
    assert tab.complaints == []


@needs_browser
@pytest.mark.parametrize("dark", [False, True])
def test_text_can_be_read_in_both_schemes(tab: Tab, large: Path, dark: bool) -> None:
    tab.look(1100, dark=dark)
    tab.open(large)
    tab.run("document.querySelector('.row').click()")
    tab.run(LIGHTNESS)

    poor = tab.run(
        "['.row .text', '.row .id', '.badge', '.card li', '.source', '.panel p', 'td', '.verdict'].filter(poor)"
    )

    assert poor == []


LIGHTNESS = """
window.poor = (name) => {
  const parts = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const found = parts(getComputedStyle(node).backgroundColor);
      if (found.length < 4 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  return [...document.querySelectorAll(name)].some((node) => {
    const [one, other] = [light(parts(getComputedStyle(node).color)), light(ground(node))].sort((a, b) => b - a);
    return (one + 0.05) / (other + 0.05) < 4.5;
  });
};
"""


@needs_browser
def test_doubt_is_shown_and_a_run_that_was_not_asked_has_no_panel(tab: Tab, tmp_path: Path) -> None:
    doubt = "in the overview the model puts only 2.0% of its probability on the option letters"
    items = [item("v1-a"), item("v1-b")]
    answers = [record("v1-a", letter_mass=0.02, warnings=[doubt]), record("v1-b")]
    paths = [write_run(tmp_path / "one", items, answers), write_run(tmp_path / "two", items, answers[1:])]
    save_run_report(read_runs(paths), tmp_path / "r.html")
    tab.look(390)
    tab.open(tmp_path / "r.html")
    tab.run("document.querySelector('#question-0 button').click()")

    assert tab.run("[...document.querySelectorAll('.panel h4')].map(each => each.textContent)") == ["one ✓ right"]
    after = "document.querySelector('.panel .said').nextElementSibling.textContent"
    assert tab.run(after) == f"doubtful: {doubt}"


@needs_browser
def test_a_table_that_is_wider_than_a_phone_shows_that_it_scrolls(tab: Tab, large: Path) -> None:
    tab.look(390)
    tab.open(large)
    scroll = "document.querySelector('.tables .scroll')"

    assert tab.run(f"{scroll}.scrollWidth > {scroll}.clientWidth")
    assert tab.run(f"getComputedStyle({scroll}).backgroundAttachment") == "local, local, scroll, scroll"
