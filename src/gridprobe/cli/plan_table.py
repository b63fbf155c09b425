"""The table of `gridprobe plan VIDEO`: what each way to ask takes."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gridprobe.cli.console import printable
from gridprobe.evaluation.offers import Offer

__all__ = ["print_offers"]


def print_offers(console: Console, offered: Sequence[Offer]) -> None:
    """One row for each way to ask, and below what may exceed the limits."""
    priced = any(offer.money for offer in offered)
    table = Table(box=None, padding=(0, 2, 0, 0))
    names = ["a question", "native frames", "tokens", "TFLOPs", "seconds", "GB"]
    for name in [*names, "money"] if priced else names:
        table.add_column(name, justify="left" if name == "a question" else "right")
    for offer in offered:
        cells = [
            offer.name,
            _range(offer.frames),
            _range(offer.tokens),
            _range(offer.tflops),
            _range(offer.seconds) if offer.seconds else "?",
            f"{offer.memory_gb:.3g}",
        ]
        table.add_row(*cells, *([_range(offer.money) if offer.money else "?"] if priced else []))
    console.print(table)
    for offer in offered:
        if offer.over:
            console.print(Text(printable(f"{offer.name}: {offer.over}")))
    if not any(offer.seconds for offer in offered):
        console.print(Text("seconds will be known once this model has answered on this machine"))


def _range(values: tuple[float, float]) -> str:
    least, most = map(_number, values)
    return least if least == most else f"{least}–{most}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
