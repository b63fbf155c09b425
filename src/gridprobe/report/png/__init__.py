"""An answer as a PNG."""

from gridprobe.report.png.picture import save_map

__all__ = ["save_map"]
