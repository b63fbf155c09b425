"""Models on OpenAI-compatible servers: `http://host:8000/v1#model`. See docs/servers.md."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gridprobe.errors import GridProbeError, ServerError, ServerUnavailable, UsageError
from gridprobe.models.base import CostModel
from gridprobe.models.openai.client import Address, Client, RateClock, Wire, find_key
from gridprobe.models.openai.model import SLACK, Server
from gridprobe.models.openai.options import ServerOptions
from gridprobe.models.openai.selftest import Bill, examine
from gridprobe.registry import FAMILIES

__all__ = ["Server", "ServerOptions", "cost_model", "load"]


def load(name: str, *, clock: RateClock | None = None, **given: Any) -> Server:
    """Connect to a server and test what it can do.

    Args:
        name: its address, with the model's name behind a "#" if it serves several.
        clock: for tests.
        **given: see `ServerOptions`.
    """
    address, options = Address.parse(name), ServerOptions.of(given)
    wire = Wire(find_key(address), timeout=options.timeout, trust_env=options.trust_env)
    client = Client(wire, address, concurrency=options.concurrency, patience=options.patience, clock=clock)
    try:
        model, listed = _choose(client)
        ability = examine(client, model, samples=options.samples)
    except GridProbeError:
        client.close()
        raise
    if not ability.fingerprint and listed.get("root"):
        ability = replace(ability, fingerprint=os.path.basename(str(listed["root"])))
    names = [options.priced_as] if options.priced_as else [model, str(listed.get("root") or "")]
    return Server(
        client, model, ability, Bill(options, ability.rule, _known_cost_model(names, exact=bool(options.priced_as)))
    )


def cost_model(name: str) -> CostModel:
    """What requests to a model would cost, by its name on the server; the server is not asked."""
    address = Address.parse(name)
    found = _known_cost_model([address.model], exact=False)
    if found is None:
        raise UsageError(
            f"cannot plan for {address}: the model's name must be that of a known model, such as "
            "Qwen/Qwen3-VL-8B-Instruct"
        )
    lacks = replace(found.capabilities, kv_reuse=False, attention_map=False, cost_slack=SLACK)
    return replace(found, identity=str(address), capabilities=lacks)


def _choose(client: Client) -> tuple[str, Mapping[str, Any]]:
    """The model's name, and what the server lists about it."""
    wanted = client.address.model
    try:
        data = client.get("/models").get("data")
    except ServerUnavailable:
        raise
    except ServerError as error:  # some servers have models, but no list of them
        if wanted:
            return wanted, {}
        raise UsageError(f"{error}; name the model as in {client.address.base}#MODEL") from None
    listed = {str(each["id"]): each for each in data or [] if isinstance(each, Mapping) and "id" in each}
    if wanted in listed or (wanted and not listed):
        return wanted, listed.get(wanted, {})
    shown = ", ".join(sorted(listed)[:8]) + (" …" if len(listed) > 8 else "")
    if wanted:
        raise UsageError(f"{client.address.host} does not serve {wanted!r}; it serves {shown}")
    if len(listed) != 1:
        raise UsageError(
            f"{client.address.host} serves {shown or 'no model'}; name one as in {client.address.base}#MODEL"
        )
    return next(iter(listed.items()))


def _known_cost_model(names: list[str], *, exact: bool) -> CostModel | None:
    """Who counts floating-point operations: the model that was named, or a released one of the name on the server."""
    if exact:
        from gridprobe.models import cost_model_of

        return cost_model_of(names[0])
    for entry in FAMILIES.values():
        for name in filter(None, names):
            found: CostModel | None = entry.load().cost_model(name, None)
            if found is not None:
                return found
    return None
