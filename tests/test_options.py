"""Options and plans: what presets resolve to."""

import json

from golden import plans


def test_every_preset_resolves_to_the_plan_on_file() -> None:
    """A difference is one in run folders and calibrations: if it is meant, run tests/golden/plans.py and say so in the
    changelog."""
    assert plans.plans() == json.loads(plans.FILE.read_text(encoding="utf-8"))
