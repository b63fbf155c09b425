"""gridprobe serve: answer questions over HTTP."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from gridprobe._util import printable
from gridprobe.cli.ask import introduce
from gridprobe.cli.console import debug_option, notice, progress, quiet_option
from gridprobe.cli.help import Verb
from gridprobe.cli.options import FILE, in_groups, method_options, model_options, models_of, options_of
from gridprobe.errors import UsageError
from gridprobe.models import LazyModel
from gridprobe.registry import explain_missing
from gridprobe_eval.cli.plan import cost_models_of
from gridprobe_serve.limits import ServerLimits


def limit_option(name: str) -> Callable[[Any], Any]:
    """The option of a limit."""
    about = ServerLimits.options()[name]
    bounds = (click.IntRange if about["kind"] is int else click.FloatRange)(about["low"], about["high"])
    flag = f"--{name.replace('_', '-')}"
    return click.option(flag, name, type=bounds, default=about["default"], show_default=True, help=about["help"])


def key_options(note: str = "") -> list[Callable[[Any], Any]]:
    """What clients must send; `note` says when it counts."""
    help = f"What clients must send{note}; better as GRIDPROBE_KEY."
    file_help = "A file with the key, read again when it changes."
    return [
        click.option("--key", envvar="GRIDPROBE_KEY", metavar="KEY", help=help),
        click.option("--key-file", envvar="GRIDPROBE_KEY_FILE", type=FILE, help=file_help),
    ]


def request_options() -> list[Callable[[Any], Any]]:
    """What requests may take."""
    return [
        click.option("--videos", type=FILE, help="Requests may name files under this folder."),
        click.option("--allow-urls", is_flag=True, help="Requests may name http(s) addresses of the public internet."),
        *(limit_option(name) for name in ServerLimits.options() if name != "grace"),
    ]


@click.command(
    cls=Verb,
    examples=(
        "gridprobe serve -m Qwen/Qwen3-VL-2B-Instruct --videos videos",
        "gridprobe serve --port 9000",
    ),
)
@in_groups(
    {
        "Server": [
            click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at."),
            click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True),
            *key_options(),
            click.option(
                "--allow-host", multiple=True, metavar="NAME", help="A further name that clients use for this server."
            ),
            limit_option("grace"),
        ],
        "Requests": request_options(),
        "Model": model_options(),
        "Method": method_options(selector=False),
        "Output": [quiet_option, debug_option],
    }
)
def serve(
    host: str, port: int, key: str | None, key_file: Path | None, allow_host: tuple[str, ...], **arguments: Any
) -> None:
    """Answer questions about videos over HTTP: OpenAI's API, jobs with progress, and video sessions."""
    with explain_missing("serve"):
        from gridprobe_serve.app import make_app
        from gridprobe_serve.running import bind, rules_for, run
    rules = rules_for(host, key, allow_host, key_file=key_file)
    listening = bind(host, port)
    address = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
    service, names = service_of(arguments)
    app = make_app(service, rules, names=names)

    def started() -> None:
        notice(f"gridprobe: serving at {address} (API: {address}/docs)")

    run(app, listening, started=started, drain=service.drain)


def service_of(arguments: dict[str, Any], *, roots: Sequence[Path] = ()) -> tuple[Any, list[str]]:
    """The service that the options describe, with its models loaded, and the public names of the models.

    `roots` are folders whose files requests may name, besides that of --videos.
    """
    from gridprobe_serve.service import VideoService

    options = options_of(arguments)
    limits = server_limits_of(arguments, decode_seconds=options.limits.seconds)
    named, named_answerer = models_of(arguments)
    with progress():
        model = named.load()
        answerer = named_answerer.load() if named_answerer else None
    introduce(model, answerer)
    if not arguments["model"]:
        notice("gridprobe: no --model is named; the embedded model answers, which knows only its demo videos")
    service = VideoService(
        model,
        answerer,
        settings=options,
        limits=limits,
        **_media_of(arguments, roots, limits),
        cost_models=_cost_models(arguments),
        demo=not arguments["model"],
    )
    return service, [public_name(each) for each in (named, named_answerer) if each]


def _viewer_of(arguments: dict[str, Any], roots: Sequence[Path]) -> Any:
    """What shows videos without a model."""
    from gridprobe_watch.tools import VideoViewer

    notice("gridprobe: no --model is named, so agents look themselves: contact_sheet, frames_at, transcript")
    limits = server_limits_of(arguments)
    return VideoViewer(limits=limits, **_media_of(arguments, roots, limits))


def _media_of(arguments: dict[str, Any], roots: Sequence[Path], limits: ServerLimits) -> dict[str, Any]:
    """Which videos requests may name."""
    from gridprobe_serve.sources import Fetcher
    from gridprobe_serve.store import AllowedFolders

    folders = [each for each in (arguments["videos"], *roots) if each]
    fetcher = Fetcher(seconds=limits.fetch_seconds) if arguments["allow_urls"] else None
    return {"folder": AllowedFolders.at(*folders) if folders else None, "fetcher": fetcher}


def _cost_models(arguments: dict[str, Any]) -> Any:
    """Prices for questions; None for models whose cost is not known."""
    try:
        return cost_models_of(arguments)
    except UsageError:
        return None


def server_limits_of(arguments: dict[str, Any], *, decode_seconds: float = 120.0) -> ServerLimits:
    """The limits that the options describe."""
    known = {name: about for name, about in ServerLimits.options().items() if name in arguments}
    values = {name: arguments[name] << 20 if about["mib"] else arguments[name] for name, about in known.items()}
    return ServerLimits(**values, decode_seconds=decode_seconds)


def public_name(model: LazyModel) -> str:
    """What clients may call a model: its name without folders and addresses."""
    if model.name.startswith(("http://", "https://")):
        return printable(model.name.partition("#")[2]) or "server"
    return model.name if "/" not in model.name or not Path(model.name).exists() else Path(model.name).name


# gridprobe mcp: a tool for agents, over standard input and output or HTTP.


@click.command(
    cls=Verb,
    examples=(
        "gridprobe mcp -m ./checkpoint --root videos",
        "gridprobe mcp --http --port 8766",
    ),
)
@in_groups(
    {
        "Server": [
            click.option("--root", "roots", type=FILE, multiple=True, help="A folder whose videos agents may name."),
            click.option("--http", is_flag=True, help="Streamable HTTP in place of standard input and output."),
            click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at, with --http."),
            click.option("--port", type=click.IntRange(0, 65535), default=8766, show_default=True, help="With --http."),
            *key_options(", with --http"),
        ],
        "Requests": request_options(),
        "Model": model_options(),
        "Method": method_options(selector=False),
        "Output": [quiet_option, debug_option],
    }
)
def mcp(
    roots: tuple[Path, ...], http: bool, host: str, port: int, key: str | None, key_file: Path | None, **arguments: Any
) -> None:
    """Give agents tools to look at videos (Model Context Protocol), and with --model to ask about them."""
    with explain_missing("mcp"):
        from gridprobe_serve.mcp import make_tools, over_http
        from gridprobe_serve.running import bind, rules_for, run
    rules = rules_for(host, key, key_file=key_file) if http else None
    roots = roots or (Path.cwd(),)
    service = service_of(arguments, roots=roots)[0] if arguments["model"] else _viewer_of(arguments, roots)
    tools = make_tools(service)
    if rules is None:
        try:
            tools.run("stdio")
        finally:
            service.close()
        return
    listening = bind(host, port)
    address = f"http://{host}:{listening.getsockname()[1]}/mcp"
    app = over_http(tools, service, rules)
    run(
        app,
        listening,
        started=lambda: notice(f"gridprobe: tools at {address}"),
        drain=service.drain,
    )
