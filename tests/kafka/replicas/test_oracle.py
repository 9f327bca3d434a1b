"""The oracle of the replica tests detects every kind of error."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from tests.kafka.producing import Truth
from tests.kafka.replicas.oracle import ALL, Rows, StoredPartition, compare, expected
from tests.kafka.replicas.records import number_of, payload, records_in

_WINDOW_SIZE = 40
_TRUTH: Truth = {0: {offset: payload(8 * offset) for offset in range(200)}}


def _stored(truth: Mapping[int, bytes | None], window_size: int = _WINDOW_SIZE) -> StoredPartition:
    vectors = {}
    for content in truth.values():
        for one in records_in(content or b""):
            high, low = divmod(one.number, 4096)
            vectors[one.number] = [high / 8192, low / 8192, 1 - (high + low) / 8192]
    windows = {
        name: [(one.at, vectors[one.number]) for one in some] for name, some in expected(truth, window_size).items()
    }
    return StoredPartition("replica-1", max(truth) + 1, windows)


def _changed(change: Callable[[Rows], Rows]) -> StoredPartition:
    stored = _stored(_TRUTH[0])
    return replace(stored, windows={**stored.windows, ALL: change(list(stored.windows[ALL]))})


def test_correct_windows_have_no_differences() -> None:
    behind = replace(_stored({offset: _TRUTH[0][offset] for offset in range(90)}), replica="replica-2")
    comparison = compare(_TRUTH, {0: [behind, _stored(_TRUTH[0])]}, _WINDOW_SIZE)
    assert (comparison.problems, comparison.lost, comparison.duplicated, comparison.records) == ([], 0, 0, _WINDOW_SIZE)


@pytest.mark.parametrize(
    ("stored", "lost", "duplicated"),
    [
        pytest.param(_changed(lambda rows: rows[:-1]), 1, 0, id="one lost"),
        pytest.param(_changed(lambda rows: [*rows[1:], rows[-1]]), 1, 1, id="one duplicated, which evicted another"),
        pytest.param(_changed(lambda rows: [*rows[:-2], rows[-1], rows[-2]]), 0, 0, id="in another order"),
        pytest.param(_changed(lambda rows: [(rows[0][0] - 1.0, rows[0][1]), *rows[1:]]), 1, 0, id="another time"),
        pytest.param(replace(_stored(_TRUTH[0]), next_offset=199), _WINDOW_SIZE, 0, id="not all was read"),
    ],
)
def test_differences_are_found(stored: StoredPartition, lost: int, duplicated: int) -> None:
    comparison = compare(_TRUTH, {0: [stored]}, _WINDOW_SIZE)
    assert comparison.problems
    assert (comparison.lost, comparison.duplicated > 0) == (lost, duplicated > 0)


def test_duplicated_rows_in_an_outdated_state_are_found() -> None:
    behind = _stored({offset: _TRUTH[0][offset] for offset in range(90)})
    rows = behind.windows[ALL]
    doubled = replace(behind, replica="replica-2", windows={**behind.windows, ALL: [*rows, rows[-1]]})
    comparison = compare(_TRUTH, {0: [_stored(_TRUTH[0]), doubled]}, _WINDOW_SIZE)
    assert len(comparison.problems) == comparison.duplicated == 1


def test_every_record_is_identified_by_its_vector() -> None:
    records = [one for message in range(5000) for one in records_in(payload(message))]
    assert len({one.number for one in records}) == len(records) > 5000
    assert {one.site for one in records} == {"A", "B", "C"}
    assert [one.at for one in records] != sorted(one.at for one in records)
    with pytest.raises(ValueError, match="expected one of a record"):
        number_of([0.2, 0.3, 0.5])
