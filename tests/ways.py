"""Options that several tests share."""

from typing import Any

PUBLISHED: dict[str, Any] = {"effort": "focus", "probes": "fresh", "frames": "shape", "context": "none"}
"""Row and column probes, the shape rule, and the kept frames alone; everything else as it is by default."""

OURS: dict[str, Any] = {"effort": None, "probes": "attention", "frames": "noise", "context": None}
"""The defaults of the same."""
