"""The files under deploy/ fit the program and each other: flags, ports, paths, limits, users and tags."""

import configparser
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest
import yaml

from gridprobe.registry import COMMANDS

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
SERVE = COMMANDS["serve"].load()
INSTRUCTIONS = {
    *("ARG", "FROM", "ENV", "WORKDIR", "RUN", "COPY", "USER", "VOLUME", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD")
}


class Step(NamedTuple):
    """An instruction of a Dockerfile."""

    name: str
    rest: str

    @property
    def words(self) -> list[str]:
        """The words of the JSON form, or of the shell form."""
        found = yaml.safe_load(self.rest) if self.rest.startswith("[") else shlex.split(self.rest)
        return [str(each) for each in found]


def dockerfile() -> list[Step]:
    lines = [line for line in (DEPLOY / "Dockerfile").read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [Step(*line.split(maxsplit=1)) for line in joined.splitlines() if line.strip()]


def stages() -> list[list[Step]]:
    found: list[list[Step]] = [[]]
    for step in dockerfile():
        if step.name == "FROM":
            found.append([])
        found[-1].append(step)
    return found[1:]


def the(name: str, steps: list[Step]) -> Step:
    (found,) = [step for step in steps if step.name == name]
    return found


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "docker-compose.yml").read_text())
    return found


def profile(name: str) -> dict[str, dict[str, Any]]:
    return {key: each for key, each in compose()["services"].items() if name in each["profiles"]}


def unit() -> configparser.ConfigParser:
    found = configparser.ConfigParser(interpolation=None, strict=False, delimiters=("=",))
    found.optionxform = str  # type: ignore[assignment, method-assign]
    found.read(DEPLOY / "gridprobe.service")
    return found


def command_lines() -> Iterator[tuple[str, list[str]]]:
    """Every use of `gridprobe serve` in the files and on the page: where, and its arguments."""
    entry = the("ENTRYPOINT", stages()[-1]).words
    assert entry[:2] == ["gridprobe", "serve"]
    yield "Dockerfile", [*entry[2:], *the("CMD", stages()[-1]).words]
    for name, service in compose()["services"].items():
        if "build" in service:
            yield name, [*entry[2:], *service["command"]]
    for file in (*DEPLOY.iterdir(), ROOT / "docs" / "serving.md"):
        text = re.sub(r"\\\n\s*", " ", file.read_text()) if file.is_file() else ""
        for line in text.splitlines():
            if found := re.search(r"(?:^|[/`\s])gridprobe serve( -.*)", line.partition(" #")[0]):
                yield f"{file.name}: {line}", shlex.split(found[1].partition("`")[0])


@pytest.mark.parametrize(("where", "arguments"), list(command_lines()), ids=lambda value: str(value)[:40])
def test_gridprobe_serve_accepts_every_command_line(where: str, arguments: list[str]) -> None:
    context = click.Context(SERVE)
    known = {flag for param in SERVE.get_params(context) for flag in param.opts}
    for argument in arguments:
        if argument.startswith("-"):
            assert argument.partition("=")[0] in known, where
    SERVE.make_parser(context).parse_args(args=list(arguments))


def test_the_search_for_command_lines_finds_them() -> None:
    found = {where.partition(":")[0] for where, _ in command_lines()}
    assert found >= {"Dockerfile", "gridprobe", "gridprobe-two", "gridprobe.service", "nginx.conf", "Caddyfile"}
    assert "serving.md" in found


def test_the_dockerfile_has_known_instructions_and_pinned_images() -> None:
    steps = dockerfile()
    assert {step.name for step in steps} <= INSTRUCTIONS
    defaults = dict(step.rest.partition("=")[::2] for step in steps if step.name == "ARG")
    images = [step.rest.split()[0].replace("${PYTHON}", defaults["PYTHON"]) for step in steps if step.name == "FROM"]
    images += [service["image"] for service in compose()["services"].values()]
    for image in images:
        name, _, tag = image.partition(":")
        assert name and tag and tag != "latest", image
    assert defaults["TORCH"] == "cpu" and len(stages()) == 2


def test_the_dockerfile_copies_files_that_exist_and_are_sent_to_the_builder() -> None:
    sent = [line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")]
    built = {step.rest.partition(" AS ")[2] for step in dockerfile() if step.name == "FROM"} - {""}
    for step in (step for step in dockerfile() if step.name == "COPY"):
        *sources, _ = [word for word in step.words if not word.startswith("--")]
        stage = next((word.removeprefix("--from=") for word in step.words if word.startswith("--from=")), None)
        if stage is None:
            assert all((ROOT / each).exists() and each in sent for each in sources), step
        else:
            assert stage in built
    assert "constraints.txt" in the("COPY", stages()[0][:7]).words


def test_the_container_runs_without_root_rights_and_has_no_secrets() -> None:
    last = stages()[-1]
    names = [step.name for step in last]
    user = the("USER", last).words[0]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user) and names.index("USER") < names.index("ENTRYPOINT")
    assert "RUN" not in names[names.index("USER") :]
    for step in dockerfile():
        if step.name in ("ARG", "ENV"):
            assert not re.search(r"KEY|TOKEN|PASSWORD|SECRET", step.rest), step
    volumes = the("VOLUME", last).words
    made = next(step.rest for step in last if step.name == "RUN")
    owner = user.partition(":")[0]
    assert all(volume in made for volume in volumes) and f"-o {owner} -g {owner}" in made
    variables = dict(word.split("=", 1) for word in the("ENV", last).words)
    for name in ("TMPDIR", "HOME", "GRIDPROBE_CACHE", "HF_HOME"):
        assert any(variables[name].startswith(volume) for volume in volumes), f"{name} must be writable"


def test_ports_agree_everywhere() -> None:
    (port,) = [param.default for param in SERVE.params if param.name == "port"]
    last = stages()[-1]
    assert the("EXPOSE", last).rest == str(port)
    assert f"http://127.0.0.1:{port}/health" in the("HEALTHCHECK", last).rest
    entry = the("ENTRYPOINT", last).words
    assert entry[entry.index("--port") + 1] == str(port)
    start = unit()["Service"]["ExecStart"].split()
    assert start[start.index("--port") + 1] == str(port)
    assert f"proxy_pass http://127.0.0.1:{port};" in (DEPLOY / "nginx.conf").read_text()
    assert f"reverse_proxy 127.0.0.1:{port} " in (DEPLOY / "Caddyfile").read_text()
    for service in compose()["services"].values():
        if "build" in service:
            assert service["ports"] == [f"127.0.0.1:{port}:{port}"]


@pytest.mark.parametrize(("name", "models"), [("one", {"vllm"}), ("two", {"vllm-small", "vllm-large"})])
def test_a_profile_has_one_gridprobe_that_waits_for_its_models(name: str, models: set[str]) -> None:
    services = profile(name)
    (ours,) = [each for each in services.values() if "build" in each]
    assert set(services) - models and set(ours["depends_on"]) == models < set(services)
    assert {each["condition"] for each in ours["depends_on"].values()} == {"service_healthy"}
    addresses = re.findall(r"http://([\w-]+):(\d+)/v1#([\w./-]+)", " ".join(ours["command"]))
    assert {host for host, _, _ in addresses} == models
    for host, port, model in addresses:
        assert {f"--model={model}", f"--port={port}"} <= set(services[host]["command"])
        assert f"127.0.0.1:{port}/health" in services[host]["healthcheck"]["test"][-1]
        assert "ports" not in services[host], "only gridprobe can reach a model"
        assert set(services[host]["networks"]) <= set(ours["networks"]) <= set(compose()["networks"])
    places = [
        each["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"][0]
        for each in services.values()
        if "deploy" in each
    ]
    assert len(set(places)) == len(models), "a GPU for each model"


@pytest.mark.parametrize("name", ["gridprobe", "gridprobe-two"])
def test_the_service_is_confined_and_its_keys_come_from_the_environment(name: str) -> None:
    service = compose()["services"][name]
    assert service["read_only"] and service["cap_drop"] == ["ALL"] and "user" not in service
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["mem_limit"] and service["pids_limit"] and service["cpus"]
    for variable, value in service["environment"].items():
        assert variable.endswith("KEY") and re.fullmatch(r"\$\{\w+:\?.*\}", value), variable
    mounted = {
        each.rpartition(":")[2] if not each.endswith(":ro") else each.split(":")[-2] for each in service["volumes"]
    }
    assert mounted == {"/videos", *the("VOLUME", stages()[-1]).words}
    named = {each.partition(":")[0] for each in service["volumes"] if not each.startswith("$")}
    assert named <= set(compose()["volumes"])
    context = (DEPLOY / service["build"]["context"]).resolve()
    assert context == ROOT and (context / service["build"]["dockerfile"]).is_file()
    assert seconds(service["stop_grace_period"]) > grace()


def test_the_unit_is_hardened() -> None:
    service = unit()["Service"]
    for name in ("DynamicUser", "NoNewPrivileges", "ProtectHome", "PrivateTmp", "RestrictSUIDSGID", "LockPersonality"):
        assert service[name] == "yes", name
    assert service["ProtectSystem"] == "strict" and service["CapabilityBoundingSet"] == ""
    assert re.fullmatch(r"\d+G", service["MemoryMax"]) and int(service["TasksMax"]) > 0
    assert "User" not in service and "KEY" not in service["ExecStart"] + service["Environment"]
    variables = dict(word.split("=", 1) for word in service["Environment"].split())
    folders = (f"%S/{service['StateDirectory']}", f"%C/{service['CacheDirectory']}")
    assert all(value.startswith(folders) for value in variables.values()), "only these folders can be written"
    assert seconds(service["TimeoutStopSec"]) > grace()
    assert unit()["Install"]["WantedBy"] == "multi-user.target"


def test_the_proxies_pass_on_streams_large_bodies_and_the_name() -> None:
    (upload,) = [param.default for param in SERVE.params if param.name == "max_upload"]
    nginx, caddy = (DEPLOY / "nginx.conf").read_text(), (DEPLOY / "Caddyfile").read_text()
    settings = dict(re.findall(r"^\s*(\w+) (.+?);", nginx, re.M))
    assert settings["client_max_body_size"] == f"{upload}m" and f"max_size {upload}MiB" in caddy
    assert settings["proxy_buffering"] == settings["proxy_request_buffering"] == "off"
    assert "proxy_set_header Host $http_host;" in nginx and int(settings["proxy_read_timeout"].rstrip("s")) >= 600
    assert "flush_interval -1" in caddy and "header_up Host" not in caddy
    for text in (nginx, caddy):
        assert text.count("{") == text.count("}")
        (name,) = re.findall(r"^(?:\s*server_name )?([\w.]+\.org)(?:;| \{)$", text, re.M)
        assert f"--allow-host {name}" in text


def test_ray_serve_is_pinned_to_the_tested_ray() -> None:
    (pinned,) = re.findall(r"^ray==(\S+)$", (ROOT / "constraints.txt").read_text(), re.M)
    assert f"ray[serve]=={pinned}" in (DEPLOY / "ray-requirements.txt").read_text().splitlines()


def grace() -> float:
    (found,) = [str(param.default) for param in SERVE.params if param.name == "grace"]
    return float(found)


def seconds(text: str) -> float:
    return float(text.removesuffix("s"))
