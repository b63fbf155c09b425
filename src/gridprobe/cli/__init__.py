"""The command line: one module per command; each parses its arguments, calls the library and prints the result.

Results go to stdout, progress and notices to stderr. An error is one sentence; the exit code is 2 for wrong usage, 1 if
the input or the model fails, and 130 after Ctrl-C. A traceback is a bug in gridprobe.
"""

import errno
import os
import sys

import click

from gridprobe import __version__
from gridprobe.cli.help import Root

__all__ = ["cli", "main"]


EPILOG = """\
First steps: gridprobe demo, then gridprobe help ask.

Exit codes: 0 success, 1 the input or the model fails, 2 wrong usage, 130 Ctrl-C.
"""


@click.group(
    cls=Root,
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
