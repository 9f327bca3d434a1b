"""Partitions come, go and come back, with kills in between: no record is lost or counted twice, whoever has them."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.core.segments import ALL
from monitor.core.totals import totals_of
from monitor.core.window import Bounds
from monitor.errors import StatePaused
from monitor.sources.base import Delivery
from monitor.state.store import State
from tests.ingest.lines import NOW, exact, expected, line
from tests.ingest.shards import Log, Replica

P, Q = "predictions/0", "predictions/1"
MOST = 20


def rows(*partitions: list[int]) -> list[tuple[float, tuple[float, ...]]]:
    """Return what the windows must hold together when these records came to the partitions that are owned."""
    return sorted(row for numbers in partitions for row in expected(numbers, most=MOST))


def test_each_partition_has_a_window_of_its_own_and_the_model_has_all(tmp_path: Path) -> None:
    replica = Replica(tmp_path, {P: [line(n) for n in range(30)], Q: [line(n) for n in range(100, 105)]})
    replica.own(P, Q)
    assert replica.window() == rows(list(range(30)), list(range(100, 105)))
    totals = replica.ingestion.view.snapshot("density", NOW, 0.0).measured
    vectors = np.array([vector for _, vector in replica.window()], dtype=np.float32)
    assert totals.records.tolist() == [MOST + 5]
    assert exact(totals) == exact(totals_of(replica.ingestion.states.common["density"].gauge, vectors))


def test_a_partition_that_left_is_in_no_window_and_comes_back_as_it_was(tmp_path: Path) -> None:
    """What came while another process had it is read then."""
    log: Log = {P: [line(n) for n in range(10)], Q: [line(n) for n in range(100, 105)]}
    replica = Replica(tmp_path, log)
    replica.own(P, Q)
    replica.own(Q)
    log[P] += [line(n) for n in range(10, 15)]
    replica.tick()
    assert replica.window() == rows(list(range(100, 105)))
    replica.own(P, Q)
    assert replica.window() == rows(list(range(15)), list(range(100, 105)))
    assert replica.ingestion.view.counters().stored()["records_total", "stream", "density"] == 20


def test_ids_are_remembered_by_partition(tmp_path: Path) -> None:
    """An id of a partition that another process has may come in ours: it was keyed anew. Within one, it counts once."""
    log: Log = {P: [line(1, id="a")], Q: [line(2, id="a"), line(3, id="b"), line(4, id="b")]}
    replica = Replica(tmp_path, log)
    replica.own(P, Q)
    assert replica.window() == rows([1], [2, 3])
    replica.own(Q)
    replica.own(P, Q)
    log[P].append(line(5, id="a"))
    replica.tick()
    assert replica.window() == rows([1], [2, 3])


def test_a_reset_forgets_one_partition_and_its_ids(tmp_path: Path) -> None:
    log: Log = {P: [line(1, id="a"), line(2, id="b")], Q: [line(3)]}
    replica = Replica(tmp_path, log)
    replica.own(P, Q)
    log[P][:] = [line(7, id="b")]
    replica.source.resets.add(P)
    replica.tick()
    assert replica.window() == rows([7], [3])
    replica.kill()
    again = Replica(tmp_path, log)
    again.own(P, Q)
    assert again.window() == rows([7], [3])


def test_a_silent_partition_does_not_keep_what_is_too_old_for_the_others(tmp_path: Path) -> None:
    """A window has no clock of its own but its records; those of the other partitions tell the time."""
    log: Log = {P: [line(1, time=NOW - 5000), line(2, time=NOW - 300)], Q: [line(3, time=NOW - 4900)]}
    replica = Replica(tmp_path, log, bounds=Bounds(age_seconds=3600.0))
    replica.own(P, Q)
    assert len(replica.window()) == 2
    assert replica.ingestion.view.snapshot("density", NOW, 0.0).measured.records.tolist() == [1]
    assert [at for at, _ in replica.window()] == [NOW - 300]


def test_segments_of_all_partitions_together_keep_to_the_cap(tmp_path: Path) -> None:
    log: Log = {P: [line(n, site=f"p{n}", time=NOW - n) for n in range(3)], Q: [line(5, site="q", time=NOW - 10)]}
    replica = Replica(tmp_path, log, split_by=(("site",),), most_segments=3)
    replica.own(P, Q)
    segments = list(replica.ingestion.view.snapshot("density", NOW, 0.0).segments)
    assert segments == [ALL, (("site", "p0"),), (("site", "p1"),), (("site", "p2"),)]


def test_the_source_is_told_how_far_back_windows_reach(tmp_path: Path) -> None:
    replica = Replica(tmp_path, {P: [line(n, time=NOW - 100 + n) for n in range(30)], Q: []})
    replica.own(P, Q)
    assert replica.source.oldest == {P: NOW - 100 + 10, Q: float("inf")}


def test_a_source_that_is_no_longer_configured_leaves_nothing_behind(tmp_path: Path) -> None:
    replica = Replica(tmp_path, {P: [line(1)]})
    replica.own(P)
    replica.kill()
    Replica(tmp_path, {}, source="another").kill()
    state = State.open(tmp_path)
    assert state.window_names() == []
    assert "the source stream is no longer configured" in state.past_events()[-1][1]
    state.close()


def test_a_full_disk_while_partitions_move_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was delivered is taken back, and delivered again once something can be written."""
    log: Log = {P: [line(n) for n in range(10)], Q: [line(n) for n in range(100, 105)]}
    replica = Replica(tmp_path, log)
    replica.own(P)
    log[P] += [line(10)]

    def full(*_: object) -> None:
        raise StatePaused("full")

    with monkeypatch.context() as patch:
        patch.setattr(replica.state, "commit", full)
        replica.own(P, Q)
        assert replica.ingestion.view.paused == "full"
    replica.ingestion.tick(NOW, 1000.0)
    assert replica.window() == rows(list(range(11)), list(range(100, 105)))


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 2), st.integers(1, 30)),
        st.tuples(st.just("own"), st.integers(0, 1), st.sets(st.integers(0, 2))),
        st.tuples(st.just("kill"), st.integers(0, 1), st.none()),
        st.tuples(st.just("lose the disk"), st.integers(0, 1), st.none()),
    ),
    max_size=25,
)


@pytest.mark.slow
@settings(max_examples=12)
@given(steps=_STEPS)
def test_whatever_happens_each_partition_holds_the_latest_of_its_records(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, object]]
) -> None:
    """Two processes, three partitions, which may have two owners at a time, as when one does not know yet that it lost them."""
    names = [f"predictions/{number}" for number in range(3)]
    log: Log = {name: [] for name in names}
    truth: dict[str, list[int]] = {name: [] for name in names}
    folders = [tmp_path_factory.mktemp("state") for _ in range(2)]
    replicas = [Replica(folder, log) for folder in folders]
    owned: list[set[str]] = [set(), set()]
    written = 0
    try:
        for what, which, how in steps:
            if what == "write":
                assert isinstance(how, int)
                numbers = list(range(written, written + how))
                written += how
                truth[names[which]] += numbers
                log[names[which]] += [line(number, id=f"id{number}") for number in numbers]
            elif what == "own":
                assert isinstance(how, set)
                owned[which] = {names[number] for number in how}
            else:
                replicas[which].kill()
                if what == "lose the disk":
                    folders[which] = tmp_path_factory.mktemp("state")
                replicas[which] = Replica(folders[which], log)
            for replica, shards in zip(replicas, owned, strict=True):
                replica.own(*shards)
                assert replica.window() == rows(*(truth[shard] for shard in shards))
    finally:
        for replica in replicas:
            replica.kill()


def test_a_delivery_that_owns_nothing_new_changes_nothing(tmp_path: Path) -> None:
    replica = Replica(tmp_path, {P: [line(1)]})
    replica.own(P)
    before = replica.ingestion.states.of("density")[-1]
    replica.tick()
    assert replica.ingestion.states.of("density")[-1] is before
    assert Delivery().owned is None
