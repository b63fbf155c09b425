"""Profile: what was measured on a model with needles. It decides the settings that nobody chose.

Needles are synthetic questions about frames that were drawn for them, so it is known which frames show the answer.
`gridprobe profile MODEL` asks them; see `gridprobe_world.profiling`. A profile belongs to the model with its identity:
another dtype, quantization or engine is another model.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from gridprobe._util import parse_json, write_whole
from gridprobe.early_exit import VARIABLE, calibration_folder
from gridprobe.errors import DataError

MAX_BYTES = 1_000_000
MapFrom = Literal["attention", "when", "fresh", "none"]
HeadWeights = tuple[tuple[int, float], ...]
"""Numbers of attention heads, counted through all layers, and their weights."""


@dataclass(frozen=True)
class Profile:
    """What a model can do, as far as it was measured; None where it was not."""

    model: str
    """The model's identity."""
    reads: float | None = None
    """The share of needles that it reads in a single frame at full size."""
    mass: float | None = None
    """The share of its probability that is on the option letters."""
    order_bias: float | None = None
    """How much it likes one letter where the frames show no answer: from 0 to 1."""
    small: int | None = None
    """The longer side of small frames, in pixels."""
    k: int | None = None
    """K² frames can be shown in one pass."""
    probes: MapFrom | None = None
    """What the map is made from; "none" if no way finds the evidence."""
    heads: HeadWeights = ()
    """The attention heads that find the evidence; none for the mean of all."""
    found: int = 0
    """In how many needles that nothing was chosen by the map finds the evidence."""
    needles: int = 0
    """How many these were."""
    context: Literal["small", "overview"] | None = None
    """Whether close-ups are read among the small frames or behind the overview."""
    large: int | None = None
    """As many large frames are enough to read what the overview could not."""
    exit: float | None = None
    """The confidence at which overviews were right."""
    overviews: int = 0
    """How many passes over many frames all this took."""
    seconds: float = 0.0

    def __str__(self) -> str:
        parts = [
            f"map from {len(self.heads)} heads" if self.heads else f"map from {self.probes}" if self.probes else "",
            f"{self.found} of {self.needles} needles" if self.needles else "",
            f"small frames {self.small} px" if self.small else "",
            f"K = {self.k}" if self.k else "",
            {None: "", "small": "close-ups in order", "overview": "close-ups behind the overview"}[self.context],
            f"at most {self.large} of them" if self.large else "",
            f"exit at {self.exit:g}" if self.exit is not None else "",
        ]
        return ", ".join(filter(None, parts)) or "nothing measured"

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "heads": [list(each) for each in self.heads]}

    @classmethod
    def parse(cls, content: bytes, where: str) -> "Profile":
        """From JSON; everything is checked, since it may be anybody's file."""
        try:
            values = parse_json(content)
        except ValueError as error:
            raise _damaged(where, f"it is not JSON ({error})") from None
        names = {each.name for each in fields(cls)}
        if not isinstance(values, Mapping) or "model" not in values or not set(values) <= names:
            raise _damaged(where, f"it must be an object with the fields {', '.join(sorted(names))}")
        for name, value in values.items():
            if not CHECKS[name](value):
                raise _damaged(where, f"{name} is {value!r:.60}")
        return cls(**{**values, "heads": tuple((number, float(weight)) for number, weight in values.get("heads", ()))})


def _is_number(value: Any, low: float = 0.0, high: float = 1.0, *, whole: bool = False) -> bool:
    return type(value) in ((int,) if whole else (int, float)) and low <= value <= high


def _is_head(value: Any) -> bool:
    pair = isinstance(value, list) and len(value) == 2
    return pair and _is_number(value[0], 0, 1e6, whole=True) and _is_number(value[1], 0, 1e6)


def _is_share(value: Any) -> bool:
    return value is None or _is_number(value)


CHECKS = {
    "model": lambda value: isinstance(value, str),
    **dict.fromkeys(("reads", "mass", "order_bias", "exit"), _is_share),
    "small": lambda value: value is None or _is_number(value, 16, 8192, whole=True),
    "k": lambda value: value is None or _is_number(value, 1, 64, whole=True),
    "large": lambda value: value is None or _is_number(value, 1, 4096, whole=True),
    "probes": lambda value: value is None or value in get_args(MapFrom),
    "context": lambda value: value in (None, "small", "overview"),
    "heads": lambda value: isinstance(value, list) and len(value) <= 10_000 and all(map(_is_head, value)),
    **dict.fromkeys(("found", "needles", "overviews"), lambda value: _is_number(value, 0, 1e6, whole=True)),
    "seconds": lambda value: _is_number(value, 0, 1e9),
}
"""Field -> whether a value may stand there."""


def _damaged(where: str, why: str) -> DataError:
    return DataError(f"the profile {where} cannot be used: {why}; measure again with gridprobe profile")


# Where profiles are kept: next to the user's calibrations, one JSON file for each model, replaced as a whole.


def read_profile(file: Path, *, model: str = "") -> Profile:
    """A profile from a file; of the model with this identity, if one is given."""
    try:
        with file.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise DataError(f"cannot read the profile {file}: {error.strerror}") from None
    if len(content) > MAX_BYTES:
        raise _damaged(str(file), f"it has more than {MAX_BYTES:,} bytes")
    profile = Profile.parse(content, str(file))
    if model and profile.model != model:
        raise _damaged(str(file), f"it was measured on {profile.model:.120}, not on {model}")
    return profile


def find_profile(model: str) -> Profile | None:
    """What was measured on the model with this identity, if it was."""
    file = _file_of(model)
    return read_profile(file, model=model) if file is not None and file.is_file() else None


def write_profile(profile: Profile, file: Path | None = None) -> Path:
    """Keep a profile in a file, or else among the user's, in place of an older one."""
    file = file or _file_of(profile.model)
    if file is None:
        raise DataError(f"there is no folder for profiles; set {VARIABLE} to one, or name a file with --out")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, json.dumps(profile.to_dict(), indent=1, allow_nan=False).encode())
    except OSError as error:
        raise DataError(f"cannot write the profile to {file}: {error.strerror}; set {VARIABLE}") from error
    return file


def _file_of(model: str) -> Path | None:
    folder = calibration_folder()
    return folder and folder / f"profile-{hashlib.sha256(model.encode()).hexdigest()[:16]}.json"
