"""Help pages: whole summaries by section, examples for every verb, options in groups; `gridprobe help VERB|TOPIC`."""

import sys
from collections.abc import Callable, Iterable
from typing import Any

import click

from gridprobe.cli.console import never_fail
from gridprobe.cli.pages import GROUPS, SECTIONS, TOPICS, VERBS
from gridprobe.errors import UsageError
from gridprobe.registry import suggestion
from gridprobe.text import REPLACING

__all__ = ["MANY", "Verb", "Verbs", "flag_of", "help_command", "names_of"]

MANY = 12
"""A page with more options than this has groups."""


class _Encodable(click.Command):
    def get_help(self, ctx: click.Context) -> str:
        """The help, in characters that the output can show; click writes UTF-8 to an ASCII stream."""
        encoding = sys.stdout.encoding or "utf-8"
        return super().get_help(ctx).encode(encoding, REPLACING).decode(encoding)


class Verb(_Encodable):
    """A command whose help ends with examples, and whose options are grouped if there are many."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under their headings."""
        options = [each for each in self.get_params(ctx) if isinstance(each, click.Option)]
        rows = [(flag_of(each), row) for each in options if (row := each.get_help_record(ctx))]
        if len(rows) <= MANY:
            return super().format_options(ctx, formatter)
        for title, names in GROUPS.items():
            if found := [row for name, row in rows if name in names.split()]:
                with formatter.section(title):
                    formatter.write_dl(found)
        return None

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples after what the command itself adds."""
        super().format_epilog(ctx, formatter)
        write_examples(_name(ctx), formatter)


class Verbs(_Encodable, click.Group):
    """A group that shows the whole summary of each command, by section."""

    command_class = Verb

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands."""
        names = self.list_commands(ctx)
        sections = SECTIONS if "ask" in names else {"Commands": tuple(names)}
        width = max(map(len, names))
        for title, verbs in sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), self._summary(name, ctx)) for name in verbs])

    def _summary(self, name: str, ctx: click.Context) -> str:
        command = self.get_command(ctx, name)
        return (name in VERBS and VERBS[name].summary) or (command.get_short_help_str(1000) if command else "")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples of a group such as figure."""
        super().format_epilog(ctx, formatter)
        write_examples(_name(ctx), formatter)

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


def write_examples(name: str, formatter: click.HelpFormatter) -> None:
    """Write a verb's examples; they are not wrapped, so that they can be copied."""
    if name in VERBS:
        with formatter.section("Examples"):
            for example in VERBS[name].examples:
                formatter.write(f"{'':>{formatter.current_indent}}{example}\n")


def _name(context: click.Context) -> str:
    """The verb as it is typed after gridprobe: "ask" or "figure skew"."""
    parts = []
    while context.parent is not None:
        parts.append(context.info_name or "")
        context = context.parent
    return " ".join(reversed(parts))


@click.command("help", cls=Verb)
@click.argument("words", nargs=-1, metavar=f"[VERB|{'|'.join(TOPICS)}]", shell_complete=names_of(VERBS, TOPICS))
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
            known = [*(command.commands if isinstance(command, click.Group) else ()), *TOPICS]
            raise UsageError(f"there is no verb or topic {word!r}; {suggestion(word, known)}")
        command, found = inner, click.Context(inner, parent=found, info_name=word)
    click.echo(command.get_help(found))
