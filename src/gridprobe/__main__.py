"""The `gridprobe` command, also `python -m gridprobe`. Ctrl-C while the command line is imported is no traceback."""

import sys


def main() -> None:
    """Run the command line."""
    try:
        from gridprobe.cli import main as run

        run()
    except KeyboardInterrupt:
        print("gridprobe: interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
