"""The expected windows and counters, computed with plain lists and no code of the program."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.torture.records import CLASSES, SITES, Label, WriteLog, id_of, number_at, site_of, time_of, vector_of

Row = tuple[float, tuple[float, ...]]
"""Event time and vector."""

LabelCounts = tuple[int, int, int]
"""Records with an id, those with a label, and those of them that were decided right."""


@dataclass
class StateContent:
    """The content of a state: windows by segment name, oldest record first, and the relevant counters."""

    windows: dict[str, list[Row]]
    records_total: int
    rejected: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    evidence: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """By segment, how many records counted as evidence of a change, and the sums of their values."""
    labels_total: int = 0
    labels: dict[str, list[LabelCounts]] = field(default_factory=dict)
    """By segment, of the records in the window and of all that are kept."""


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
    more = _compare_labels(found, write_log, window_size, comparison)
    comparison.lost = max(len(comparison.missing), write_log.written - found.records_total, -min(more))
    comparison.duplicated = max(len(comparison.repeated), found.records_total - write_log.written, *more)
    return comparison


def label_that_counts(labels: Sequence[Label]) -> dict[str, str]:
    """Return the class of each id: the latest by time; a label without a time is later than all before it."""
    found: dict[str, tuple[float, str]] = {}
    for name, of, at in labels:
        time = math.inf if at is None else at
        if name not in found or time >= found[name][0]:
            found[name] = time, of
    return {name: of for name, (_, of) in found.items()}


def expected_labels(write_log: WriteLog, window_size: int) -> dict[str, list[LabelCounts]]:
    """Return what labels say of each window, in the window and of all records."""
    said = label_that_counts(write_log.labels)

    def counts(numbers: Sequence[int]) -> LabelCounts:
        kept = [number for number in numbers if id_of(number) is not None]
        labelled = [(said[name], number) for number in kept if (name := id_of(number)) in said]
        right = sum(CLASSES.index(of) == _decided(number) for of, number in labelled)
        return len(kept), len(labelled), right

    inside, everything = (expected_numbers(write_log.written, size) for size in (window_size, write_log.written))
    return {name: [counts(inside[name]), counts(everything[name])] for name in inside}


def _decided(number: int) -> int:
    vector = vector_of(number)
    return vector.index(max(vector))


def _compare_labels(
    found: StateContent, write_log: WriteLog, window_size: int, comparison: Comparison
) -> tuple[int, ...]:
    """Compare what labels say; return by how much each count is too large."""
    wanted, more = expected_labels(write_log, window_size), [0, found.labels_total - len(write_log.labels)]
    if more[-1]:
        comparison.add(f"labels_total: expected {len(write_log.labels)}, found {found.labels_total}")
    for name, counts in wanted.items():
        # A window without kept records has no counts.
        here = found.labels.get(name, [(0, 0, 0)] * len(counts))
        if here != counts:
            comparison.add(f"{name}: expected records, labels and right ones {counts}, found {here}")
        more += [a - b for one, other in zip(here, counts, strict=True) for a, b in zip(one, other, strict=True)]
    return tuple(more)


def compare_running(found: StateContent, write_log: WriteLog) -> Comparison:
    """Check what must hold at any time: no duplicates, intact records, and consistent counts."""
    comparison, written = Comparison(), write_log.written
    with_id = sum(id_of(number) is not None for number in range(written))
    if found.labels_total > len(write_log.labels):
        comparison.add(f"labels_total: {len(write_log.labels)} written, found {found.labels_total}")
    for name, (_, (records, labels, _)) in found.labels.items():
        if labels > records or records > with_id:
            comparison.add(f"{name}: {records} predictions kept of {with_id}, {labels} of them with a label")
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
