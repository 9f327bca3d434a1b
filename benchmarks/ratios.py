"""Prints ratios as a table, with their targets."""

import statistics
from collections.abc import Sequence

HEAD = "| ratio | old | new | rounds | wanted | |\n|---|--:|--:|---|---|---|"


def ratio(name: str, new: Sequence[float], wanted: str = "", old: Sequence[float] = ()) -> None:
    """Print a line of the table: the medians, the rounds, and whether the target (`>= 10`) is met."""
    median = statistics.median(new)
    before = _digits(statistics.median(old)) if old else ""
    rounds = f"{_digits(min(new))} to {_digits(max(new))}" if len(new) > 1 else ""
    print(f"| {' | '.join((name, before, _digits(median), rounds, wanted, _verdict(median, wanted)))} |", flush=True)


def _verdict(value: float, wanted: str) -> str:
    if not wanted:
        return ""
    sign, limit = wanted.split()
    return "holds" if (value >= float(limit) if sign == ">=" else value <= float(limit)) else "missed"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
