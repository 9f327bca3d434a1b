"""The oracle of replicas notices whatever could go wrong."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from tests.kafka.producing import Truth
from tests.kafka.replicas.oracle import ALL, Held, Rows, expected, judge
from tests.kafka.replicas.records import number_of, payload, records_in

_MOST = 40
_TRUTH: Truth = {0: {offset: payload(8 * offset) for offset in range(200)}}


def _held(truth: Mapping[int, bytes | None], most: int = _MOST) -> Held:
    vectors = {}
    for content in truth.values():
        for one in records_in(content or b""):
            high, low = divmod(one.number, 4096)
            vectors[one.number] = [high / 8192, low / 8192, 1 - (high + low) / 8192]
    windows = {name: [(one.at, vectors[one.number]) for one in some] for name, some in expected(truth, most).items()}
    return Held("replica-1", max(truth) + 1, windows)


def _changed(change: Callable[[Rows], Rows]) -> Held:
    held = _held(_TRUTH[0])
    return replace(held, windows={**held.windows, ALL: change(list(held.windows[ALL]))})


def test_windows_as_they_must_be_are_found_right() -> None:
    behind = replace(_held({offset: _TRUTH[0][offset] for offset in range(90)}), replica="replica-2")
    verdict = judge(_TRUTH, {0: [behind, _held(_TRUTH[0])]}, _MOST)
    assert (verdict.problems, verdict.lost, verdict.twice, verdict.records) == ([], 0, 0, _MOST)


@pytest.mark.parametrize(
    ("held", "lost", "twice"),
    [
        pytest.param(_changed(lambda rows: rows[:-1]), 1, 0, id="one lost"),
        pytest.param(_changed(lambda rows: [*rows[1:], rows[-1]]), 1, 1, id="one twice, which pushed out another"),
        pytest.param(_changed(lambda rows: [*rows[:-2], rows[-1], rows[-2]]), 0, 0, id="in another order"),
        pytest.param(_changed(lambda rows: [(rows[0][0] - 1.0, rows[0][1]), *rows[1:]]), 1, 0, id="another time"),
        pytest.param(replace(_held(_TRUTH[0]), next_offset=199), _MOST, 0, id="nobody has read everything"),
    ],
)
def test_what_is_wrong_is_found(held: Held, lost: int, twice: int) -> None:
    verdict = judge(_TRUTH, {0: [held]}, _MOST)
    assert verdict.problems
    assert (verdict.lost, verdict.twice > 0) == (lost, twice > 0)


def test_rows_that_are_twice_in_what_a_replica_left_behind_are_found() -> None:
    behind = _held({offset: _TRUTH[0][offset] for offset in range(90)})
    rows = behind.windows[ALL]
    doubled = replace(behind, replica="replica-2", windows={**behind.windows, ALL: [*rows, rows[-1]]})
    verdict = judge(_TRUTH, {0: [_held(_TRUTH[0]), doubled]}, _MOST)
    assert len(verdict.problems) == verdict.twice == 1


def test_every_number_is_another_vector_and_is_known_by_it() -> None:
    records = [one for message in range(5000) for one in records_in(payload(message))]
    assert len({one.number for one in records}) == len(records) > 5000
    assert {one.site for one in records} == {"A", "B", "C"}
    assert [one.at for one in records] != sorted(one.at for one in records)
    with pytest.raises(ValueError, match="expected one of a record"):
        number_of([0.2, 0.3, 0.5])
