"""Models on OpenAI-compatible servers: `http://host:8000/v1#model`. See docs/models.md."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gridprobe.errors import GridProbeError, ServerError, ServerUnavailable, UsageError
from gridprobe.models.base import CostModel
from gridprobe.models.openai.client import Address, Client, RateClock, ServerOptions, find_key
from gridprobe.models.openai.model import SLACK, Server
from gridprobe.models.openai.selftest import ServerPricing, examine, sent_whole
from gridprobe.registry import FAMILIES

__all__ = ["Server", "ServerOptions", "cost_model", "load"]


def load(name: str, *, clock: RateClock | None = None, **settings: Any) -> Server:
    """Connect to a server and test what it can do.

    Args:
        name: its address, with the model's name behind a "#" if it serves several.
        clock: for tests.
        **settings: see `ServerOptions`.
    """
    from gridprobe.models import cost_model_of

    address, options = Address.parse(name), ServerOptions.of(settings)
    client = Client(address, find_key(address), options, clock or RateClock())
    try:
        model, listed = _choose(client)
        features = examine(client, model, samples=options.samples)
    except GridProbeError:
        client.close()
        raise
    root = str(listed.get("root") or "")
    if not features.fingerprint:
        features = replace(features, fingerprint=os.path.basename(root))
    costs = cost_model_of(options.priced_as) if options.priced_as else _released(model, root)
    return Server(client, model, features, ServerPricing(options, features.rule, costs))


def cost_model(name: str) -> CostModel:
    """What requests to a model would cost, by its name on the server; the server is not asked."""
    address = Address.parse(name)
    released = _released(address.model)
    if released is None:
        raise UsageError(
            f"cannot plan for {address}: the model's name must be that of a known model, such as "
            "Qwen/Qwen3-VL-8B-Instruct"
        )
    price = released.price
    served = replace(released.capabilities, kv_reuse=False, masks_frames=False, attention_map=False, cost_slack=SLACK)
    return replace(
        released, identity=str(address), capabilities=served, price=lambda request: price(sent_whole(request))
    )


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


def _released(*names: str) -> CostModel | None:
    """The cost model of a released model with one of the names on the server."""
    for entry in FAMILIES.values():
        for name in filter(None, names):
            released: CostModel | None = entry.load().cost_model(name, None)
            if released is not None:
                return released
    return None
