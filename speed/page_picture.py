"""A picture of the server's page after the demo's first question, taken in Chromium.

python speed/page_picture.py /usr/bin/chromium docs/images/page.png
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, ViewportSize, sync_playwright

from gridprobe_world import demo

SIZE: ViewportSize = {"width": 1280, "height": 880}
PATIENCE_MS = 600_000


def main(browser: str, out: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        demo.write(Path(folder) / demo.VIDEO)
        options = ["--model", "embedded", "--preset", demo.PRESET, "--port", "0"]
        command = [sys.executable, "-m", "gridprobe", "serve", *options, "--videos", folder]
        environment = {**os.environ, "GRIDPROBE_CACHE": str(Path(folder) / "cache")}  # keeps the model's speed
        server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        try:
            assert server.stderr is not None
            address = next(found[1] for line in server.stderr if (found := re.search(r"serving at (\S+)", line)))
            with sync_playwright() as driver:
                page = driver.chromium.launch(executable_path=browser, args=["--no-sandbox"]).new_page(viewport=SIZE)
                page.set_default_timeout(PATIENCE_MS)
                ask(page, address)
                page.screenshot(path=out)
        finally:
            server.send_signal(signal.SIGTERM)
            server.communicate()


def ask(page: Page, address: str) -> None:
    """Ask the question and wait until everything stands still."""
    asked = demo.questions()["needle"]
    page.emulate_media(reduced_motion="reduce")
    page.goto(address)
    page.wait_for_selector("html[data-ready=yes]")
    page.select_option("#folder", demo.VIDEO)
    page.wait_for_selector("#sheet .cell")
    page.fill("#question", asked.text)
    page.fill("#options", "\n".join(asked.options))
    page.click("#go")
    page.wait_for_selector("#after", state="visible")
    page.wait_for_selector("#offers td:nth-child(4)")
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(1000)  # the player draws the frame it was moved to


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
