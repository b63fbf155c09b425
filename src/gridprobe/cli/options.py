"""Options that several verbs share, and the values that they stand for; those for settings are made from `Options`."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from gridprobe.cli.help import names_of
from gridprobe.errors import UsageError
from gridprobe.limits import LIMITS, WHOLE, as_flag
from gridprobe.models import LazyModel, is_server
from gridprobe.options import PRESETS, Options, Setting, parse_changes, parse_value, settings
from gridprobe.registry import MODELS, SELECTORS
from gridprobe.video import Window

Decorator = Callable[[Any], Any]
MOMENT = re.compile(r"-?(?:\d{1,4}:)?(?:\d{1,4}:)?\d{1,9}(?:\.\d{1,9})?", re.ASCII)
FILE = click.Path(path_type=Path)
MODEL_HELP = "Folder, Hugging Face id, http://HOST/v1#NAME, embedded."
PRESET_NAMES = f"{', '.join(PRESETS)}."
SHORT_HELP = {
    "frames": "Keep that many, or as the rule says, such as noise.",
    "effort": "How far to go: quick, auto, full or focus.",
    "exit_confidence": "How sure the overview must be with --effort auto.",
    "profile": "auto, off or a FILE of gridprobe profile.",
}
"""Of settings whose help in `gridprobe list settings` takes more than a line."""
LOADING = ("device", "dtype", "attn_implementation", "device_map", "quantization")
"""What --load may say about a model on this machine; everything else is for servers."""
UNITS = {"max_frames": "N", "max_tokens": "N", "max_tflops": "X", "max_seconds": "S", "max_gpu_memory": "GB"}


def in_groups(groups: Mapping[str, Sequence[Decorator]]) -> Decorator:
    """Add options in this order; each stands under its heading on the help page."""

    def add(command: Any) -> Any:
        for title, decorators in reversed(list(groups.items())):
            for decorator in reversed(decorators):
                command = decorator(command)
                command.__click_params__[-1].group = title
        return command

    return add


class SettingType(click.ParamType[Any]):
    """A value that a setting may have, as the library checks it."""

    def __init__(self, setting: Setting) -> None:
        self.name = setting.metavar or setting.name
        self.setting = setting

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read it as --set does, and check it."""
        parsed = parse_value(value) if isinstance(value, str) else value
        self.setting.check(parsed)  # its error is one sentence, where click would print the usage
        return parsed


def setting_options(*names: str) -> list[Decorator]:
    """The settings that are flags, or those of them with these names. Without the flag the preset decides."""
    return [
        click.option(
            as_flag(each.name),
            each.name,
            type=click.Choice(each.choices) if each.choices else SettingType(each),
            metavar="WORD" if each.choices else each.metavar,
            help=SHORT_HELP.get(each.name, _sentence(each.help)),
        )
        for each in settings()
        if each.flag and (not names or each.name in names)
    ]


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


class Moment(click.ParamType[float]):
    """A time in a video: 80, 1:20, 1:02:03.5, or with a minus from the end."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds."""
        if not MOMENT.fullmatch(str(value)):
            raise UsageError(f"a time is seconds or m:ss, such as 80, 1:20 or -30 from the end; got {value!r}")
        parts = str(value).removeprefix("-").split(":")
        seconds = sum(float(part) * 60.0**power for power, part in enumerate(reversed(parts)))
        return -seconds if str(value).startswith("-") else seconds


def window_options() -> list[Decorator]:
    """The part of the video that is looked at."""
    return [
        click.option("--from", "start", type=Moment(), metavar="TIME", help="Look only from here: 80, 1:20, -30."),
        click.option("--to", "end", type=Moment(), metavar="TIME", help="Look only up to here."),
    ]


def window_of(arguments: Mapping[str, Any]) -> Window | None:
    """What --from and --to say."""
    start, end = arguments.get("start"), arguments.get("end")
    return None if start is None and end is None else (start or 0.0, end)


def limit_options() -> list[Decorator]:
    """An option for each limit of a question."""
    return [
        click.option(
            as_flag(name),
            name,
            type=int if name in WHOLE else float,
            metavar=UNITS[name],
            help=_sentence(words),
        )
        for name, words in LIMITS.items()
    ]


def model_options(help: str = MODEL_HELP) -> list[Decorator]:
    """Which models answer, and how they are loaded."""
    names = names_of(MODELS)
    return [
        click.option("-m", "--model", envvar="GRIDPROBE_MODEL", metavar="NAME", shell_complete=names, help=help),
        click.option("--answer-model", metavar="NAME", help="Another model for the focused pass."),
        click.option("--device", default="auto", show_default=True, metavar="NAME", help="auto, cpu, cuda or cuda:N."),
        click.option(
            "--load",
            multiple=True,
            metavar="NAME=VALUE",
            help="Such as dtype=bfloat16 or quantization=4bit.",
        ),
    ]


def method_options(*names: str, selector: bool = True) -> list[Decorator]:
    """The selector, the preset and the settings on top of it."""
    chosen = click.option(
        "--selector",
        metavar="NAME",
        default="gridprobe",
        show_default=True,
        shell_complete=names_of(SELECTORS),
        help="From gridprobe list selectors.",
    )
    return [
        *([chosen] if selector else []),
        click.option(
            "--preset",
            type=click.Choice(list(PRESETS)),
            default="default",
            metavar="NAME",
            help=f"{', '.join(PRESETS)}.",
        ),
        *setting_options(*names),
        click.option(
            "--set", "changes", multiple=True, metavar="NAME=VALUE", help="Any setting; see gridprobe list settings."
        ),
    ]


def options_of(arguments: Mapping[str, Any]) -> Options:
    """The preset with the settings among the arguments; a flag counts more than --set."""
    names = [*(each.name for each in settings()), *LIMITS]
    flags = {name: arguments[name] for name in names if arguments.get(name) is not None}
    if (window := window_of(arguments)) is not None:
        flags["window"] = window
    return Options.from_preset(arguments["preset"], **{**parse_changes(arguments["changes"]), **flags})


def models_of(arguments: Mapping[str, Any], *, model: str = "") -> tuple[LazyModel, LazyModel | None]:
    """The model and the answering model, which may be none, with the options for each.

    Where none is named, the embedded one answers, and refuses what it does not know.
    """
    loading = parse_options(arguments["load"])
    local = {name: loading.pop(name) for name in LOADING if name in loading}
    if arguments["device"] != "auto":
        local["device"] = arguments["device"]
    if local.get("quantization") not in (None, "4bit", "8bit"):
        raise UsageError(f"quantization must be 4bit or 8bit, got {local['quantization']!r}")
    model = model or arguments["model"]
    names = [name for name in (model or "embedded", arguments["answer_model"]) if name]
    if loading and not any(map(is_server, names)):
        name = next(iter(loading))
        raise UsageError(f"{name!r} of --load is for models on a server; one that is loaded has {', '.join(LOADING)}")
    models = [LazyModel(name, (*local.items(), *(loading.items() if is_server(name) else ()))) for name in names]
    if not model:
        models[0] = replace(models[0], options=(*models[0].options, ("implied", True)))
    return models[0], models[1] if len(models) > 1 else None


def parse_options(texts: Iterable[str]) -> dict[str, Any]:
    """Options from the command line: "split=test", "paper_subset=true", "count=40"."""
    options: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"an option is NAME=VALUE, such as split=test; got {text!r}")
        options[name] = _value(value)
    return options


def _value(text: str) -> bool | int | str:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.isascii() and text.isdigit() else text
