"""Help pages: whole summaries, examples that parse, options in groups, topics, completion and exit codes."""

import shlex
from functools import reduce
from itertools import pairwise
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from gridprobe.cli import cli
from gridprobe.cli.help import EXIT_CODES, TOPICS, Verb, Verbs
from gridprobe.options import settings
from gridprobe.registry import COMMANDS as VERBS

CONTEXT = click.Context(cli, info_name="gridprobe")


def inner(group: click.Command, word: str) -> click.Command:
    assert isinstance(group, click.Group)
    command = group.get_command(CONTEXT, word)
    assert command is not None
    return command


COMMANDS = [
    *VERBS,
    *(f"{name} {word}" for name in VERBS if isinstance(group := inner(cli, name), click.Group)
      for word in group.list_commands(CONTEXT)),
]  # fmt: skip
each_command = pytest.mark.parametrize("name", COMMANDS)


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner(env={"GRIDPROBE_MODEL": "", **environment}).invoke(cli, arguments)


def command(name: str) -> click.Command:
    start: click.Command = cli
    return reduce(inner, name.split(), start)


def completed(*words: str) -> list[str]:
    """What completion offers for the last word."""
    shell = ShellComplete(cli, {}, "gridprobe", "_GRIDPROBE_COMPLETE")
    return [str(item.value) for item in shell.get_completions(list(words[:-1]), words[-1])]


def test_the_list_of_verbs_is_whole_and_each_has_one_line() -> None:
    lines = run("--help").stdout.splitlines()

    assert not any(
        "…" in line or "..." in line.removeprefix("Usage: cli [OPTIONS] COMMAND [ARGS]...") for line in lines
    )
    for name, entry in VERBS.items():
        assert any(line.split() == [name, *entry.help.split()] for line in lines), name


@each_command
def test_every_verb_has_examples_whose_options_exist(name: str) -> None:
    page = run(*name.split(), "--help").stdout
    verb = command(name)

    assert isinstance(verb, Verb | Verbs) and verb.examples
    for example in verb.examples:
        program, *words = shlex.split(example)
        assert program == "gridprobe" and f"  {example}\n" in page
        parent: click.Command = cli
        while isinstance(parent, click.Group) and words:
            parent = inner(parent, words.pop(0))
        parent.make_context("example", words, resilient_parsing=True)  # an unknown option raises


@each_command
def test_every_option_stands_under_a_heading_if_any_does(name: str) -> None:
    options = [each for each in command(name).params if isinstance(each, click.Option)]
    groups = {getattr(each, "group", "") for each in options}
    page = run(*name.split(), "--help").stdout

    assert len(groups) == 1 or "" not in groups
    assert len(options) <= 12 or ("Options:" not in page and "Output:" in page)
    assert all(max(each.opts, key=len) in page for each in options)


def test_ask_has_few_options() -> None:
    assert len([each for each in command("ask").params if isinstance(each, click.Option)]) <= 31


def test_the_help_of_ask_is_one_screen_and_nothing_is_cut() -> None:
    lines = run("ask", "--help", COLUMNS="80").stdout.splitlines()

    assert len(lines) <= 43 and max(map(len, lines)) <= 80
    options = [each for each in command("ask").params if isinstance(each, click.Option)]
    for option in options:
        (line,) = [line for line in lines if line.lstrip().startswith(f"{', '.join(sorted(option.opts, key=len))} ")]
        assert option.help and option.help in line, "the text is whole, in the option's own line"
    for name in ("effort", "preset"):
        (choices,) = [
            each.type.choices for each in options if each.name == name and isinstance(each.type, click.Choice)
        ]
        assert all(word in " ".join(lines) for word in choices)


@each_command
def test_help_verb_is_the_verbs_own_help(name: str) -> None:
    own, asked = run(*name.split(), "--help"), run("help", *name.split())

    assert asked.exit_code == 0 and asked.stdout == own.stdout


def test_help_alone_names_all_verbs_and_a_wrong_name_gets_a_suggestion() -> None:
    wrong = run("help", "evl")

    assert run("help").stdout == run("--help").stdout
    assert wrong.exit_code == 2 and "did you mean 'eval'" in wrong.stderr


@pytest.mark.parametrize("topic", TOPICS)
def test_topics(topic: str) -> None:
    assert run("help", topic).stdout.strip() == TOPICS[topic].strip()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["list", "presets"], 0),
        (["ask", "nothing.mp4", "Which?", "-o", "a", "-o", "b", "--model", "embedded"], 1),
        (["ask", "nothing.mp4", "Which?", "-o", "a"], 2),
        (["ask", "--no-such-option"], 2),
        (["nonsense"], 2),
    ],
)
def test_exit_codes_are_those_of_the_table(arguments: list[str], code: int) -> None:
    assert code in EXIT_CODES and run(*arguments).exit_code == code


def test_list_settings_has_every_setting_with_its_default() -> None:
    text = run("list", "settings").stdout

    names = [line.split()[0] for line in text.splitlines() if line and not line.startswith(" ")]
    assert all(names.count(each.name) == 1 for each in settings())
    assert "12" in next(after for line, after in pairwise(text.splitlines()) if line.split()[:1] == ["k"])


def test_the_page_has_every_verb_exit_code_and_topic() -> None:
    page = (Path(__file__).parents[2] / "docs" / "asking.md").read_text(encoding="utf-8")

    for code, meaning in EXIT_CODES.items():
        assert f"| {code} | {meaning} |" in page.replace("`", "")
    assert all(f"`{name}`" in page for name in cli.commands)
    assert all(f"`gridprobe help {topic}`" in page for topic in TOPICS)


class TestCompletion:
    def test_verbs_and_options(self) -> None:
        assert completed("e") == ["eval"]
        assert "--selector" in completed("ask", "--se")

    @pytest.mark.parametrize(
        ("words", "name"),
        [
            (("ask", "v.mp4", "q?", "--selector", "uni"), "uniform"),
            (("ask", "v.mp4", "q?", "--preset", "pa"), "paper"),
            (("ask", "v.mp4", "q?", "--model", "emb"), "embedded"),
            (("ask", "v.mp4", "q?", "--effort", "fo"), "focus"),
            (("eval", "grid"), "gridworld"),
            (("calibrate", "json"), "jsonl"),
            (("list", "sel"), "selectors"),
            (("help", "ev"), "eval"),
            (("help", "exit"), "exit-codes"),
        ],
    )
    def test_names(self, words: tuple[str, ...], name: str) -> None:
        assert name in completed(*words)

    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_the_documented_lines_give_a_script(self, shell: str) -> None:
        assert f"_GRIDPROBE_COMPLETE={shell}_source" in TOPICS["completion"]
        result = CliRunner(env={"_GRIDPROBE_COMPLETE": f"{shell}_source"}).invoke(cli, [], prog_name="gridprobe")
        assert result.exit_code == 0 and "_GRIDPROBE_COMPLETE" in result.stdout
