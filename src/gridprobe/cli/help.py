"""Help pages: whole summaries by section, examples for every verb, options in groups; `gridprobe help VERB|TOPIC`."""

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import click

from gridprobe._util import REPLACING, printable
from gridprobe.cli.console import Stopped, in_lines, interruptible, never_fail
from gridprobe.errors import GridProbeError, UsageError
from gridprobe.registry import COMMANDS, SECTIONS, suggestion

# What the help pages say in addition to the options: exit codes, completion and environment.

EXIT_CODES = {
    0: "success",
    1: "the video, model, data or run has a problem; doctor or eval --check found something broken",
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
  GRIDPROBE_JUDGE        the model of score --judge
  GRIDPROBE_KEY          what clients of serve and mcp --http must send
  GRIDPROBE_KEY_FILE     a file with that key, which may change while they run
  GRIDPROBE_API_KEY      the key for a model's server
  GRIDPROBE_CACHE        folder of the frame cache; off disables it
  GRIDPROBE_CALIBRATION  folder of calibrations and profiles; off disables them
  GRIDPROBE_VERBOSE      if set, as --debug
  HF_HOME, HF_TOKEN      where models are downloaded to, and the token for them
  NO_COLOR               if set, no colours
"""

TOPICS = {
    "exit-codes": "Exit codes:\n\n" + "".join(f"  {code:<4} {meaning}\n" for code, meaning in EXIT_CODES.items()),
    "completion": COMPLETION,
    "environment": VARIABLES,
}


OPTION_COLUMNS = 30
"""The text of a longer option begins in the next line."""


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
    """A command whose options stand under headings, if they have any."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under their headings."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for option in self.get_params(ctx):
            if isinstance(option, click.Option) and (row := option.get_help_record(ctx)):
                groups.setdefault(getattr(option, "group", "Output"), []).append(row)
        if len(groups) == 1:
            return super().format_options(ctx, formatter)
        width = max(len(option) for rows in groups.values() for option, _ in rows if len(option) <= OPTION_COLUMNS)
        formatter.write_paragraph()
        for title, rows in groups.items():  # without empty lines between them, so that a page fits on a screen
            formatter.write_heading(title)
            with formatter.indentation():
                formatter.write_dl([(option.ljust(width), text) for option, text in rows])
        return None


class _OneSentence(click.ClickException):
    """A GridProbeError, printed by click as one sentence."""

    def __init__(self, error: GridProbeError) -> None:
        super().__init__(printable(str(error)))
        vars(self)["exit_code"] = error.exit_code

    def show(self, file: Any = None) -> None:
        stream = file or sys.stderr
        print(in_lines(f"gridprobe: {self.message}", stream), file=stream)  # click.echo writes UTF-8 to an ASCII stream


class Verbs(_Page, click.Group):
    """A group of commands; an error of one is one sentence."""

    command_class = Verb

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command, and turn its errors into exit codes."""
        try:
            with interruptible():
                return super().invoke(ctx)
        except GridProbeError as error:
            raise _OneSentence(error) from error
        except click.UsageError as error:
            text = printable(
                error.format_message().replace("\n\t", " ")
            )  # it can quote an argument, such as a file's name
            lines = in_lines(f"Error: {text}", sys.stderr).removeprefix("Error: ")
            raise click.UsageError(lines, error.ctx) from error
        except Stopped as error:
            click.echo(f"gridprobe: ended by {error}", err=True)
            ctx.exit(error.exit_code)
        except KeyboardInterrupt:
            click.echo("gridprobe: interrupted", err=True)
            ctx.exit(130)


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
        for title in dict.fromkeys((*SECTIONS, *(entry.section for entry in COMMANDS.values()))):
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
    command_context = context.parent
    for word in words:
        inner = command.get_command(command_context, word) if isinstance(command, click.Group) else None
        if inner is None:
            names = command.list_commands(command_context) if isinstance(command, click.Group) else []
            raise UsageError(f"there is no verb or topic {word!r}; {suggestion(word, [*names, *TOPICS])}")
        command, command_context = inner, click.Context(inner, parent=command_context, info_name=word)
    click.echo(command.get_help(command_context))
