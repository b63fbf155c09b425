"""The command line: one module per command; each parses its arguments, calls the library and prints the result.

Results go to stdout, progress and notices to stderr. An error is one sentence; the exit code is 2 for wrong usage, 1 if
the input or the model fails, and 130 after Ctrl-C. A traceback is a bug in gridprobe.
"""

import errno
import os
import sys
from typing import Any

import click

from gridprobe import __version__
from gridprobe.cli.console import Stopped, printable
from gridprobe.cli.help import Root
from gridprobe.errors import GridProbeError

__all__ = ["cli", "main"]


class _OneSentence(click.ClickException):
    """A GridProbeError, printed by click as one sentence."""

    def __init__(self, error: GridProbeError) -> None:
        super().__init__(printable(str(error)))
        vars(self)["exit_code"] = error.exit_code

    def show(self, file: Any = None) -> None:
        print(f"gridprobe: {self.message}", file=file or sys.stderr)  # click.echo writes UTF-8 to an ASCII stream


class _Commands(Root):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except GridProbeError as error:
            raise _OneSentence(error) from error
        except click.UsageError as error:
            vars(error)["message"] = printable(error.message)  # it can quote an argument, such as a file's name
            raise
        except Stopped as error:
            click.echo(f"gridprobe: ended by {error}", err=True)
            ctx.exit(error.exit_code)
        except KeyboardInterrupt:
            click.echo("gridprobe: interrupted", err=True)
            ctx.exit(130)


EPILOG = """\
First steps: gridprobe demo, then gridprobe help ask.

Exit codes: 0 success, 1 the input or the model fails, 2 wrong usage, 130 Ctrl-C.
"""


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog=EPILOG,
)
@click.version_option(__version__, prog_name="gridprobe")
def cli() -> None:
    """Ask questions about long videos with a vision-language model that sees only the frames that matter."""


def main() -> None:
    """Run the command line; output that cannot be written, as on a full disk, is one sentence."""
    try:
        try:
            cli()
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.filename is not None or error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at its end
        print(f"gridprobe: cannot write to standard output: {error.strerror}", file=sys.stderr)
        sys.exit(1)
