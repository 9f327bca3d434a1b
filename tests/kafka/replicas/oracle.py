"""What the windows of all replicas must be, by plain lists: no code of the program, and no cleverness."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.kafka.producing import Truth
from tests.kafka.replicas.records import Record, number_of, records_in

ALL = "all"

Rows = list[tuple[float, list[float]]]
"""Event times and vectors of a window, oldest first."""


@dataclass(frozen=True)
class Held:
    """What one replica has on its disk of one partition."""

    replica: str
    next_offset: int
    windows: Mapping[str, Rows]
    """By the name of the segment."""


@dataclass
class Verdict:
    """What is wrong."""

    records: int = 0
    """In the windows of the owners."""
    lost: int = 0
    twice: int = 0
    problems: list[str] = field(default_factory=list)


def expected(truth: Mapping[int, bytes | None], most: int) -> dict[str, list[Record]]:
    """Return the windows of a partition: of the whole and of each site the last so many by time, then by offset."""
    records = [one for _, content in sorted(truth.items()) if content is not None for one in records_in(content)]
    windows = {ALL: records}
    for one in records:
        windows.setdefault(f"site={one.site}", []).append(one)
    # Stable: of equal times, the one that was written later is the later one.
    return {name: sorted(some, key=lambda one: one.at)[-most:] for name, some in windows.items()}


def records_expected(truth: Truth, most: int) -> int:
    """Return how many records the windows of the whole hold, all partitions together."""
    return sum(len(expected(records, most)[ALL]) for records in truth.values())


def judge(truth: Truth, held: Mapping[int, Sequence[Held]], most: int) -> Verdict:
    """Compare what lies on the disks of all replicas, after everything has been read."""
    verdict = Verdict()
    for partition, records in sorted(truth.items()):
        end = max(records) + 1
        copies = held.get(partition, [])
        wanted = expected(records, most)
        complete = [copy for copy in copies if copy.next_offset == end]
        for copy in complete:
            _judge_complete(f"partition {partition} in {copy.replica}", copy, wanted, verdict)
        for copy in copies:
            _judge_any(f"partition {partition} in {copy.replica} at {copy.next_offset}", copy, records, verdict)
        if complete:
            verdict.records += len(complete[0].windows.get(ALL, []))
        else:
            verdict.lost += len(wanted[ALL])
            stand = ", ".join(f"{copy.replica} at {copy.next_offset}" for copy in copies) or "none"
            verdict.problems.append(f"partition {partition}: expected a replica at {end}, found {stand}")
    if strangers := sorted(set(held) - set(truth)):
        verdict.problems.append(f"partitions that nobody wrote to: {strangers}")
    return verdict


def _judge_complete(where: str, copy: Held, wanted: Mapping[str, list[Record]], verdict: Verdict) -> None:
    """Compare row by row what whoever has read everything holds."""
    for name in sorted(wanted.keys() | copy.windows.keys()):
        found = [(number_of(vector), at) for at, vector in copy.windows.get(name, [])]
        right = [(one.number, one.at) for one in wanted.get(name, [])]
        if found == right:
            continue
        have, need = Counter(found), Counter(right)
        lost, more = sorted((need - have).elements()), sorted((have - need).elements())
        verdict.lost += len(lost)
        verdict.twice += sum(count - 1 for count in have.values())
        verdict.problems.append(
            f"{where}, {name}: expected {len(right)} rows, found {len(found)}: {len(lost)} lost such as {lost[:3]}, "
            f"{len(more)} too many such as {more[:3]}{'' if lost or more else ', in another order'}"
        )


def _judge_any(where: str, copy: Held, truth: Mapping[int, bytes | None], verdict: Verdict) -> None:
    """Look at what a replica left behind, perhaps in the midst of a rebuild: less than it should be, but never wrong."""
    read = [content for offset, content in truth.items() if offset < copy.next_offset and content is not None]
    known = {one.number: one for content in read for one in records_in(content)}
    for name, rows in copy.windows.items():
        numbers = [number_of(vector) for _, vector in rows]
        twice = len(numbers) - len(set(numbers))
        strange = sum(
            number not in known or known[number].at != at for number, (at, _) in zip(numbers, rows, strict=True)
        )
        if name != ALL:
            strange += sum(f"site={known[number].site}" != name for number in numbers if number in known)
        if twice or strange:
            verdict.twice += twice
            verdict.problems.append(f"{where}, {name}: {twice} rows twice, {strange} that it cannot have read")
