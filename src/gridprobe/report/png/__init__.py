"""The map of an answer as a PNG file."""

from gridprobe.report.png.picture import save_map

__all__ = ["save_map"]
