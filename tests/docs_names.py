"""The docs use names that the code is about to have; until then their code runs with today's. Delete this file then."""

import inspect
import re
from pkgutil import resolve_name

import gridprobe as gp

COMING = (
    ("gridprobe.models:Posterior", r"gridprobe\.models\b", "gridprobe.backends"),
    ("gridprobe.options:Options", r"gridprobe\.options\b", "gridprobe.settings"),
    ("gridprobe.options:Options", r"\bOptions\b", "Options"),
    ("gridprobe:MockModel", r"\bMockModel\b", "MockModel"),
    ("gridprobe:Selector.input_size", r"\binput_size\b", "looks_at"),
    ("gridprobe_world:__name__", r"\bgridprobe_world\b", "gridprobe.gridworld"),
    ("gridprobe_selectors:__name__", r"\bgridprobe_selectors\b", "gridprobe.encoders"),
)
"""What shows that a name is there, the name, and what it is called today."""


def today(code: str) -> str:
    """Code of a page with the names that the package has."""
    for evidence, name, old in COMING:
        try:
            resolve_name(evidence)
        except (ImportError, AttributeError):
            code = re.sub(name, old, code)
    if "options" not in inspect.signature(gp.ask).parameters:
        code = re.sub(r'(gp\.ask\("[^"]*", )("[^"]*", options=\[[^]]*\])', r"\1gp.Question(\2)", code)
    return code
