"""Names -> what makes the value: backends, model families, encoders, selectors, budgets and benchmarks.

A name such as "keyframes:chosen.json" is an entry's name, a colon and an argument. An entry names its code as
"module:attribute" or "module" and is imported when it is first used, so listing names loads nothing heavy. Other
packages add entries through entry points of the groups "gridprobe.selectors", "gridprobe.models",
"gridprobe.encoders", "gridprobe.budgets", "gridprobe.benchmarks", "gridprobe.profilers", "gridprobe.transcribers" and
"gridprobe.commands". An entry point names either the code, or an `Entry` that describes it: a constant in a module that
is quick to import.

Only `ask()`, `Session()`, `load_model()`, `load_benchmark()` and the command line take names. Everything behind them
takes values.
"""

import difflib
import importlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, reduce
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal, cast

from gridprobe._util import one_line
from gridprobe.errors import ModelError, UsageError


@dataclass(frozen=True)
class Entry:
    """One line of a registry."""

    target: str
    """Where the code is: "module:attribute", or "module" for a module that has the functions the registry asks for."""
    help: str
    argument: str = ""
    """What follows the name and a colon, for the help page: "FILE" is shown as "keyframes:FILE"."""
    optional: bool = False
    """Whether the argument may be left out."""
    extra: str = ""
    """The extra of the package that installs what the code needs."""
    lacks: str = ""
    """What a model family cannot do that others can."""
    frames: Literal["optional", "needed", "none"] = "optional"
    """Whether a selector takes a number of frames to keep."""
    section: str = ""
    """The heading of `gridprobe --help` that a verb stands under."""

    def load(self) -> Any:
        """Import the code; a missing package is an error that names the extra."""
        with explain_missing(self.extra):
            module, _, attribute = self.target.partition(":")
            module_object: Any = importlib.import_module(module)
            return reduce(getattr, attribute.split("."), module_object) if attribute else module_object

    @property
    def described(self) -> str:
        """The line of help, with what is lacking."""
        return f"{self.help}; lacks {self.lacks}" if self.lacks else self.help

    def written(self, name: str) -> str:
        """The name with the argument it takes, for the help page."""
        if not self.argument:
            return name
        return f"{name}[:{self.argument}]" if self.optional else f"{name}:{self.argument}"


class Registry(Mapping[str, Entry]):
    """The entries of one kind: ours, then those of installed packages."""

    def __init__(self, kind: str, entries: Mapping[str, Entry], *, group: str = "") -> None:
        self.kind = kind
        self._group = group
        self._own = dict(entries)

    @cached_property
    def _entries(self) -> dict[str, Entry]:
        points = entry_points(group=self._group) if self._group else ()
        foreign_first = sorted(points, key=lambda point: point.dist is not None and point.dist.name == "gridprobe")
        return {**{point.name: _from_point(point) for point in foreign_first}, **self._own}  # nobody replaces ours

    def __getitem__(self, name: str) -> Entry:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self._own, **self._entries})

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, text: str) -> tuple[Entry, str]:
        """The entry that a name means, and the argument behind its colon."""
        name, _, argument = text.partition(":")
        if name not in self:
            raise UsageError(f"unknown {self.kind} {name!r}; {suggestion(name, self)}")
        return self[name], argument

    def resolve(self, text: str) -> tuple[Any, str]:
        """The code that a name means, imported, and the argument behind its colon."""
        entry, argument = self.find(text)
        if entry.argument and not argument and not entry.optional:
            raise UsageError(f"the {self.kind} {text!r} needs an argument: {text}:{entry.argument}")
        if argument and not entry.argument:
            raise UsageError(f"the {self.kind} {text.partition(':')[0]!r} takes no argument, got {argument!r}")
        return entry.load(), argument

    def listed(self) -> dict[str, str]:
        """Every name as it is written, with its line of help."""
        return {entry.written(name): entry.described for name, entry in self.items()}


def _from_point(point: EntryPoint) -> Entry:
    """The entry of another package: its own `Entry`, if the entry point names a constant, else one for its code."""
    if point.attr.isupper():
        return cast(Entry, point.load())
    origin = point.dist.name if point.dist else point.value
    return Entry(point.value, f"from the package {origin}", argument="ARGUMENT", optional=True)


def suggestion(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: the nearest known one, or all of them."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"choose one of {', '.join(names)}" if names else "there is none"


def install_command(extra: str) -> str:
    """How to install an extra; without a GPU, what `local` needs would otherwise come with gigabytes for one."""
    first = "; without a GPU run first: pip install torch --index-url https://download.pytorch.org/whl/cpu"
    return f"pip install 'gridprobe[{extra}]'{first if extra == 'local' else ''}"


@contextmanager
def explain_missing(extra: str) -> Iterator[None]:
    """Turn the lack of an optional package into a sentence with the command that installs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if not extra or not error.name or error.name.partition(".")[0] == "gridprobe":
            raise
        raise ModelError(f"this needs {error.name}, which is not installed; run: {install_command(extra)}") from None
    except ImportError as error:
        if not extra or not error.name or error.name.partition(".")[0] == "gridprobe":
            raise
        raise ModelError(
            f"{error.name} is installed but cannot be imported ({one_line(str(error))}); "
            f"run: pip install --force-reinstall 'gridprobe[{extra}]'"
        ) from None


MODELS = Registry(
    "model",
    {
        "checkpoint": Entry(
            "gridprobe.models.local.checkpoint",
            "a folder, or a Hugging Face id such as Qwen/Qwen3-VL-2B-Instruct; the prefix may be left out",
            argument="FOLDER|OWNER/NAME",
            extra="local",
        ),
        "server": Entry(
            "gridprobe.models.openai",
            "an OpenAI-compatible server, such as http://localhost:8000/v1#MODEL; the prefix may be left out",
            argument="URL[#MODEL]",
            extra="server",
        ),
    },
    group="gridprobe.models",
)
"""A backend's module or object has `load(argument, **options)`, and `cost_model(argument)` for `gridprobe plan`."""

AUTO = "gridprobe.models.transformers"
MIXED = "texts, a look at single frames"
"""What a family with linear attention lacks: transformers cannot copy its state for several texts, and what it has read
is mixed."""


def _auto(help: str, lacks: str = "") -> Entry:
    """A family that runs through transformers' own modules."""
    return Entry(AUTO, help, extra="local", lacks=lacks)


FAMILIES = Registry(
    "model family",
    {
        "qwen3_vl": Entry("gridprobe.models.qwen3vl", "Qwen3-VL, all dense sizes", extra="local"),
        "qwen3_vl_moe": _auto("Qwen3-VL with experts (30B-A3B, 235B-A22B)"),
        "qwen3_5": _auto("Qwen3.5, dense", MIXED),
        "qwen2_5_vl": _auto("Qwen2.5-VL"),
        "glm4v": _auto("GLM-4.1V"),
        "video_llama_3": _auto("VideoLLaMA3"),
        "internvl": _auto("InternVL3 and InternVL3.5, the checkpoints that end in -HF"),
        "llava_onevision": _auto("LLaVA-OneVision"),
        "llava_next_video": _auto("LLaVA-NeXT-Video"),
        "smolvlm": _auto("SmolVLM2"),
        "idefics3": _auto("Idefics3 and the first SmolVLM"),
        "gemma3": _auto("Gemma 3, from 4B on"),
        "gemma4": _auto("Gemma 4"),
        "minicpmv4_6": _auto("MiniCPM-V 4.6", MIXED),
    },
)
"""Checkpoints in a folder or on the Hugging Face hub, by the `model_type` of their config.json. A family's module has
`load(name, folder, **options)`, `cost_model(name, folder)` and `KNOWN`."""

REFUSED = {
    "internvl_chat": "it needs the checkpoint's own code; use the one whose name ends in -HF",
    "llava_qwen": "it needs the checkpoint's own code; use the LLaVA-OneVision checkpoints that end in -hf",
    "molmo2": "its pictures need torchvision, which was not tried",
    "paligemma": "it has no chat template and expects all pictures before any text",
}
"""Families that people try and that do not work, with the reason."""

ENCODERS = Registry("encoder", {}, group="gridprobe.encoders")
"""An encoder's function takes the argument and options and returns an `Encoder`."""

SELECTORS = Registry(
    "selector",
    {
        "gridprobe": Entry(
            "gridprobe.selectors.gridprobe:make",
            "the paper: row and column probes, importance map, shape-adaptive budget",
        ),
        "uniform": Entry(
            "gridprobe.selectors.baselines:uniform", "evenly spaced frames; needs --frames N", frames="needed"
        ),
        "random": Entry(
            "gridprobe.selectors.baselines:drawn",
            "random frames, seeded; needs --frames N",
            argument="SEED",
            optional=True,
            frames="needed",
        ),
        "all": Entry(
            "gridprobe.selectors.baselines:everything", "every frame of the pool: the baseline", frames="none"
        ),
        "all-small": Entry(
            "gridprobe.selectors.baselines:everything_small",
            "every frame of the pool at the size of the probes, in one pass: the cheap baseline",
            frames="none",
        ),
        "uniform-like": Entry(
            "gridprobe.selectors.baselines:uniform_like",
            "as many frames as gridprobe would keep, evenly spaced: the matched-budget control",
        ),
    },
    group="gridprobe.selectors",
)
"""A selector's function takes the argument and a `gridprobe.selectors.Parts` and returns a `Selector`."""

BUDGETS = Registry(
    "budget",
    {
        "fixed": Entry(
            "gridprobe.importance:Fixed.parse", "the same number of frames for every question", argument="N"
        ),
        "shape": Entry(
            "gridprobe.importance:ShapeRule.parse", "the paper's shape rule", argument="GAMMA0", optional=True
        ),
        "authors": Entry(
            "gridprobe.importance:ShapeRule.authors",
            "the authors' code: the shape rule with 3 for GAMMA0·K, at least 2 frames",
        ),
        "noise": Entry(
            "gridprobe.importance:NoiseAware.parse",
            "frames that stand out from noise, from K/3 to K of them, or to MOST",
            argument="MOST",
            optional=True,
        ),
    },
    group="gridprobe.budgets",
)
"""A budget's function takes the argument and returns a `Budget`."""

BENCHMARKS = Registry("benchmark", {}, group="gridprobe.benchmarks")
"""A benchmark's module or object has `load(data, **options)` and `metrics(items, right)`."""

PROFILERS = Registry("profiler", {}, group="gridprobe.profilers")
"""A profiler measures a model that has no profile, if that is quick; else it returns None."""

TRANSCRIBERS = Registry("recogniser of speech", {}, group="gridprobe.transcribers")
"""A recogniser's function takes the argument and returns a function of an open `Video` and a language, which returns
its `Subtitles`; see `gridprobe_speech`."""


def transcriber(name: str) -> Any:
    """The recogniser that a name means: an address is a server, and a name without a prefix is faster-whisper's."""
    if "://" in name and not name.startswith("server:"):
        name = f"server:{name}"
    elif name.partition(":")[0] not in TRANSCRIBERS:
        name = f"faster-whisper:{name}"
    make, argument = TRANSCRIBERS.resolve(name)
    return make(argument)


ASKING = "Ask about a video"
EVALUATING = "Evaluate on a benchmark"
SERVING = "Serve others"
HELP = "Help and names"
SECTIONS = (ASKING, EVALUATING, SERVING, HELP)
"""The headings of `gridprobe --help`, in order; verbs of other packages follow."""

COMMANDS = Registry(
    "verb",
    {
        "ask": Entry(
            "gridprobe.cli.ask:ask",
            "Ask a question about a video; see where the answer is.",
            section=ASKING,
        ),
        "help": Entry("gridprobe.cli.help:help_command", "Show the help of a verb, or of a topic.", section=HELP),
        "list": Entry(
            "gridprobe.cli.listing:listing", "List models, selectors, settings, benchmarks and more.", section=HELP
        ),
        "doctor": Entry("gridprobe.cli.doctor:doctor", "Check the installation, or a model.", section=HELP),
        "cache": Entry("gridprobe.cli.doctor:cache", "Show or clear the decoded frames on disk.", section=HELP),
    },
    group="gridprobe.commands",
)
"""A verb's code is a click command."""
