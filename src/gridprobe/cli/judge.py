"""gridprobe judge: let a model judge answers in words."""

from pathlib import Path

import click
from rich.text import Text

from gridprobe.backends import load_model
from gridprobe.cli.console import printable, progress, quiet_option, stdout, verbose_option
from gridprobe.cli.help import Verb
from gridprobe.evaluation.reader import read_run
from gridprobe.evaluation.texts import PROMPT, judge

__all__ = ["judge_run"]


@click.command(
    "judge",
    cls=Verb,
    examples=("gridprobe judge runs/open -m Qwen/Qwen3-VL-8B-Instruct",),
    epilog=f"The judge is asked, with the options yes and no: {PROMPT}",
)
@click.argument("run", type=click.Path(path_type=Path))
@click.option("-m", "--model", required=True, envvar="GRIDPROBE_JUDGE", metavar="NAME", help="The judging model.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:N.")
@click.option("--dtype", default="auto", show_default=True, help="auto, float32, bfloat16 or float16.")
@quiet_option
@verbose_option
def judge_run(run: Path, model: str, device: str, dtype: str) -> None:
    """Let a model judge the answers in words of RUN; `gridprobe score --all` then shows its share of accepted ones."""
    found = read_run(run)
    with progress():
        count = judge(found, load_model(model, device=device, dtype=dtype))
    if not count:
        stdout().print(Text(printable(f"{run} has no further answers in words that could be judged")))
        return
    stdout().print(Text(printable(f"{count} answers judged; see gridprobe score {run} --all")))
