"""Make every picture under docs/images again (make pictures); about a minute on two cores.

    needle.png    what `gridprobe ask --map` writes for the demo's first question
    ask.svg       the same command in a terminal, animated, from its real output
    beyond.svg    accuracy over compute, from the lines under speed/results
    page.png      the server's page after that question; only where Chromium is installed

python speed/pictures.py --out docs/images
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import terminal_svg

ROOT = Path(__file__).parents[1]
WIDTH = 80


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    out = parser.parse_args().out.resolve()
    needle(out)
    lines = ROOT / "speed" / "results" / "method-fresh.jsonl.gz"
    _python(ROOT / "speed" / "method_plot.py", lines, "--exit", "0.99", "--out", out / "beyond.svg")
    if browser := shutil.which("chromium"):
        _python(ROOT / "speed" / "page_picture.py", browser, out / "page.png")
    else:
        print("page.png was not made: Chromium is not installed", file=sys.stderr)


def needle(out: Path) -> None:
    """Ask the demo's first question on the command line; keep its picture and what it prints."""
    from gridprobe_world import demo

    asked = demo.questions()["needle"]
    with tempfile.TemporaryDirectory() as folder:
        demo.write(Path(folder) / demo.VIDEO)
        options = [word for option in asked.options for word in ("-o", option)]
        words = ["ask", demo.VIDEO, asked.text, *options, "--preset", demo.PRESET, "-v", "--map", "needle.png"]
        printed = _python("-m", "gridprobe", *words, folder=Path(folder))
        (out / "needle.png").write_bytes((Path(folder) / "needle.png").read_bytes())
    command = shlex.join(["gridprobe", *words]).replace("'", '"')
    (out / "ask.svg").write_text(terminal_svg.animated(command, printed, width=WIDTH), encoding="utf-8")


def _python(*arguments: object, folder: Path = ROOT) -> str:
    """Run Python as in a terminal with 80 columns and all colours; return what it prints."""
    terminal = {"COLUMNS": str(WIDTH), "FORCE_COLOR": "1", "COLORTERM": "truecolor", "PYTHONUTF8": "1"}
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, **terminal, "TERM": "xterm-256color", "PYTHONPATH": path, "GRIDPROBE_MODEL": ""}
    environment.pop("NO_COLOR", None)
    run = [sys.executable, *map(str, arguments)]
    return subprocess.run(run, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout


if __name__ == "__main__":
    main()
