"""The `gridprobe` command. Importing the package takes half a second; Ctrl-C meanwhile is no traceback."""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    try:
        from gridprobe.cli import main as run

        run()
    except KeyboardInterrupt:
        print("gridprobe: interrupted", file=sys.stderr)
        sys.exit(130)
