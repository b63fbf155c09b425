"""python -m gridprobe."""

from gridprobe_start import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
