"""Writes plans.json: what the plan of every preset, and of some changes on top, says about itself.

Run folders and calibrations store these values, so a difference here is one that users see. Run it from anywhere:

    python tests/golden/plans.py
"""

import json
from pathlib import Path
from typing import Any

from gridprobe.options import PRESETS, Options

FILE = Path(__file__).with_name("plans.json")

CASES: dict[str, dict[str, Any]] = {
    **{preset: {"preset": preset} for preset in PRESETS},
    "k=8": {"k": 8},
    "frames=8": {"frames": 8},
    "frames=8 in paper": {"preset": "paper", "frames": 8},
    "frames=shape:0.5": {"preset": "paper", "frames": "shape:0.5"},
    **{f"effort={effort}": {"effort": effort} for effort in ("quick", "full", "focus")},
    "refine": {"refine": True},
    "rotations=4": {"rotations": 4},
    "confidence": {"exit_confidence": 0.9},
    "importance": {"preset": "paper", "show": "importance"},
    "collage": {"effort": "focus", "show": "collage"},
    "collage in paper": {"preset": "paper", "show": "collage"},
    "probes as collages": {"preset": "paper", "probe_input": "collage"},
    "probes decoded small": {"preset": "paper", "probe_input": "small"},
    "context": {"effort": "focus", "context": "small"},
    "chunk": {"chunk": 32},
    "limits": {"max_frames": 6, "max_seconds": 20},
    "uniform": {"selector": "uniform", "frames": 8},
    "random": {"selector": "random:3", "frames": 8},
    "siglip": {"selector": "siglip", "frames": 8},
    "clip in paper": {"selector": "clip", "preset": "paper"},
    "mdp3 in gridworld": {"selector": "mdp3", "preset": "gridworld", "frames": 8},
    "aks with another encoder": {"selector": "aks:siglip:google/siglip2-base-patch16-224", "frames": 8},
}


def described(preset: str = "default", selector: str = "gridprobe", **changes: Any) -> dict[str, Any]:
    """The plan's own words; no model is loaded."""
    options = Options.from_preset(preset, **changes)
    return options.resolve(model="embedded", selector=selector).describe()


def plans() -> dict[str, Any]:
    """Every case, as JSON reads it back."""
    made: dict[str, Any] = json.loads(json.dumps({name: described(**case) for name, case in CASES.items()}))
    return made


if __name__ == "__main__":
    FILE.write_text(json.dumps(plans(), indent=1) + "\n", encoding="utf-8")
