"""The page in a real Chromium, against a server on this machine."""

import json
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from browser import CHROMIUM, needs_browser
from gridprobe import load_model
from gridprobe.models import Posterior, Request, Response, cost_model_of
from gridprobe.options import Options
from gridprobe_eval.planning import Models
from gridprobe_serve.app import make_app
from gridprobe_serve.middleware import AccessRules
from gridprobe_serve.running import bind
from gridprobe_serve.service import VideoService
from gridprobe_serve.store import PREFIX
from serving_kit import Gated, make_service, video_folder
from waiting import wait_until

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
pytestmark = needs_browser
EVIL = "<img src=x onerror=window.hacked=1>"
TIMEOUTS = 600_000
"""Milliseconds; a limit for hangs, not for speed."""


class Site:
    """A server in a thread; it can be started again at the same port with nothing of what it had."""

    def __init__(self, folder: Path, service: VideoService | None = None, port: int = 0) -> None:
        self.folder = folder
        self.model = Gated()
        self.service = service or make_service(folder, model=self.model)
        listening = bind("127.0.0.1", port)
        self.port = int(listening.getsockname()[1])
        app: Any = make_app(self.service, AccessRules(), names=("embedded",))
        self._server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off", ws="none"))
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listening]})
        self._thread.start()
        wait_until(lambda: self._server.started)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def restarted(self) -> "Site":
        self.stop()
        return Site(self.folder, port=self.port)

    def stop(self) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join()
        self.model.gate.set()  # after the last byte was sent, so that a job that waits here never ends for the page
        self.service.close()


@contextmanager
def serving(folder: Path, service: VideoService | None = None) -> Iterator[Site]:
    site = Site(folder, service)
    try:
        yield site
    finally:
        site.stop()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return video_folder(tmp_path_factory.mktemp("videos") / "all")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    """A page whose console must stay clean, but for replies that a test provokes."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    found = context.new_page()
    found.set_default_timeout(TIMEOUTS)
    complaints: list[str] = []
    found.on("pageerror", lambda error: complaints.append(str(error)))
    found.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    yield found
    assert [each for each in complaints if not each.startswith("Failed to load resource")] == []
    context.close()


@pytest.fixture
def site(folder: Path) -> Iterator[Site]:
    with serving(folder) as found:
        yield found


def visit(page: Any, site: Site, link: str = "") -> None:
    page.goto(site.url + link)
    page.wait_for_selector("html[data-ready=yes]")


def choose(page: Any, name: str = "talk.mp4") -> None:
    page.select_option("#folder", name)
    page.wait_for_selector("#sheet .cell")
    page.wait_for_selector("#cancel", state="hidden")


def ask(page: Any, question: str = "Which?", options: tuple[str, ...] = ("one", "two")) -> None:
    page.fill("#question", question)
    page.fill("#options", "\n".join(options))
    page.click("#go")


def answered(page: Any, count: int = 1) -> None:
    page.wait_for_selector(f"#talk li:nth-child({count})")
    page.wait_for_selector("#after", state="visible")


def shown_time(page: Any) -> float:
    """Where the player is."""
    return float(page.evaluate("document.querySelector('figcaption').textContent.split(' ')[0].split(':')[1]"))


def test_an_uploaded_video_is_asked_and_the_answer_says_where(page: Any, site: Site, folder: Path) -> None:
    visit(page, site)
    page.set_input_files("#file", folder / "talk.mp4")
    page.wait_for_selector("#sheet .cell")
    ask(page)
    answered(page)

    assert page.inner_text("#said").split() == ["one", "99.8%"]
    assert "9 frames" in page.inner_text("#where")
    assert page.inner_text("#bars .chosen .text") == "one"
    assert "Answer: one" in page.text_content("#said-live")
    assert page.locator("#sheet .cell").count() == 9


def test_with_the_embedded_model_the_map_marks_frames(page: Any, folder: Path) -> None:
    gauge = cost_model_of("embedded")
    service = VideoService(load_model("embedded"), settings=Options(k=3), cost_models=Models(gauge, gauge))
    with serving(folder, service) as site:
        visit(page, site)
        page.set_input_files("#file", folder / "talk.mp4")
        page.wait_for_selector("#sheet .cell")
        page.wait_for_selector("#offers tr.chosen >> text=Automatic")
        assert page.locator("#offers tbody th").all_inner_texts() == ["Quick", "Automatic", "Full", "All frames"]
        assert page.inner_text("#offers tbody tr:nth-child(4)").split() == ["All", "frames", "9", "100%"]
        page.select_option("#limit", "share:0.05")
        page.wait_for_selector("#offers-over >> text=the limit of tflops")
        page.select_option("#limit", "auto")
        page.select_option("#effort", "full")
        page.wait_for_selector("#offers tr.chosen >> text=Full")
        ask(page, "Which colour does the cross have?", ("red", "blue"))
        answered(page)

        kept = page.locator("#sheet .cell.kept").count()
        assert 0 < kept < 9
        assert page.locator("#timeline rect.kept").count() == kept
        assert page.locator("#timeline .thumb.kept").count() == kept
        assert "importance" in page.get_attribute("#sheet .cell", "aria-label")
        assert page.locator(".row-probes span").count() == 0
        page.click("text=More settings")
        page.select_option("#probes", "fresh")
        page.click("#go")
        answered(page, 2)
        assert page.locator(".row-probes span").count() == page.locator(".column-probes span").count() == 3
        page.click("#timeline .thumb >> nth=-1")
        assert page.inner_text("#player figcaption").split(" ")[0] == page.inner_text("#timeline .thumb >> nth=-1")


def test_a_question_waits_for_the_upload(page: Any, site: Site, folder: Path) -> None:
    visit(page, site)
    page.route("**/uploads?*", lambda route: (page.click("#go"), route.continue_()), times=1)
    page.fill("#question", "Which?")
    page.set_input_files("#file", folder / "talk.mp4")
    answered(page)

    assert page.inner_text("#said strong") == "a red ball"


def test_a_cell_a_key_and_the_timeline_move_the_player(page: Any, site: Site) -> None:
    visit(page, site)
    choose(page)
    page.click("#sheet .cell >> nth=4")
    at_cell = shown_time(page)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    after_key = shown_time(page)
    page.click("#timeline .rail", position={"x": 1, "y": 20})

    assert 0 < at_cell < after_key
    assert shown_time(page) == 0.0


def test_a_part_is_chosen_on_the_timeline_and_only_it_is_shown(page: Any, site: Site) -> None:
    visit(page, site)
    choose(page)
    page.fill("#start", "soon")
    ask(page)
    page.wait_for_selector("#problem:not([hidden])")
    assert "Write times as 80, 1:20 or -30" in page.text_content("#problem")
    page.fill("#start", "-0.7")
    ask(page)
    answered(page)
    (session,) = site.service.sessions.all()
    latest = session.latest
    assert latest is not None and latest.spec.window == (-0.7, None)
    assert "&start=-0.7" in page.get_attribute("#sheet img", "src")
    assert "a=-0.7" in page.evaluate("location.hash")
    page.click("button[aria-label='Zoom in']")
    page.click("button[aria-label='Ask only about the part that is shown']")
    assert page.input_value("#start").startswith("0:0") and page.input_value("#end").startswith("0:0")


# S11 of tests/reliability.md
def test_without_the_codec_single_frames_are_shown(page: Any, site: Site) -> None:
    page.route("**/video", lambda route: route.fulfill(body="not a video", content_type="video/mp4"))
    visit(page, site)
    choose(page)
    page.wait_for_selector("#player .still", state="visible")
    page.click("#sheet .cell >> nth=8")

    assert "frame.jpg?t=1." in page.get_attribute("#player .still", "src")
    wait_until(lambda: page.evaluate("document.querySelector('#player .still').naturalWidth > 0"))
    assert "cannot play" in page.inner_text("#player figcaption")


def test_a_server_without_a_named_model_says_so_on_the_page(page: Any, site: Site) -> None:
    visit(page, site)
    assert page.is_hidden("#demo")
    site.service.demo = True
    page.reload()
    page.wait_for_selector("#demo", state="visible")
    assert "gridworld" in page.inner_text("#demo")


def test_a_question_that_the_built_in_model_refuses_is_explained_next_to_it(page: Any, folder: Path) -> None:
    service = VideoService(load_model("embedded:nano", implied=True), settings=Options(k=3), demo=True)
    with serving(folder, service) as site:
        page.set_viewport_size({"width": 390, "height": 844})
        visit(page, site)
        assert "triangle" in page.get_attribute("#question", "placeholder")
        page.set_input_files("#file", folder / "talk.mp4")
        page.wait_for_selector("#sheet .cell")
        page.wait_for_selector("#cancel", state="hidden")
        ask(page, "Who wrote to the mayor?", ("Anna", "Bob"))
        page.wait_for_selector("#problem", state="visible")
        said = page.inner_text("#problem")

        assert "knows only gridworld" in said and "mayor" in said
        assert "--" not in said and "gridprobe demo" not in said, "the reader of the page has no command line"
        assert page.locator("#problem button").count() == 0, "the same question would fail again"
        wait_until(lambda: "knows only gridworld" in page.inner_text("#where"))
        box = page.locator("#problem").bounding_box()
        assert 0 <= box["y"] < 844, "it is in sight"


def test_doubts_are_shown_next_to_the_answer(page: Any, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    run = site.model.run

    def doubtful(requests: Sequence[Request]) -> list[Response]:
        return [replace(each, mass=0.01) if isinstance(each, Posterior) else each for each in run(requests)]

    monkeypatch.setattr(site.model, "run", doubtful)
    visit(page, site)
    choose(page)
    ask(page)
    answered(page)

    (warning,) = page.locator("#headline .warnings li").all_inner_texts()
    assert "of its probability on the option letters" in warning
    assert page.locator(".warnings").count() == 1


def test_the_description_of_the_api_fits_on_a_phone(page: Any, site: Site) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{site.url}docs")
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_another_question_joins_the_conversation(page: Any, site: Site) -> None:
    visit(page, site)
    choose(page)
    ask(page, "First?")
    answered(page)
    assert page.inner_text("#another") == "Another question", "the model is not shown the first one"
    page.click("#another")
    assert page.input_value("#question") == ""
    page.fill("#question", "Second?")
    page.press("#question", "Enter")
    answered(page, 2)

    assert page.locator("#talk .q").all_inner_texts() == ["First?", "Second?"]
    assert page.inner_text("#asked") == "Second?"
    assert page.inner_text("#said").startswith("a red ball")
    page.click("#talk .turn >> nth=0")
    assert page.inner_text("#asked") == "First?"


def test_cancelling_ends_the_job(page: Any, site: Site) -> None:
    site.model.gate.clear()
    visit(page, site)
    choose(page)
    with page.expect_response("**/v1/gridprobe/jobs") as reply:
        ask(page)
    job = reply.value.json()["id"]
    wait_until(site.model.waiting.is_set)
    page.click("#cancel")
    page.wait_for_selector("#status >> text=Cancelled.")

    assert site.service.jobs.get(job).state == "cancelled"
    assert page.inner_text("#where") == "Not answered."
    assert page.is_enabled("#go")


def test_a_file_that_is_no_video_is_explained(page: Any, site: Site, tmp_path: Path) -> None:
    bad = tmp_path / "notes.mp4"
    bad.write_bytes(b"these are notes, and no video" * 50)
    visit(page, site)
    page.set_input_files("#file", bad)
    page.wait_for_selector("#problem", state="visible")

    assert "cannot be read as a video" in page.inner_text("#problem")
    assert page.is_visible("#problem >> text=Choose another video")


# S08 of tests/reliability.md
@pytest.mark.parametrize("killed", [False, True], ids=["in order", "killed"])
def test_a_restart_in_mid_job_is_said_and_the_question_can_be_asked_again(
    page: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, killed: bool
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    site = Site(folder)
    try:
        site.model.gate.clear()
        visit(page, site)
        page.set_input_files("#file", folder / "talk.mp4")
        page.wait_for_selector("#sheet .cell")
        page.wait_for_selector("#cancel", state="hidden")
        ask(page)
        wait_until(site.model.waiting.is_set)
        ((job, _),) = [each for each in site.service.jobs._jobs.items() if not each[1].over]
        if killed:  # what it has on disk now is what it leaves
            shutil.copytree(site.service.store.folder, tmp_path / f"{PREFIX}killed")
        site = site.restarted()
        assert (job in site.service.jobs._jobs) is killed, "otherwise it is unknown (404)"
        page.wait_for_selector("#problem >> text=restarted")
        page.click("#problem button >> text=Ask again")
        answered(page)
        assert page.inner_text("#said strong") == "one"
    finally:
        site.stop()


def test_a_full_queue_is_waited_for(page: Any, site: Site) -> None:
    error = {"error": {"message": "the queue is full", "type": "rate_limit_error", "param": None, "code": "busy"}}
    page.route(
        "**/v1/gridprobe/jobs",
        lambda route: route.fulfill(status=429, headers={"Retry-After": "2"}, body=json.dumps(error)),
        times=1,
    )
    visit(page, site)
    choose(page)
    ask(page)
    page.wait_for_selector("[data-countdown]")
    assert "Trying again in" in page.inner_text("[data-countdown]")
    answered(page)


# A16 of tests/reliability.md
def test_no_text_becomes_markup(page: Any, site: Site, folder: Path, tmp_path: Path) -> None:
    site.model._text = lambda request: {EVIL: 0.9, "nothing": 0.1}
    evil = tmp_path / f"{EVIL}.mp4"
    evil.write_bytes((folder / "talk.mp4").read_bytes())
    visit(page, site)
    page.evaluate(
        "evil => localStorage.setItem('gridprobe.history', JSON.stringify("
        "[{link: '#v=' + evil, question: evil, said: evil, name: evil}, {link: 'javascript:hacked=1'}]))",
        EVIL,
    )
    page.reload()
    page.wait_for_selector("html[data-ready=yes]")
    page.set_input_files("#file", evil)
    page.wait_for_selector("#sheet .cell")
    ask(page, EVIL, (EVIL, "two"))
    answered(page)
    ask(page, EVIL, ())
    answered(page, 2)
    texts = page.inner_text("body")
    said = page.inner_text("#said strong")
    page.goto(f"{site.url}#v={EVIL}&s={EVIL}&j={EVIL}&q={EVIL}&o={EVIL}&e={EVIL}&t={EVIL}")
    page.reload()
    page.wait_for_selector("#problem", state="visible")

    assert said == EVIL
    assert texts.count(EVIL) > 5
    assert page.locator('img[src="x"]').count() == 0
    assert page.evaluate("window.hacked === undefined")
    assert page.locator("a[href^=javascript]").count() == 0


def test_a_link_shows_the_same_view_again(page: Any, site: Site, chromium: Any) -> None:
    visit(page, site)
    choose(page)
    ask(page, "Which one?", ("one", "two"))
    answered(page)
    link = page.evaluate("location.hash")
    calls = len(site.model.calls)
    other = chromium.new_context().new_page()
    other.set_default_timeout(TIMEOUTS)
    visit(other, site, link)
    answered(other)

    assert other.inner_text("#said") == page.inner_text("#said")
    assert other.inner_text("#asked") == other.input_value("#question") == "Which one?"
    assert len(site.model.calls) == calls
    other.context.close()


def test_comparing_and_saving(page: Any, site: Site, tmp_path: Path) -> None:
    visit(page, site)
    choose(page)
    ask(page)
    answered(page)
    page.click("#against-uniform")
    page.wait_for_selector("#compared tbody tr:nth-child(2)")
    page.click("#against-small")
    page.wait_for_selector("#compared tbody tr:nth-child(3)")
    for button, beginning in (("json", b"{"), ("png", b"\x89PNG"), ("html", b"<!doctype html>")):
        with page.expect_download() as waiting:
            page.click(f"#save-{button}")
        file = tmp_path / f"saved.{button}"
        waiting.value.save_as(file)
        assert file.read_bytes()[:20].lower().startswith(beginning.lower())
        assert waiting.value.suggested_filename == f"talk-answer.{button}"


def test_a_phone_does_not_scroll_sideways_and_every_control_has_a_name(page: Any, site: Site) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    visit(page, site)
    before = page.evaluate("document.documentElement.scrollWidth")
    choose(page)
    ask(page, "Which " + "verylongword" * 20, ("o" * 300, "two"))
    answered(page)

    assert before == page.evaluate("document.documentElement.scrollWidth") == 390
    nameless = page.evaluate(
        "[...document.querySelectorAll('button, input, select, textarea, a, video, svg[role]')].filter("
        "each => !(each.labels?.length || each.getAttribute('aria-label') || each.textContent.trim())).length"
    )
    assert nameless == 0
