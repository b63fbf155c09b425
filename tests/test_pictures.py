"""The pictures of the documentation can be made again, and have true colours."""

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from browser import CHROMIUM
from gridprobe_world.world import COLOURS

pytestmark = pytest.mark.release
ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs" / "images"
PICTURES = {"needle.png": 600_000, "ask.svg": 120_000, "beyond.svg": 20_000, "page.png": 900_000}
"""Every picture, and the most bytes it may have."""


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    made = [sys.executable, str(ROOT / "speed" / "pictures.py"), "--out", str(folder)]
    subprocess.run(made, check=True, capture_output=True)
    return folder


@pytest.fixture(params=["docs", "fresh"])
def folder(request: pytest.FixtureRequest) -> Path:
    """The pictures in the repository, and those that the script makes now."""
    return DOCS if request.param == "docs" else request.getfixturevalue("fresh")


def test_there_are_no_others_and_all_are_small(folder: Path) -> None:
    found = {file.name for file in folder.iterdir()}
    assert found == set(PICTURES) - (set() if folder == DOCS or CHROMIUM else {"page.png"})
    for name, most in PICTURES.items():
        if name not in found:
            continue
        assert 2_000 < (folder / name).stat().st_size < most


def test_the_needle_has_the_colours_of_the_video(folder: Path) -> None:
    with Image.open(folder / "needle.png") as image:
        assert (image.mode, image.width) == ("RGB", 1280)
        pixels = np.asarray(image).astype(int)
    for colour, least in (("cyan", 5_000), ("red", 5_000)):  # the triangle and the cross of the large frames
        wanted = np.array([round(255 * part) for part in COLOURS[colour]])
        near = np.abs(pixels[:1000] - wanted).max(axis=2) <= 8
        assert np.count_nonzero(near) > least, colour


def test_the_pictures_in_the_repository_are_the_ones_the_script_makes(fresh: Path) -> None:
    with Image.open(DOCS / "needle.png") as old, Image.open(fresh / "needle.png") as new:
        assert old.size == new.size
        assert np.abs(np.asarray(old).astype(int) - np.asarray(new).astype(int)).mean() < 1
    assert (DOCS / "beyond.svg").read_text() == (fresh / "beyond.svg").read_text()


def test_the_terminal_shows_the_whole_answer_and_loads_nothing(folder: Path) -> None:
    text = (folder / "ask.svg").read_text(encoding="utf-8")
    drawn = ElementTree.fromstring(text)
    words = "\n".join("".join(group.itertext()) for group in drawn.iter() if group.tag.endswith("}g"))

    for part in ("gridprobe ask", "seen at 2:40–2:44, in 2 of 144 frames", "row by row", "% of the compute of showing"):
        assert part in words
    assert "href" not in text and "url(" not in text and "<script" not in text
    assert text.count("http") == 1  # the name of the format
