"""Input warnings: when they start and end, and that they survive a restart."""

import itertools
import struct
import zlib

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon

from monitor.core.baselines.output_drift import jensen_shannon
from monitor.core.input_health import (
    FEWEST,
    LAST_ACCEPTED,
    LAST_RECORDS,
    Count,
    InputHealth,
    InputProblem,
    RecentInput,
    RecentShare,
    count_key,
    far_mix,
)
from tests.strategies import Singles, synthetic

SOFT = synthetic(100_000, 3, seed=5)[0]
HOT = np.eye(3, dtype=np.float32)[np.arange(2000) % 3]
SAME = np.tile(SOFT[0], (2000, 1))
EMPTY = SOFT[:0]

Step = tuple[Singles, int]


def after(*steps: Step) -> InputHealth:
    """Return the input health after some batches of accepted vectors and rejected records."""
    health = InputHealth()
    for vectors, rejected in steps:
        health = health.added(vectors, rejected)
    return health


def rows(count: int, *vector: float) -> Singles:
    """Return the same vector several times."""
    return np.tile(np.array(vector, dtype=np.float32), (count, 1))


@pytest.mark.parametrize(
    ("steps", "share", "degraded"),
    [
        pytest.param([], None, False, id="nothing came"),
        pytest.param([(EMPTY, 0)], None, False, id="an empty batch is nothing"),
        pytest.param([(EMPTY, 1)], 1.0, False, id="one record"),
        pytest.param([(SOFT[:1], 1)], 0.5, False, id="two records say nothing"),
        pytest.param([(EMPTY, 99)], 1.0, False, id="one short of enough"),
        pytest.param([(EMPTY, 100)], 1.0, True, id="enough"),
        pytest.param([(SOFT[:95], 5)], 0.05, False, id="exactly 5% is not more"),
        pytest.param([(SOFT[:94], 6)], 0.06, True, id="6% is"),
        pytest.param([(SOFT[:950], 50)], 0.05, False, id="exactly 5% of 1,000"),
        pytest.param([(SOFT[:949], 51)], 0.051, True, id="one more"),
        pytest.param([(EMPTY, 51), (SOFT[:949], 0)], 0.051, True, id="all still within the last 1,000"),
        pytest.param([(EMPTY, 51), (SOFT[:950], 0)], 0.05, False, id="one of them just left"),
        pytest.param([(EMPTY, 500), (SOFT[:1000], 0)], 0.0, False, id="a thousand good ones later"),
        pytest.param([(SOFT[:1000], 0)] + [(EMPTY, 1)] * 51, 0.051, True, id="one by one"),
        pytest.param([(SOFT, 0), (EMPTY, 51)], 0.051, True, id="after a batch of 100,000"),
        pytest.param([(SOFT[:90_000], 10_000)], 0.1, True, id="10% of 100,000"),
        pytest.param([(SOFT[:96_000], 4_000)], 0.04, False, id="4% of 100,000"),
        pytest.param([(SOFT[:99_999], 1)], 0.001, False, id="a share is rounded up: one of 100,000"),
        pytest.param([(EMPTY, 100_000)], 1.0, True, id="all of 100,000"),
        pytest.param([(SOFT[:900], 100), (SOFT[:500], 0)], 0.05, False, id="of half a batch its share"),
    ],
)
def test_share_of_rejected_records(steps: list[Step], share: float | None, degraded: bool) -> None:  # noqa: FBT001
    """Of the last 1,000 records, in batches of any size."""
    health = after(*steps)
    assert health.rejected_share == share
    assert health.degraded is degraded
    assert health.records == min(LAST_RECORDS, sum(len(vectors) + rejected for vectors, rejected in steps))


@pytest.mark.parametrize(
    ("steps", "one_hot"),
    [
        pytest.param([], False, id="nothing came"),
        pytest.param([(HOT[:99], 0)], False, id="one short of enough"),
        pytest.param([(HOT[:100], 0)], True, id="enough"),
        pytest.param([(HOT[:1], 0)] * 100, True, id="one by one"),
        pytest.param([(SOFT[:25], 0), (HOT[:475], 0)], False, id="exactly 95% is not more"),
        pytest.param([(SOFT[:24], 0), (HOT[:476], 0)], True, id="one more"),
        pytest.param([(SOFT, 0), (HOT[:475], 0)], False, id="of the last 500, 95%"),
        pytest.param([(SOFT, 0), (HOT[:476], 0)], True, id="of the last 500, one more"),
        pytest.param([(HOT, 0), (SOFT[:25], 0)], False, id="gone after 25 others"),
        pytest.param([(HOT, 0), (EMPTY, 5000)], True, id="rejected records do not end it"),
        pytest.param([(rows(500, 1.0, 1e-9, 0.0), 0)], False, id="very sure is not one-hot"),
        pytest.param([(rows(500, 1.0, -0.0, 0.0), 0)], True, id="a negative zero is zero"),
    ],
)
def test_one_hot(steps: list[Step], one_hot: bool) -> None:  # noqa: FBT001
    """More than 95% of the last 500 accepted."""
    assert after(*steps).one_hot is one_hot


@pytest.mark.parametrize(
    ("steps", "constant"),
    [
        pytest.param([], False, id="nothing came"),
        pytest.param([(SAME[:1], 0)], False, id="one"),
        pytest.param([(SAME[:99], 0)], False, id="one short of enough"),
        pytest.param([(SAME[:100], 0)], True, id="enough"),
        pytest.param([(SAME[:1], 0)] * 100, True, id="one by one"),
        pytest.param([(SOFT[1:2], 0), (SAME[:499], 0)], False, id="another one within the last 500"),
        pytest.param([(SOFT[1:2], 0), (SAME[:500], 0)], True, id="which just left"),
        pytest.param([(SOFT, 0), (SAME[:250], 0), (SAME[:250], 0)], True, id="stuck after a while"),
        pytest.param([(SOFT, 0), (SAME[:250], 0), (EMPTY, 9), (SAME[:249], 0)], False, id="one short of 500"),
        pytest.param([(np.concatenate([SAME, SOFT[1:2]]), 0)], False, id="ends with another"),
        pytest.param([(SAME, 0), (SOFT[1:2], 0)], False, id="over at the first other one"),
        pytest.param([(SAME, 0), (EMPTY, 5000)], True, id="rejected records do not end it"),
        pytest.param([(SAME[:300], 0), (np.tile(SOFT[1], (300, 1)), 0)], False, id="stuck at two values in turn"),
        pytest.param([(HOT, 0)], False, id="one-hot is not constant"),
        pytest.param([(rows(99, 1.0, 0.0), 0), (rows(1, 1.0, -0.0), 0)], True, id="a negative zero is zero"),
    ],
)
def test_constant(steps: list[Step], constant: bool) -> None:  # noqa: FBT001
    """All of the last 500 accepted, or of fewer if no more came, are equal."""
    assert after(*steps).constant is constant


def test_another_number_of_classes_starts_a_new_run() -> None:
    """As after a change of the reference, with restored state."""
    health = InputHealth.from_bytes(after((SAME[:500], 40)).to_bytes())
    found = [health.constant]
    for vectors in (rows(499, *[1 / 7] * 7), rows(1, *[1 / 7] * 7), rows(0, 0.5, 0.5), rows(1, 0.5, 0.5)):
        health = health.added(vectors, 3)
        found.append(health.constant)
    assert found == [True, False, True, True, False]


POOL = np.concatenate([SOFT[:2], HOT[:2]])

plans = st.lists(
    st.tuples(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 300)), max_size=4), st.integers(0, 1500)), max_size=8
)


def batch_of(runs: list[tuple[int, int]]) -> Singles:
    """Return runs of equal vectors."""
    return POOL[[which for which, count in runs for _ in range(count)]]


@given(plans)
@example([([(0, 300)], 0), ([(0, 200)], 0)])
def test_one_hot_and_constant_equal_a_plain_count(plan: list[tuple[list[tuple[int, int]], int]]) -> None:
    """However records are split into batches."""
    health, accepted = InputHealth(), list[int]()
    for runs, rejected in plan:
        health = health.added(batch_of(runs), rejected)
        accepted += [which for which, count in runs for _ in range(count)]
        last = accepted[-LAST_ACCEPTED:]
        enough = len(last) >= FEWEST
        assert health.one_hot is (enough and sum(which >= 2 for which in last) > 0.95 * len(last))
        assert health.constant is (enough and len(set(last)) == 1)


@given(st.lists(st.tuples(st.integers(0, 1500), st.integers(0, 1500)), max_size=12))
@example([(0, 0)])
@example([(1, 1)] * 12)
@example([(999, 1), (0, 0), (1000, 0)])
def test_the_rejected_share_equals_a_plain_count(counts: list[tuple[int, int]]) -> None:
    """Less than one record off, for the batch that is partly beyond the last 1,000."""
    health = InputHealth()
    for accepted, rejected in counts:
        health = health.added(SOFT[:accepted], rejected)
    room, expected = LAST_RECORDS, 0.0
    for accepted, rejected in reversed(counts):
        taken = min(room, accepted + rejected)
        expected += rejected * taken / max(accepted + rejected, 1)
        room -= taken
    assert health.records == LAST_RECORDS - room
    if health.rejected_share is None:
        assert room == LAST_RECORDS
    else:
        found = round(health.rejected_share * health.records)
        assert expected - 1e-6 <= found < expected + 1


@given(plans, plans)
def test_a_restart_changes_nothing(
    before: list[tuple[list[tuple[int, int]], int]], then: list[tuple[list[tuple[int, int]], int]]
) -> None:
    """Neither at once nor after later batches."""
    health = after(*((batch_of(runs), rejected) for runs, rejected in before))
    restored = InputHealth.from_bytes(health.to_bytes())
    for runs, rejected in [([], 0), *then]:
        health, restored = (one.added(batch_of(runs), rejected) for one in (health, restored))
        assert restored.to_bytes() == health.to_bytes()
        assert restored.rejected_share == health.rejected_share
        assert (restored.degraded, restored.one_hot, restored.constant) == (
            (health.degraded, health.one_hot, health.constant)
        )


def test_the_stored_state_has_a_small_constant_size() -> None:
    """Without records, with a thousand, and for twenty thousand classes."""
    wide = rows(3, *[1 / 20_000] * 20_000)
    sizes = {len(after(*steps).to_bytes()) for steps in ([], [(SOFT, 500)], [(wide, 1)])}
    assert len(sizes) == 1
    assert sizes.pop() < 256


def test_any_damaged_byte_means_a_fresh_start() -> None:
    """Also missing or extra bytes."""
    content = after((SAME[:600], 300)).to_bytes()
    fresh = InputHealth().to_bytes()
    for place, change in itertools.product(range(len(content)), (1, 0x80, 0xFF)):
        damaged = bytearray(content)
        damaged[place] ^= change
        assert InputHealth.from_bytes(bytes(damaged)).to_bytes() == fresh
    for cut in (content[:-1], content[1:], content + b"\0", b""):
        assert InputHealth.from_bytes(cut).to_bytes() == fresh


@pytest.mark.parametrize(
    ("records", "accepted", "equal"),
    [(LAST_RECORDS + 1, 0, 0), (0, LAST_ACCEPTED + 1, 0), (0, 5, 6), (0xFFFF, 0xFFFF, 0xFFFF)],
)
def test_impossible_numbers_with_a_valid_checksum_mean_a_fresh_start(records: int, accepted: int, equal: int) -> None:
    """As a bug in a later version could write them."""
    fresh = InputHealth().to_bytes()
    content = fresh[:4] + struct.pack("<HHH", records, accepted, equal) + fresh[10:-4]
    assert InputHealth.from_bytes(content + struct.pack("<I", zlib.crc32(content))).to_bytes() == fresh


@given(st.binary(max_size=400))
def test_any_bytes_can_be_restored(content: bytes) -> None:
    """Without an exception, and the result is usable."""
    health = InputHealth.from_bytes(content)
    health = health.added(SOFT[:10], 1)
    assert health.records == 11


@pytest.mark.parametrize(
    ("vectors", "rejected"),
    [pytest.param(SOFT[:2], -1, id="fewer than none"), pytest.param(SOFT[0], 0, id="one vector, no rows")],
)
def test_an_invalid_batch_is_rejected(vectors: Singles, rejected: int) -> None:
    with pytest.raises(ValueError, match=r"^batch: expected rows of vectors and a number of rejected records, found"):
        after((SOFT[:200], 20), (vectors, rejected))


def test_input_arrays_are_not_modified() -> None:
    """They may be read-only."""
    vectors = SOFT[:700].copy()
    vectors.flags.writeable = False
    after((vectors, 3), (vectors[::2], 0))
    assert np.array_equal(vectors, SOFT[:700])


MISSING = count_key(InputProblem.SEGMENT_MISSING, ("site",))


def shown(recent: RecentInput, *seen: str, now: float = 1.0) -> dict[InputProblem, float | None]:
    """Return the problems of shares, with their values."""
    return {one.problem: one.value for one in recent.problems(seen, (), None, now)}


@pytest.mark.parametrize(
    ("key", "batches", "problem"),
    [
        pytest.param(MISSING, [(99, 99)], None, id="too few records"),
        pytest.param(MISSING, [(100, 100)], InputProblem.SEGMENT_NEVER_SEEN, id="no record has the field"),
        pytest.param(MISSING, [(100, 99)], InputProblem.SEGMENT_MISSING, id="one has it"),
        pytest.param(MISSING, [(100, 5)], None, id="5% lack it"),
        pytest.param(MISSING, [(100, 6)], InputProblem.SEGMENT_MISSING, id="more than 5% lack it"),
        pytest.param(MISSING, [(10_000, 0), (200, 200)], InputProblem.SEGMENT_MISSING, id="lately"),
        pytest.param(MISSING, [(10_000, 10_000), (10_000, 0)], None, id="long ago"),
        pytest.param("time_ahead", [(100, 51)], InputProblem.TIME_AHEAD, id="most are ahead"),
        pytest.param("time_behind", [(100, 50)], None, id="half are behind"),
        pytest.param("duplicates", [(1000, 900)], None, id="90% are duplicates"),
        pytest.param("late", [(1000, 950)], InputProblem.LATE, id="nearly all are late"),
        pytest.param("late", [(0, 0)], None, id="nothing came"),
    ],
)
def test_a_share_of_recent_records_is_a_problem(key: str, batches: list[Count], problem: InputProblem | None) -> None:
    """By the latest few hundred, and not before there are a hundred."""
    recent, before = RecentInput(), (0, 0)
    for new in batches:
        now = before[0] + new[0], before[1] + new[1]
        recent.add({key: before}, {key: now}, catching_up=False)
        before = now
    assert list(shown(recent)) == ([] if problem is None else [problem])


def test_a_share_near_its_limit_does_not_begin_and_end_all_the_time() -> None:
    """It ends at four fifths of the limit; since when it holds does not change meanwhile."""
    recent = RecentInput()
    for now, (share, holds) in enumerate([(0.045, False), (0.055, True), (0.045, True), (0.035, False)]):
        recent.shares[MISSING] = RecentShare(400, round(400 * share))
        assert bool(shown(recent, now=float(now))) is holds
        assert recent.since == ({"segment_missing": 1.0} if holds else {})


def test_the_first_record_with_a_segment_ends_that_none_has_it() -> None:
    """Records from before the fix do not count as lacking it."""
    recent = RecentInput()
    recent.add({}, {MISSING: (300, 300)}, catching_up=False)
    assert shown(recent) == {InputProblem.SEGMENT_NEVER_SEEN: 1.0}
    recent.add({MISSING: (300, 300)}, {MISSING: (301, 300)}, catching_up=False)
    assert shown(recent, "site") == {}


def test_a_backlog_explains_old_times_and_nothing_else() -> None:
    """Late records and times far behind are not counted while catching up."""
    counts: dict[str, Count] = {"late": (500, 500), "time_behind": (500, 500), "argmax_mismatch": (500, 500)}
    recent = RecentInput()
    recent.add({}, counts, catching_up=True)
    assert list(shown(recent)) == [InputProblem.ARGMAX_MISMATCH]


def test_records_that_move_to_another_process_make_no_share_larger_than_one() -> None:
    """The records of a shard leave the count; late ones of another are counted meanwhile."""
    recent = RecentInput()
    recent.add({}, {"late": (1000, 0)}, catching_up=False)
    recent.add({"late": (1000, 0)}, {"late": (600, 395)}, catching_up=False)
    assert shown(recent) == {}
    assert recent.shares["late"].value == 0.0


def test_sets_of_fields_and_alerts_are_named() -> None:
    """One problem of a kind, with all names and the largest share."""
    recent = RecentInput()
    recent.add({}, {MISSING: (200, 20), f"{MISSING},scanner": (200, 50)}, catching_up=False)
    missing, alerts = recent.problems((), ("low", "high"), None, 7.0)
    assert (missing.names, missing.value, missing.since) == (("site", "site,scanner"), 0.25, 7.0)
    assert (alerts.problem, alerts.names) == (InputProblem.ALERT_MATCHES_NOTHING, ("low", "high"))


@pytest.mark.parametrize(
    ("now", "reference", "far", "reordered"),
    [
        pytest.param([60, 40], [600, 400], False, False, id="the same"),
        pytest.param([9, 90], [10, 990], False, False, id="too few records"),
        pytest.param([10, 90], [900, 100], True, True, id="two classes swapped"),
        pytest.param([10, 70, 20], [700, 200, 100], True, True, id="three classes in another order"),
        pytest.param([100, 0, 0], [340, 330, 330], True, False, id="one class only"),
        pytest.param([200, 800], [100, 900], False, False, id="a rare class twice as often"),
        pytest.param([0, 100] + [0] * 998, [2] * 1000, False, False, id="chance, with many classes"),
        pytest.param([100], [100, 100], False, False, id="a reference without predictions"),
    ],
)
def test_classes_in_another_order_are_far_from_the_reference(
    now: list[int], reference: list[int], *, far: bool, reordered: bool
) -> None:
    """And a changed mix as such is not."""
    names = [f"c{place}" for place in range(len(reference))]
    found = far_mix(names, np.array(now), reference)
    assert (found is not None, found is not None and found.reordered) == (far, reordered)


def test_the_distance_of_mixes_is_that_of_jensen_and_shannon() -> None:
    """To base 2: 0 for equal mixes, 1 for disjoint ones."""
    one, other = np.array([0.9, 0.1, 0.0]), np.array([0.1, 0.5, 0.4])
    assert jensen_shannon(one, one) == 0.0
    assert jensen_shannon(np.array([1.0, 0.0]), np.array([0.0, 1.0])) == 1.0
    assert jensen_shannon(one, other) == pytest.approx(jensenshannon(one, other, base=2))
