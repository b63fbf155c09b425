"""The skill for agents and its plugin manifest: by the agentskills convention, and true to the program."""

import json
import re
import shlex
from pathlib import Path

import click
import yaml

import gridprobe
from gridprobe.registry import COMMANDS

ROOT = Path(__file__).parents[1]
SKILL = ROOT / "skills" / "gridprobe" / "SKILL.md"


def test_the_front_matter_is_by_the_convention() -> None:
    _, head, body = SKILL.read_text().split("---\n", 2)
    about = yaml.safe_load(head)

    assert set(about) <= {"name", "description", "license", "compatibility", "metadata", "allowed-tools"}
    assert about["name"] == SKILL.parent.name and re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", about["name"])
    assert 0 < len(about["description"]) <= 1024 and len(about["compatibility"]) <= 500
    assert len(body.splitlines()) <= 100 and len(body.split()) <= 500


def test_every_command_of_the_skill_can_be_parsed() -> None:
    text = SKILL.read_text()
    lines = [*re.findall(r"^ *(gridprobe .*)$", text, flags=re.M), *re.findall(r"`(gridprobe \w+ .*?)`", text)]

    assert len(lines) >= 4
    for line in lines:
        words = shlex.split(line)
        command = COMMANDS[words[1]].load()
        assert isinstance(command, click.Command)
        command.make_context(words[1], words[2:])


def test_the_plugin_manifest_names_the_skill_and_our_version() -> None:
    plugin, market = (
        json.loads((ROOT / ".claude-plugin" / f"{name}.json").read_text()) for name in ("plugin", "marketplace")
    )

    assert plugin["name"] == SKILL.parent.name and plugin["version"] == gridprobe.__version__
    assert (ROOT / plugin["skills"] / "gridprobe" / "SKILL.md").is_file()
    assert [each["name"] for each in market["plugins"]] == [plugin["name"]]
    assert (ROOT / market["plugins"][0]["source"]).resolve() == ROOT
