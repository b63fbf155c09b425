"""Writes plans.json: what the plan of every preset, and of some changes on top, says about itself.

Run folders and calibrations store these values, so a difference here is one that users see. Run it from anywhere:

    python tests/golden/plans.py
"""

import json
from pathlib import Path
from typing import Any

from gridprobe.options import PRESETS, Options, make_plan

FILE = Path(__file__).with_name("plans.json")

CASES: dict[str, dict[str, Any]] = {
    **{preset: {"preset": preset} for preset in PRESETS},
    "k=8": {"k": 8},
    "frames=8": {"frames": 8},
    "frames=8 in paper": {"preset": "paper", "frames": 8},
    "budget shape:0.5": {"preset": "paper", "budget": "shape:0.5"},
    **{f"effort={effort}": {"effort": effort} for effort in ("quick", "full", "focus")},
    "refine": {"refine": True},
    "rotations=4": {"rotations": 4},
    "confidence": {"sure": 0.9},
    "importance": {"preset": "paper", "order": "importance"},
    "collage": {"effort": "focus", "collage": True},
    "collage in paper": {"preset": "paper", "collage": True},
    "probes as collages": {"preset": "paper", "probe_view": "collage"},
    "probes decoded small": {"preset": "paper", "decoded": "probe"},
    "context": {"effort": "focus", "context": "small"},
    "window": {"window": 32},
    "limits": {"usage_limits": {"max_frames": 6, "max_seconds": 20}},
    "uniform": {"selector": "uniform", "frames": 8},
    "random": {"selector": "random", "frames": 8, "seed": 3},
    "siglip": {"selector": "siglip", "frames": 8},
    "clip in paper": {"selector": "clip", "preset": "paper"},
    "mdp3 in gridworld": {"selector": "mdp3", "preset": "gridworld", "frames": 8},
    "aks with another encoder": {"selector": "aks", "frames": 8, "encoder": "siglip:google/siglip2-base-patch16-224"},
}


def described(preset: str = "default", selector: str = "gridprobe", **changes: Any) -> dict[str, Any]:
    """The plan's own words; no model is loaded."""
    options = Options.from_preset(preset, **changes)
    return make_plan(model="embedded", selector=selector, settings=options).describe()


def plans() -> dict[str, Any]:
    """Every case, as JSON reads it back."""
    made: dict[str, Any] = json.loads(json.dumps({name: described(**case) for name, case in CASES.items()}))
    return made


if __name__ == "__main__":
    FILE.write_text(json.dumps(plans(), indent=1) + "\n", encoding="utf-8")
