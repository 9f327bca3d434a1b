"""The expected windows and counters, computed with plain lists and no code of the program."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.torture.records import SITES, WriteLog, number_at, site_of, time_of, vector_of

Row = tuple[float, tuple[float, ...]]
"""Event time and vector."""


@dataclass
class StateContent:
    """The content of a state: windows by segment name, oldest record first, and the relevant counters."""

    windows: dict[str, list[Row]]
    records_total: int
    rejected: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    evidence: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """By segment, how many records counted as evidence of a change, and the sums of their values."""


EvidenceOf = Callable[[Sequence[int]], tuple[int, ...]]
"""Returns the evidence of some records, each counted once."""


@dataclass
class Comparison:
    """The differences."""

    lost: int = 0
    duplicated: int = 0
    missing: set[int] = field(default_factory=set)
    repeated: set[int] = field(default_factory=set)
    """Records that are lost or duplicated in some window."""
    problems: list[str] = field(default_factory=list)

    def add(self, problem: str) -> None:
        """Add a difference."""
        self.problems.append(problem)


def expected_numbers(written: int, window_size: int) -> dict[str, list[int]]:
    """Return the expected records of each window: the last by time, which ascends with the number."""
    wanted = {"all": list(range(written))[-window_size:]}
    for site in SITES:
        numbers = [number for number in range(written) if site_of(number) == site]
        if numbers:
            wanted[f"site={site}"] = numbers[-window_size:]
    return wanted


def compare(
    found: StateContent, write_log: WriteLog, window_size: int, evidence_of: EvidenceOf | None = None
) -> Comparison:
    """Compare after everything was read."""
    comparison = Comparison()
    wanted = expected_numbers(write_log.written, window_size)
    if set(wanted) != set(found.windows):
        comparison.add(f"windows: expected {sorted(wanted)}, found {sorted(found.windows)}")
    for name, numbers in wanted.items():
        rows = found.windows.get(name, [])
        _compare_rows(name, rows, comparison)
        held = Counter(number_at(at) for at, _ in rows)
        lost = [number for number in numbers if not held[number]]
        # In a full window, a duplicated record evicts another one.
        if lost:
            comparison.missing.update(lost)
            comparison.add(f"{name}: {len(lost)} lost, the first are {lost[:5]}")
        if unexpected := sorted(set(held) - set(numbers)):
            comparison.add(f"{name}: {len(unexpected)} unexpected, the first are {unexpected[:5]}")
    # Evidence is of all records, whether windows still hold them or not.
    for name, numbers in expected_numbers(write_log.written, write_log.written).items():
        if evidence_of is not None and found.evidence.get(name) != evidence_of(numbers):
            comparison.add(f"{name}: expected the evidence {evidence_of(numbers)}, found {found.evidence.get(name)}")
    _compare_counters(found, write_log, comparison)
    comparison.lost = max(len(comparison.missing), write_log.written - found.records_total)
    comparison.duplicated = max(len(comparison.repeated), found.records_total - write_log.written)
    return comparison


def compare_running(found: StateContent, written: int) -> Comparison:
    """Check what must hold at any time: no duplicates, intact records, and consistent counts."""
    comparison = Comparison()
    for name, rows in found.windows.items():
        _compare_rows(name, rows, comparison)
        if any(not 0 <= number_at(at) < written for at, _ in rows):
            comparison.add(f"{name}: holds records that were never written")
    if len(found.windows.get("all", [])) > found.records_total:
        comparison.add(f"all: {len(found.windows['all'])} records, but {found.records_total} counted")
    comparison.duplicated = len(comparison.repeated)
    return comparison


def _compare_rows(name: str, rows: list[Row], comparison: Comparison) -> None:
    held = Counter(number_at(at) for at, _ in rows)
    if duplicated := [number for number, count in held.items() if count > 1]:
        comparison.repeated.update(duplicated)
        comparison.add(f"{name}: {len(duplicated)} duplicated, the first are {sorted(duplicated)[:5]}")
    if [at for at, _ in rows] != sorted(at for at, _ in rows):
        comparison.add(f"{name}: not in time order")
    changed = [number_at(at) for at, vector in rows if not _is_intact(at, vector)]
    if changed:
        comparison.add(f"{name}: {len(changed)} differ from what was written, the first are {changed[:5]}")
    if name != "all" and any(f"site={site_of(number)}" != name for number in held):
        comparison.add(f"{name}: holds records of other sites")


def _is_intact(at: float, vector: tuple[float, ...]) -> bool:
    number = number_at(at)
    wanted = vector_of(number)
    # Stored in single precision.
    return at == time_of(number) and all(abs(a - b) < 1e-6 for a, b in zip(vector, wanted, strict=True))


def _compare_counters(found: StateContent, write_log: WriteLog, comparison: Comparison) -> None:
    difference = found.records_total - write_log.written
    if difference:
        comparison.add(f"records_total: expected {write_log.written}, found {found.records_total}")
    for reason in sorted(write_log.rejected.keys() | found.rejected.keys()):
        if write_log.rejected[reason] != found.rejected[reason]:
            comparison.add(f"rejected {reason}: expected {write_log.rejected[reason]}, found {found.rejected[reason]}")
    for event in ("files_failed", "lost_bytes", "positions_damaged", "files_refused"):
        if found.events[event]:
            comparison.add(f"{event}: expected none, found {found.events[event]}")
