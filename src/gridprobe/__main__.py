"""The `gridprobe` command, also `python -m gridprobe`. Ctrl-C ends it with one line and exit code 130, at any moment.

Only Python's own start, until this module is imported, cannot be helped. While a command works, Ctrl-C is a
KeyboardInterrupt (see `interruptible` in `gridprobe.cli.console`), so that files are closed. Before and after that,
while modules are imported and threads are waited for, there is nothing to save and the process ends at once.
"""

import atexit
import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130


def end_at_once(number: int, frame: FrameType | None) -> None:
    """Handle Ctrl-C where nothing needs to be saved."""
    os.write(2, b"gridprobe: interrupted\n")
    os._exit(INTERRUPTED)


def finish(codes: list[int]) -> None:
    """Spare the rest of Python's end, where Ctrl-C would kill the process and an interrupted run can lose its code."""
    if codes:
        os._exit(codes[0])
    if signal.getsignal(signal.SIGINT) is end_at_once:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def main() -> None:
    """Run the command line."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # it is ignored behind nohup, and stays so
        signal.signal(signal.SIGINT, end_at_once)
    codes: list[int] = []
    atexit.register(finish, codes)  # the first to be registered runs last
    try:
        from gridprobe.cli import main as run

        run()
    except KeyboardInterrupt:
        print("gridprobe: interrupted", file=sys.stderr)
        codes.append(INTERRUPTED)
    except SystemExit as end:
        if end.code == INTERRUPTED:
            codes.append(INTERRUPTED)
        raise
    if codes:
        sys.exit(codes[0])


if __name__ == "__main__":
    main()
