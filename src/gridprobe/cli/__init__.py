"""The command line: one file per verb; each parses, calls the library and prints.

Results go to stdout, progress and notices to stderr. A user's mistake is one sentence and exit code 2, a failure of
the input or the model one sentence and exit code 1, Ctrl-C exit code 130; a traceback is a bug of ours.
"""

from typing import Any

import click

from gridprobe._version import __version__
from gridprobe.cli.ask import ask
from gridprobe.cli.console import printable
from gridprobe.cli.demo import demo
from gridprobe.cli.doctor import doctor
from gridprobe.cli.evaluate import evaluate
from gridprobe.cli.keyframes import export
from gridprobe.cli.listing import listing
from gridprobe.cli.plan import plan
from gridprobe.cli.report import report
from gridprobe.cli.score import score_runs
from gridprobe.cli.status import status
from gridprobe.cli.verify import verify_data
from gridprobe.errors import GridProbeError

__all__ = ["cli", "main"]


class _OneSentence(click.ClickException):
    """One of our own errors, as click shows it."""

    def __init__(self, error: GridProbeError) -> None:
        super().__init__(printable(str(error)))
        vars(self)["exit_code"] = error.exit_code

    def show(self, file: Any = None) -> None:
        click.echo(f"gridprobe: {self.message}", err=True, file=file)


class _Commands(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except GridProbeError as error:
            raise _OneSentence(error) from error
        except KeyboardInterrupt:
            click.echo("gridprobe: interrupted", err=True)
            ctx.exit(130)


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="First steps: gridprobe demo; gridprobe ask talk.mp4 'Which city comes first?' -o Oslo -o Rome --model DIR",
)
@click.version_option(__version__, prog_name="gridprobe")
def cli() -> None:
    """Ask long videos questions with a vision-language model, and pay only for the frames that matter."""


for command in (ask, demo, doctor, evaluate, export, listing, plan, report, score_runs, status, verify_data):
    cli.add_command(command)


def main() -> None:
    """Entry point of the `gridprobe` command."""
    cli()
