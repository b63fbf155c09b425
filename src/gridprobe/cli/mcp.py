"""gridprobe mcp: a tool for agents, over standard input and output or HTTP."""

from pathlib import Path
from typing import Any

import click

from gridprobe.cli.console import notice
from gridprobe.cli.help import Verb
from gridprobe.cli.serve import desk_of, serving_options
from gridprobe.registry import explain_missing

__all__ = ["mcp"]


def _options(command: Any) -> Any:
    decorators = [
        click.option(
            "--root",
            "roots",
            type=click.Path(path_type=Path),
            multiple=True,
            help="A folder whose videos agents may name.",
        ),
        click.option("--http", is_flag=True, help="Streamable HTTP in place of standard input and output."),
        click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at, with --http."),
        click.option("--port", type=click.IntRange(0, 65535), default=8766, show_default=True, help="With --http."),
        click.option("--key", envvar="GRIDPROBE_KEY", metavar="KEY", help="What clients must send, with --http."),
        *(option for option in serving_options()),
    ]
    for decorator in reversed(decorators):
        command = decorator(command)
    return command


@click.command(
    cls=Verb,
    examples=(
        "gridprobe mcp -m ./checkpoint --root videos",
        "gridprobe mcp --http --port 8766",
    ),
)
@_options
def mcp(roots: tuple[Path, ...], http: bool, host: str, port: int, key: str | None, **given: Any) -> None:
    """Give agents tools for videos (Model Context Protocol): ask_video, look_over, frames_at."""
    with explain_missing("mcp"):
        from gridprobe.serving.running import bind, rules_for, run
        from gridprobe.serving.tools import make_tools, over_http
    rules = rules_for(host, key) if http else None
    desk, _ = desk_of(given, roots=roots or (Path.cwd(),))
    tools = make_tools(desk)
    if rules is None:
        try:
            tools.run("stdio")
        finally:
            desk.close()
        return
    listening = bind(host, port)
    address = f"http://{host}:{listening.getsockname()[1]}/mcp"
    app = over_http(tools, desk, rules)
    run(
        app,
        listening,
        started=lambda: notice(f"gridprobe: tools at {address}"),
        drain=desk.drain,
    )
