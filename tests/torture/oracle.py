"""The expected windows and counters, computed with plain lists and no code of the program."""

from collections import Counter
from dataclasses import dataclass, field

from tests.torture.records import SITES, Book, number_at, site_of, time_of, vector_of

Row = tuple[float, tuple[float, ...]]
"""Event time and vector."""


@dataclass
class Found:
    """The content of a state: windows by segment name, oldest record first, and the relevant counters."""

    windows: dict[str, list[Row]]
    records_total: int
    rejected: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)


@dataclass
class Verdict:
    """The differences."""

    lost: int = 0
    twice: int = 0
    missing: set[int] = field(default_factory=set)
    repeated: set[int] = field(default_factory=set)
    """Records that are lost or duplicated in some window."""
    problems: list[str] = field(default_factory=list)

    def add(self, problem: str) -> None:
        """Add a difference."""
        self.problems.append(problem)


def expected_numbers(written: int, most: int) -> dict[str, list[int]]:
    """Return the expected records of each window: the last by time, which ascends with the number."""
    wanted = {"all": list(range(written))[-most:]}
    for site in SITES:
        numbers = [number for number in range(written) if site_of(number) == site]
        if numbers:
            wanted[f"site={site}"] = numbers[-most:]
    return wanted


def judge(found: Found, book: Book, most: int) -> Verdict:
    """Compare everything at the end, when all was read."""
    verdict = Verdict()
    wanted = expected_numbers(book.written, most)
    if set(wanted) != set(found.windows):
        verdict.add(f"windows: expected {sorted(wanted)}, found {sorted(found.windows)}")
    for name, numbers in wanted.items():
        rows = found.windows.get(name, [])
        _judge_rows(name, rows, verdict)
        held = Counter(number_at(at) for at, _ in rows)
        lost = [number for number in numbers if not held[number]]
        # In a full window, a record that is there twice pushes another one out.
        if lost:
            verdict.missing.update(lost)
            verdict.add(f"{name}: {len(lost)} lost, the first are {lost[:5]}")
        if strangers := sorted(set(held) - set(numbers)):
            verdict.add(f"{name}: {len(strangers)} that should not be there, the first are {strangers[:5]}")
    _judge_counters(found, book, verdict)
    verdict.lost = max(len(verdict.missing), book.written - found.records_total)
    verdict.twice = max(len(verdict.repeated), found.records_total - book.written)
    return verdict


def judge_on_the_way(found: Found, written: int) -> Verdict:
    """Compare what must hold at any instant: no duplicates, nothing torn, and consistent counts."""
    verdict = Verdict()
    for name, rows in found.windows.items():
        _judge_rows(name, rows, verdict)
        if any(not 0 <= number_at(at) < written for at, _ in rows):
            verdict.add(f"{name}: holds records that were never written")
    if len(found.windows.get("all", [])) > found.records_total:
        verdict.add(f"all: {len(found.windows['all'])} records, but {found.records_total} counted")
    verdict.twice = len(verdict.repeated)
    return verdict


def _judge_rows(name: str, rows: list[Row], verdict: Verdict) -> None:
    held = Counter(number_at(at) for at, _ in rows)
    if twice := [number for number, count in held.items() if count > 1]:
        verdict.repeated.update(twice)
        verdict.add(f"{name}: {len(twice)} twice, the first are {sorted(twice)[:5]}")
    if [at for at, _ in rows] != sorted(at for at, _ in rows):
        verdict.add(f"{name}: not in the order of time")
    torn = [number_at(at) for at, vector in rows if not _is_whole(at, vector)]
    if torn:
        verdict.add(f"{name}: {len(torn)} are not what was written, the first are {torn[:5]}")
    if name != "all" and any(f"site={site_of(number)}" != name for number in held):
        verdict.add(f"{name}: holds records of other sites")


def _is_whole(at: float, vector: tuple[float, ...]) -> bool:
    number = number_at(at)
    wanted = vector_of(number)
    # Kept in single precision.
    return at == time_of(number) and all(abs(a - b) < 1e-6 for a, b in zip(vector, wanted, strict=True))


def _judge_counters(found: Found, book: Book, verdict: Verdict) -> None:
    difference = found.records_total - book.written
    if difference:
        verdict.add(f"records_total: expected {book.written}, found {found.records_total}")
    for reason in sorted(book.rejected.keys() | found.rejected.keys()):
        if book.rejected[reason] != found.rejected[reason]:
            verdict.add(f"rejected {reason}: expected {book.rejected[reason]}, found {found.rejected[reason]}")
    for event in ("files_failed", "lost_bytes", "positions_damaged", "files_refused"):
        if found.events[event]:
            verdict.add(f"{event}: expected none, found {found.events[event]}")
