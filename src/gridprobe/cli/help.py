"""Help pages: whole summaries by section, examples for every verb, options in groups; `gridprobe help VERB|TOPIC`."""

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import click

from gridprobe._util import REPLACING
from gridprobe.cli.console import never_fail
from gridprobe.errors import UsageError
from gridprobe.registry import COMMANDS, suggestion

__all__ = [
    "COMPLETION",
    "EXIT_CODES",
    "GROUPS",
    "MANY",
    "TOPICS",
    "VARIABLES",
    "Root",
    "Verb",
    "Verbs",
    "flag_of",
    "help_command",
    "names_of",
]

# What the help pages say in addition to the options: option groups, exit codes, completion and environment.

GROUPS = {
    "Question": "option questions evidence subtitles",
    "Benchmark": "data out with ids limit n shard template",
    "Model": "model answer-model server device dtype attn device-map quantization",
    "Method": "selector selectors controls frames k effort sure refine probes rotations context open-way window "
    "preset order collage seed set epsilon delta",
    "Limits of a question": "max-frames max-tokens max-tflops max-seconds max-gpu-memory",
    "Limits and workers of the run": "total-tokens total-tflops total-seconds workers engine patience start-patience "
    "max-failures retry-failed redo-changed",
    "Server": "host port key allow-host grace http root",
    "Requests": "videos allow-urls queue together max-k session-age max-body max-upload quota session-bytes",
    "Decoding": "decode-timeout stream no-cache",
    "Output": "json details map report save-frames clip html dry-run quiet verbose help",
}
"""The options under each heading of a long help page."""

EXIT_CODES = {
    0: "success",
    1: "the video, model, data or run has a problem; doctor and verify-data found something broken",
    2: "the command line is wrong: an unknown option, a value that breaks a rule, a file that cannot be written",
    130: "interrupted by Ctrl-C; an evaluation is resumed by the same command",
    143: "an evaluation ended by SIGTERM, in order as by Ctrl-C; SIGHUP gives 129 and SIGUSR1 138",
}

COMPLETION = """\
Completion of verbs, options and names (selectors, benchmarks, presets, models):

  bash   eval "$(_GRIDPROBE_COMPLETE=bash_source gridprobe)"    in ~/.bashrc
  zsh    eval "$(_GRIDPROBE_COMPLETE=zsh_source gridprobe)"     in ~/.zshrc
  fish   _GRIDPROBE_COMPLETE=fish_source gridprobe | source     in ~/.config/fish/config.fish
"""

VARIABLES = """\
Environment variables:

  GRIDPROBE_MODEL        the model of ask, eval and others without --model
  GRIDPROBE_JUDGE        the model of judge
  GRIDPROBE_KEY          what clients of serve and mcp --http must send
  GRIDPROBE_API_KEY      the key for a model's server
  GRIDPROBE_CACHE        folder of the frame cache; off disables it
  GRIDPROBE_CALIBRATION  folder of the calibrations; off disables them
  GRIDPROBE_VERBOSE      if set, as --verbose
  HF_HOME, HF_TOKEN      where models are downloaded to, and the token for them
  NO_COLOR               if set, no colours
"""

TOPICS = {
    "exit-codes": "Exit codes:\n\n" + "".join(f"  {code:<4} {meaning}\n" for code, meaning in EXIT_CODES.items()),
    "completion": COMPLETION,
    "environment": VARIABLES,
}


MANY = 12
"""A page with more options than this has groups."""


class _Page(click.Command):
    """A help page in characters that the output can show, with examples at its end."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)
        """Command lines that work as they are, but for the names of files."""

    def get_help(self, ctx: click.Context) -> str:
        """The help; click would write UTF-8 to an ASCII stream."""
        encoding = sys.stdout.encoding or "utf-8"
        return super().get_help(ctx).encode(encoding, REPLACING).decode(encoding)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples after the epilog; they are not wrapped, so that they can be copied."""
        super().format_epilog(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    formatter.write(f"{'':>{formatter.current_indent}}{example}\n")


class Verb(_Page):
    """A command whose options are grouped if there are many."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under their headings."""
        options = [each for each in self.get_params(ctx) if isinstance(each, click.Option)]
        rows = [(flag_of(each), row) for each in options if (row := each.get_help_record(ctx))]
        if len(rows) <= MANY:
            return super().format_options(ctx, formatter)
        for title, names in GROUPS.items():
            if group := [row for name, row in rows if name in names.split()]:
                with formatter.section(title):
                    formatter.write_dl(group)
        return None


class Verbs(_Page, click.Group):
    """A group of commands."""

    command_class = Verb


class Root(Verbs):
    """The verbs of `COMMANDS`; the module of one is imported when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All verbs."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command behind a verb."""
        return cast(click.Command, COMMANDS[cmd_name].load()) if cmd_name in COMMANDS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb that is meant; click itself suggests none, as `commands` is empty."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"No such command {name!r}; {suggestion(name, COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the whole summary of each verb, by section."""
        width = max(map(len, COMMANDS))
        for title in dict.fromkeys(entry.section for entry in COMMANDS.values()):
            with formatter.section(title or "Other packages"):
                verbs = {name: entry.help for name, entry in COMMANDS.items() if entry.section == title}
                formatter.write_dl([(name.ljust(width), summary) for name, summary in verbs.items()])

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command; output that the terminal cannot show is replaced."""
        never_fail(sys.stdout, sys.stderr)
        return super().main(*args, **kwargs)


def names_of(*known: Iterable[str]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Completion for an option that takes one of these names."""
    return lambda context, parameter, begun: [name for names in known for name in names if name.startswith(begun)]


def flag_of(parameter: click.Parameter) -> str:
    """The longest flag of an option, without its dashes."""
    return max(parameter.opts, key=len).lstrip("-")


@click.command(
    "help",
    cls=Verb,
    examples=(
        "gridprobe help ask",
        "gridprobe help exit-codes",
    ),
)
@click.argument("words", nargs=-1, metavar=f"[VERB|{'|'.join(TOPICS)}]", shell_complete=names_of(COMMANDS, TOPICS))
@click.pass_context
def help_command(context: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of a verb, or of a topic: exit codes, shell completion, environment variables."""
    if len(words) == 1 and words[0] in TOPICS:
        click.echo(TOPICS[words[0]].rstrip())
        return
    assert context.parent is not None
    command: click.Command = context.parent.command
    found = context.parent
    for word in words:
        inner = command.get_command(found, word) if isinstance(command, click.Group) else None
        if inner is None:
            names = command.list_commands(found) if isinstance(command, click.Group) else []
            raise UsageError(f"there is no verb or topic {word!r}; {suggestion(word, [*names, *TOPICS])}")
        command, found = inner, click.Context(inner, parent=found, info_name=word)
    click.echo(command.get_help(found))
