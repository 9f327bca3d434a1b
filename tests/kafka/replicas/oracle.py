"""The expected windows of all replicas, computed with plain lists and no code of the program."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.kafka.producing import Truth
from tests.kafka.replicas.records import Record, number_of, records_in

ALL = "all"

Rows = list[tuple[float, list[float]]]
"""Event times and vectors of a window, oldest first."""


@dataclass(frozen=True)
class StoredPartition:
    """The state of one partition at one replica."""

    replica: str
    next_offset: int
    windows: Mapping[str, Rows]
    """By segment name."""


@dataclass
class Comparison:
    """The differences."""

    records: int = 0
    """In the windows of replicas that have read everything."""
    lost: int = 0
    duplicated: int = 0
    problems: list[str] = field(default_factory=list)


def expected(truth: Mapping[int, bytes | None], window_size: int) -> dict[str, list[Record]]:
    """Return the windows of a partition, for all records and each site: the latest by time, then by offset."""
    records = [one for _, content in sorted(truth.items()) if content is not None for one in records_in(content)]
    windows = {ALL: records}
    for one in records:
        windows.setdefault(f"site={one.site}", []).append(one)
    # Stable: records with equal times stay in the order of offsets.
    return {name: sorted(some, key=lambda one: one.at)[-window_size:] for name, some in windows.items()}


def records_expected(truth: Truth, window_size: int) -> int:
    """Return the number of records in the windows of all, for all partitions together."""
    return sum(len(expected(records, window_size)[ALL]) for records in truth.values())


def compare(truth: Truth, held: Mapping[int, Sequence[StoredPartition]], window_size: int) -> Comparison:
    """Compare the states of all replicas after everything was read."""
    comparison = Comparison()
    for partition, records in sorted(truth.items()):
        end = max(records) + 1
        copies = held.get(partition, [])
        wanted = expected(records, window_size)
        complete = [copy for copy in copies if copy.next_offset == end]
        for copy in complete:
            _compare_complete(f"partition {partition} in {copy.replica}", copy, wanted, comparison)
        for copy in copies:
            _compare_partial(
                f"partition {partition} in {copy.replica} at {copy.next_offset}", copy, records, comparison
            )
        if complete:
            comparison.records += len(complete[0].windows.get(ALL, []))
        else:
            comparison.lost += len(wanted[ALL])
            positions = ", ".join(f"{copy.replica} at {copy.next_offset}" for copy in copies) or "none"
            comparison.problems.append(f"partition {partition}: expected a replica at {end}, found {positions}")
    if unexpected := sorted(set(held) - set(truth)):
        comparison.problems.append(f"expected no other partitions, found {unexpected}")
    return comparison


def _compare_complete(
    where: str, copy: StoredPartition, wanted: Mapping[str, list[Record]], comparison: Comparison
) -> None:
    """Compare the windows of a replica that has read everything, row by row."""
    for name in sorted(wanted.keys() | copy.windows.keys()):
        found = [(number_of(vector), at) for at, vector in copy.windows.get(name, [])]
        wanted_rows = [(one.number, one.at) for one in wanted.get(name, [])]
        if found == wanted_rows:
            continue
        have, need = Counter(found), Counter(wanted_rows)
        lost, more = sorted((need - have).elements()), sorted((have - need).elements())
        comparison.lost += len(lost)
        comparison.duplicated += sum(count - 1 for count in have.values())
        comparison.problems.append(
            f"{where}, {name}: expected {len(wanted_rows)} rows, found {len(found)}: {len(lost)} lost such as {lost[:3]}, "
            f"{len(more)} too many such as {more[:3]}{'' if lost or more else ', in another order'}"
        )


def _compare_partial(
    where: str, copy: StoredPartition, truth: Mapping[int, bytes | None], comparison: Comparison
) -> None:
    """Check a state that may be outdated or partly rebuilt: rows may be missing, but not duplicated or wrong."""
    read = [content for offset, content in truth.items() if offset < copy.next_offset and content is not None]
    known = {one.number: one for content in read for one in records_in(content)}
    for name, rows in copy.windows.items():
        numbers = [number_of(vector) for _, vector in rows]
        duplicated = len(numbers) - len(set(numbers))
        wrong = sum(
            number not in known or known[number].at != at for number, (at, _) in zip(numbers, rows, strict=True)
        )
        if name != ALL:
            wrong += sum(f"site={known[number].site}" != name for number in numbers if number in known)
        if duplicated or wrong:
            comparison.duplicated += duplicated
            comparison.problems.append(f"{where}, {name}: {duplicated} duplicated rows, {wrong} wrong rows")
