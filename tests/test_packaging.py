"""What users install: the wheel and the sdist are built, and the wheel is used in environments of its own."""

import json
import os
import shutil
import site
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from videos import numbered_video

pytestmark = pytest.mark.release
ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"
PACKAGES = (
    "gridprobe",
    "gridprobe_eval",
    "gridprobe_find",
    "gridprobe_selectors",
    "gridprobe_serve",
    "gridprobe_watch",
    "gridprobe_speech",
    "gridprobe_world",
)
LIGHT = {"av", "click", "gridprobe", "jinja2", "markdown-it-py", "markupsafe", "mdurl", "numpy", "pillow"}
LIGHT |= {"pygments", "rich"}
"""gridprobe, its base dependencies and what they need."""
ASK = """
import json
from pathlib import Path
from gridprobe_world import demo
demo.SECONDS = 60
demo.write(Path("gridworld.mp4"))
question = demo.questions()["needle"]
print(json.dumps([question.text, question.options, question.answer]))
"""
"""Makes the video of the demo, a minute long, and prints one of its questions."""


class Built(NamedTuple):
    """The files of a release."""

    wheel: Path
    sdist: Path


class Environment:
    """A virtual environment without pip, so that nothing is in it but what a test installs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        call(sys.executable, "-m", "venv", "--without-pip", folder)

    def install(self, *arguments: object) -> None:
        call(sys.executable, "-m", "pip", "--python", self.python, "install", "--quiet", *arguments, cwd=self.folder)

    def gridprobe(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        return start(self.folder / "bin" / "gridprobe", *arguments, cwd=self.folder)

    def run(self, program: str) -> str:
        return call(self.python, "-c", program, cwd=self.folder)

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def packages(self) -> Path:
        (folder,) = self.folder.glob("lib/python*/site-packages")
        return folder


def start(*command: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command that sees neither the source tree nor a model of the user's."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "GRIDPROBE_MODEL")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    return subprocess.run([*map(str, command)], cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def call(*command: object, cwd: Path | None = None) -> str:
    done = start(*command, cwd=cwd)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The sdist, and the wheel made from it.

    They are built from a copy without build/ and *.egg-info, whose leftovers setuptools would pack too. The build uses
    this environment's setuptools, which constraints.txt pins, and downloads nothing.
    """
    tree = tmp_path_factory.mktemp("tree")
    for file in filter(Path.is_file, ROOT.iterdir()):
        shutil.copy(file, tree)
    for folder in ("docs", "speed", "src", "tests"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    call(sys.executable, "-m", "build", "--no-isolation", tree)
    (wheel,), (sdist,) = ((tree / "dist").glob(pattern) for pattern in ("*.whl", "*.tar.gz"))
    return Built(wheel, sdist)


@pytest.fixture(scope="session")
def plain(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """`pip install gridprobe`: the base dependencies come from the index, or from pip's cache after `make setup`."""
    environment = Environment(tmp_path_factory.mktemp("plain"))
    environment.install("--constraint", ROOT / "constraints.txt", built.wheel)
    yield environment
    shutil.rmtree(environment.folder)  # pytest would keep three of them, 235 MB each


@pytest.fixture(scope="session")
def local(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """`pip install 'gridprobe[local]'`, but torch and the like are those of the environment that runs the tests.

    A second torch would cost a minute and gigabytes. A .pth file appends this environment's packages to sys.path, after
    the wheel's own; the .pth file of gridprobe's editable install is not read there. The last step installs nothing: it
    fails if what the wheel requires for [local] is not here.
    """
    environment = Environment(tmp_path_factory.mktemp("local"))
    environment.install("--no-index", "--no-deps", built.wheel)
    (environment.packages / "heavy.pth").write_text("\n".join(site.getsitepackages()))
    environment.install("--no-index", "gridprobe[local]")
    return environment


def test_the_wheel_holds_the_package_and_nothing_else(built: Built) -> None:
    files = [file for package in PACKAGES for file in (SOURCE / package).rglob("*")]
    expected = {file.relative_to(SOURCE).as_posix() for file in files if file.is_file() and file.suffix != ".pyc"}

    with zipfile.ZipFile(built.wheel) as wheel:
        packed = {name for name in wheel.namelist() if ".dist-info/" not in name}

    assert packed == expected


def test_the_wheel_is_below_40_mb(built: Built) -> None:
    assert built.wheel.stat().st_size < 40_000_000


@pytest.mark.parametrize(
    "name",
    [
        *(f"{package}/py.typed" for package in PACKAGES),
        "gridprobe/report/templates/runs.js",
        "gridprobe/schemas/answer.json",
        "gridprobe_serve/page/index.html",
        "gridprobe_world/weights/vocabulary.json",
        *(f"gridprobe_world/weights/{size}/model.safetensors" for size in ("micro", "nano", "clip")),
        "gridprobe_world/weights/micro/tokenizer.json",
    ],
)
def test_a_data_file_is_in_the_wheel(name: str, built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as wheel:
        assert wheel.read(name) == (SOURCE / name).read_bytes()


def test_the_sdist_holds_the_source_without_the_tests(built: Built) -> None:
    with tarfile.open(built.sdist) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}

    assert {"LICENSE", "README.md", "pyproject.toml", "src"} <= names
    assert not {"docs", "speed", "tests"} & {name.partition("/")[0] for name in names}


class TestWithoutExtras:
    def test_only_the_base_dependencies_are_installed(self, plain: Environment) -> None:
        listed = plain.run(
            "from importlib.metadata import distributions; print(*(each.name for each in distributions()))"
        )

        assert {name.lower() for name in listed.split()} == LIGHT

    @pytest.mark.parametrize("arguments", [["--help"], ["doctor"], ["list", "models"]], ids=" ".join)
    def test_a_command_works(self, arguments: list[str], plain: Environment) -> None:
        done = plain.gridprobe(*arguments)

        assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
        assert done.stdout

    def test_contact_sheets_are_made(self, plain: Environment, tmp_path: Path) -> None:
        video = numbered_video(tmp_path / "talk.mp4", 100)

        done = plain.gridprobe("watch", video, "--json", "--out", tmp_path / "out")

        assert (done.returncode, done.stderr) == (0, "")
        (sheet,) = json.loads(done.stdout)["sheets"]
        assert Path(sheet["file"]).read_bytes()[:2] == b"\xff\xd8" and sheet["tokens"] <= 1600

    def test_a_question_names_the_extra_that_is_missing(self, plain: Environment, tmp_path: Path) -> None:
        video = numbered_video(tmp_path / "clip.mp4", 30)

        done = plain.gridprobe("ask", video, "What colour is the circle?", "-o", "red", "-o", "blue")

        assert (done.returncode, done.stdout) == (1, "")
        assert "pip install 'gridprobe[local]'" in done.stderr and "Traceback" not in done.stderr


class TestWithLocalModels:
    def test_gridprobe_is_the_wheel(self, local: Environment) -> None:
        assert Path(local.run("import gridprobe; print(gridprobe.__file__)")).parents[1] == local.packages

    def test_a_question_of_the_demo_is_answered(self, local: Environment) -> None:
        text, options, right = json.loads(local.run(ASK))
        listed = [word for option in options for word in ("-o", option)]

        done = local.gridprobe("ask", "gridworld.mp4", text, *listed, "--preset", "gridworld", "--json")

        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        assert answer["models"]["answerer"].startswith("embedded:micro@")
        assert answer["choice"] == right
