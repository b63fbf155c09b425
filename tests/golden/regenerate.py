"""Writes shapes.json: what equations 3 and 4 of the paper give for 28 maps, worked out without gridprobe.

The file is computed in exact fractions (square roots to 50 digits), so it does not depend on the platform or on a
library version; scipy must agree with every line to 1e-9 before anything is written. Run it from anywhere:

    python tests/golden/regenerate.py
"""

import json
import math
import random
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path

import numpy as np
import scipy.stats

FILE = Path(__file__).with_name("shapes.json")
GAMMA0 = Fraction(1, 4)


def confidences(k: int) -> dict[str, tuple[list[float], list[float]]]:
    """Row and column confidences of every kind of map, K of each."""
    rng = random.Random(1000 + k)
    return {
        "flat": ([0.6] * k, [0.35] * k),
        "one-hot": (one_high(k, k // 3, 1.0, 0.0), one_high(k, k - 2, 1.0, 0.0)),
        "one hot cell over a background": (one_high(k, 1, 0.99, 0.25), one_high(k, k // 2, 0.97, 0.25)),
        "plateau": ([0.9] * (k // 4) + [0.3] * (k - k // 4), [0.5] * k),
        "left-skewed": (one_high(k, 2, 0.3, 0.95), one_high(k, k - 1, 0.4, 0.98)),
        "right-skewed": ([round(0.25 + 0.7 * 0.5**i, 4) for i in range(k)], [round(0.9 * 0.8**i, 4) for i in range(k)]),
        "random": ([round(rng.uniform(0.2, 0.9), 4) for _ in range(k)], [round(rng.random(), 4) for _ in range(k)]),
    }


def one_high(k: int, position: int, value: float, rest: float) -> list[float]:
    return [value if i == position else rest for i in range(k)]


def case(kind: str, rows: list[float], columns: list[float]) -> dict[str, object]:
    cells = [Fraction(r) * Fraction(c) for r in rows for c in columns]
    skew, kurtosis = moments(cells)
    sigma = abs(skew) + max(Decimal(0), kurtosis) / 2
    kept = budget(len(rows), sigma)
    check_with_scipy(rows, columns, skew, kurtosis)
    return {
        "name": f"K={len(rows)} {kind}",
        "k": len(rows),
        "row_confidence": rows,
        "column_confidence": columns,
        "skew": float(skew),
        "excess_kurtosis": float(kurtosis),
        "sigma": float(sigma),
        "kept": kept,
    }


def moments(cells: list[Fraction]) -> tuple[Decimal, Decimal]:
    """Population skew m3 / m2^1.5 and excess kurtosis m4 / m2² - 3; both 0 where every cell is the same."""
    mean = sum(cells, Fraction(0)) / len(cells)
    m2, m3, m4 = (sum(((x - mean) ** power for x in cells), Fraction(0)) / len(cells) for power in (2, 3, 4))
    if m2 == 0:
        return Decimal(0), Decimal(0)
    with localcontext() as context:
        context.prec = 50
        variance = decimal(m2)
        return decimal(m3) / (variance * variance.sqrt()), decimal(m4 / m2**2 - 3)


def decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


def budget(k: int, sigma: Decimal) -> int:
    """ceil(K² / (1 + γ₀·K·σ)); refuses a case that rounding of doubles could push over the next whole number."""
    exact = Fraction(k * k) / (1 + GAMMA0 * k * Fraction(sigma))
    assert exact == k * k or min(exact % 1, 1 - exact % 1) > Fraction(1, 10**6), f"ambiguous case: {float(exact)}"
    return math.ceil(exact)


def check_with_scipy(rows: list[float], columns: list[float], skew: Decimal, kurtosis: Decimal) -> None:
    if skew == kurtosis == 0:
        return  # scipy calls the moments of a constant undefined; the paper sets them to 0
    cells = np.outer(rows, columns).reshape(-1)
    assert abs(scipy.stats.skew(cells, bias=True) - float(skew)) < 1e-9
    assert abs(scipy.stats.kurtosis(cells, fisher=True, bias=True) - float(kurtosis)) < 1e-9


def cases() -> list[dict[str, object]]:
    return [case(kind, *both) for k in (4, 8, 12, 16) for kind, both in confidences(k).items()]


def text() -> str:
    """One case to a line, so that a change shows as a line in a diff."""
    return "[\n" + ",\n".join(json.dumps(one) for one in cases()) + "\n]\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
    print(f"wrote {FILE}")
