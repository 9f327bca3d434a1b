"""Parts of the Kafka source that need no broker."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.errors import UsageError
from monitor.sources.kafka.consumer import FailureKind, KafkaFailure, describe
from monitor.sources.kafka.health import PartitionLags, StallDetector
from monitor.sources.kafka.kafka_options import Isolation, KafkaOptions, Mechanism, SaslOptions, Start, TlsOptions
from monitor.sources.kafka.kafka_source import MessageReader
from monitor.sources.kafka.partition_checkpoint import (
    MOST_ENTRIES,
    Fetched,
    Partition,
    PartitionProgress,
    RewindIndex,
    StoredCheckpoints,
    TrackedPartition,
    checkpoint_at,
    decode_metadata,
    decoded,
    encode_metadata,
    encoded,
    partition_of,
)
from monitor.sources.kafka.partitions import FETCHED_AGAIN, BatchSkipper, Ownership, SkippedRange
from tests.sources.kafka.member import EPOCH, decoder, payload

pytestmark = pytest.mark.slow

P = Partition("outputs", 3)
GOOD: dict[str, Any] = {"brokers": ("kafka:9092",), "group": "cpcmon", "topics": ("outputs",)}


@given(st.lists(st.floats(0, 1000), max_size=400), st.integers(0, 400))
def test_a_rewind_includes_every_record_of_a_window(times: list[float], held: int) -> None:
    """Each record has its own range, at any time; the window has the newest by time."""
    index = RewindIndex()
    for offset, time in enumerate(times):
        index.add(offset, time)
    kept = sorted(times, reverse=True)[:held]
    index.forget_before(min(kept, default=float("inf")))
    needed = [offset for offset, time in enumerate(times) if kept and time >= min(kept)]
    assert index.first_needed(len(times)) <= min(needed, default=len(times))
    assert len(index.entries) <= MOST_ENTRIES
    assert index.newest == max((t for _, t in index.entries), default=float("-inf"))


def test_a_rewind_is_short_for_ascending_times() -> None:
    index = RewindIndex()
    for offset in range(0, 100_000, 100):
        index.add(offset, float(offset + 99))
    index.forget_before(90_000.0)
    # With a thousand ranges, up to an eighth of the records is read unnecessarily.
    assert 80_000 <= index.first_needed(100_000) <= 90_000


@pytest.mark.parametrize(
    ("restored_to", "expected"),
    [
        (0, [([0, 2, 3, 5], False, 7)]),
        (3, [([0, 2], True, 3), ([3, 5], False, 7)]),
        (5, [([0, 2, 3], True, 4), ([5], False, 7)]),
        (6, [([0, 2, 3, 5], True, 7)]),
        (9, [([0, 2, 3, 5], True, 7)]),
    ],
)
def test_what_the_group_has_read_before_is_delivered_apart(
    restored_to: int, expected: list[tuple[list[int], bool, int]]
) -> None:
    """Offsets 1, 4 and 6 are tombstones. A delivery that is rolled back comes again the same."""
    tracked = TrackedPartition(P, checkpoint_at(0, "", "", restored_to))
    values = [None if offset in {1, 4, 6} else payload(offset) for offset in range(7)]
    reader = MessageReader(decoder(), "", None, with_payload=False)
    for _ in range(2):
        found = list(reader.deliveries(tracked, Fetched(range(7), values, [0] * 7), EPOCH))
        tracked.roll_back()
        assert [
            (
                [int(at) - EPOCH for one in delivery.batch.models.values() for at in one.at],
                delivery.rebuilt,
                checkpoint.next_offset,
            )
            for delivery, checkpoint in found
        ] == expected
        assert found[-1][1].restored_to == (9 if restored_to == 9 else 0), "a restart in between knows it too"


def test_an_empty_window_needs_no_rewind() -> None:
    index = RewindIndex([(5, 1.0), (9, 2.0)])
    index.forget_before(float("inf"))
    assert index.first_needed(12) == 12


def test_commit_metadata_is_decoded() -> None:
    note = decode_metadata(encode_metadata(17, "f00d", "topic-id"))
    assert note is not None
    assert (note.rewind, note.fingerprint, note.topic_id) == (17, "f00d", "topic-id")
    assert len(encode_metadata(2**62, "f" * 32, "t" * 36)) < 200


@pytest.mark.parametrize(
    "text",
    [
        "",
        "consumer-1",
        "{}",
        '{"v":2,"r":1}',
        '{"v":1,"r":-1}',
        '{"v":1,"r":"1"}',
        "\ud800",
        '{"v":1,"r":1}' + " " * 2000,
    ],
)
def test_foreign_commit_metadata_is_ignored(text: str) -> None:
    assert decode_metadata(text) is None


@given(st.binary(max_size=60))
def test_damaged_checkpoints_are_rejected(value: bytes) -> None:
    found = decoded(value)
    assert found is None or encoded(found)


def test_a_checkpoint_key_names_the_partition() -> None:
    position = checkpoint_at(7, "id", "print", 9)
    stored = StoredCheckpoints()
    assert stored.restore({P.key: encoded(position), b"outputs/4": b"?", b"nonsense": b""}) == 2
    assert stored.get(P) == position
    assert stored.damaged == {Partition("outputs", 4)}
    assert partition_of(b"a/b/2") == Partition("a/b", 2)
    assert [partition_of(key) for key in (b"/1", b"x/", b"x/-1", b"x", "x/\u00b2".encode())] == [None] * 5


@given(st.integers(1, 300), st.integers(1, 300), st.integers(0, 50))
def test_exactly_the_damaged_batch_is_skipped(size: int, behind: int, inside: int) -> None:
    """The batch covers offsets 100 to 99 + size, and is first fetched somewhere within."""
    first = 100 + min(inside, size - 1)
    skipping, end, at, tries = BatchSkipper(), 100 + size + behind, first, 0
    while True:
        tries += 1
        if at < 100 + size:
            at = skipping.failed(P, at, end)
            continue
        found = skipping.worked(P)
        if isinstance(found, SkippedRange):
            break
        at = found
    assert found == SkippedRange(first, 100 + size)
    assert tries <= FETCHED_AGAIN + 2 * 10 + 3
    assert P not in skipping


def test_ownership_follows_the_assignment() -> None:
    ownership, a, b, c = Ownership(), Partition("t", 0), Partition("t", 1), Partition("t", 2)
    assert ownership.take_change() is None
    ownership.assigned([])
    ownership.assigned([a, b])
    ownership.revoked([a])
    ownership.assigned([c])
    change = ownership.take_change()
    assert change is not None
    assert (change.assigned, change.revoked, change.lost) == ({b, c}, 1, 0)
    assert ownership.owned == {b, c}
    ownership.lost_all()
    change = ownership.take_change()
    assert change is not None
    assert (change.assigned, change.lost, ownership.owned) == (set(), 2, frozenset())


def test_only_long_stalls_are_suspected() -> None:
    watch, q = StallDetector(10.0), Partition("outputs", 4)
    assert watch.suspects({P: 5, q: 5}, 0.0) == frozenset()
    assert watch.suspects({P: 5, q: 6}, 10.0) == {P}
    assert watch.suspects({q: 6}, 15.0) == frozenset()
    assert watch.suspects({P: 5, q: 6}, 20.0) == {q}
    watch.reset()
    assert watch.suspects({P: 5, q: 6}, 25.0) == frozenset()


def test_lag_counts_from_when_a_quiet_partition_was_last_caught_up() -> None:
    """Its newest record is of yesterday; a new one makes it late by a moment, not by a day."""
    meter = PartitionLags()
    meter.start(P, 10, now=86_400.0)
    meter.read(P, 100.0, now=86_400.0)
    meter.measure({P: PartitionProgress(10, 10)}, {}, 86_400.0)
    assert meter.lag.oldest_unread is None
    meter.measure({P: PartitionProgress(10, 11)}, {}, 86_403.0)
    assert meter.lags[P.shard].records == 1
    assert meter.lags[P.shard].seconds == 3.0
    assert meter.lag.oldest_unread == 86_400.0


def test_an_open_transaction_is_no_lag_after_a_query() -> None:
    meter = PartitionLags()
    meter.start(P, 10, now=0.0)
    meter.measure({P: PartitionProgress(10, 15)}, {}, 1.0)
    assert meter.behind(P, 10) == 5
    meter.found_ends({P: 10})
    meter.measure({P: PartitionProgress(10, 15)}, {}, 2.0)
    assert meter.lags[P.shard].records == 0


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"group": ""}, "group: expected a name"),
        ({"topics": ()}, "topics: expected a list of topics or a pattern, found neither"),
        ({"pattern": "x"}, "topics: expected a list of topics or a pattern, found both"),
        ({"topics": ("a", "a")}, "topics: expected each topic once"),
        ({"topics": (), "pattern": "("}, "pattern: expected a regular expression"),
        ({"start": Start.SINCE}, "since: expected a duration exactly when start is since"),
        ({"since_seconds": 5.0}, "since: expected a duration exactly when start is since"),
        ({"max_poll_records": 0}, "max_poll_records: expected a number from 1"),
        ({"session_timeout_seconds": True}, "session_timeout_seconds: expected a number"),
        ({"instance_id": "a b"}, "instance_id: expected up to 249"),
        ({"dead_letter_topic": "outputs"}, "dead_letters.topic: expected a topic that is not read itself"),
        ({"topics": (), "pattern": "out.*", "dead_letter_topic": "out-bad"}, "found one that the pattern matches"),
        ({"dead_letter_payload": True}, "dead_letters.payload: expected a topic"),
    ],
)
def test_invalid_settings_are_rejected(settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError) as refused:
        KafkaOptions(**GOOD | settings)
    assert expected in str(refused.value)


def test_the_default_is_to_read_committed_messages_from_now_on() -> None:
    options = KafkaOptions(**GOOD)
    assert (options.start, options.isolation) == (Start.LATEST, Isolation.READ_COMMITTED)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: TlsOptions(key=Path("k")), "cert"),
        (lambda: SaslOptions(Mechanism.PLAIN, "u"), "password_file"),
        (lambda: SaslOptions(Mechanism.PLAIN, "", Path("p")), "user"),
        (lambda: SaslOptions(Mechanism.OAUTHBEARER), "token_file"),
        (lambda: SaslOptions(Mechanism.OAUTHBEARER, "u", token_file=Path("t")), "user"),
        (lambda: SaslOptions(Mechanism.PLAIN, "u", Path("p"), Path("t")), "token_file"),
    ],
)
def test_an_incomplete_secret_is_rejected(make: Any, expected: str) -> None:
    with pytest.raises(UsageError, match=f"^{expected}: expected"):
        make()


@pytest.mark.parametrize("kind", FailureKind)
def test_every_kind_of_failure_is_counted_and_described(kind: FailureKind) -> None:
    options = KafkaOptions(**GOOD, sasl=SaslOptions(Mechanism.PLAIN, "monitor", Path("/run/secret")))
    text = describe(KafkaFailure(kind, "FOUND"), options)
    assert text.startswith("kafka kafka:9092: expected ")
    assert "found FOUND" in text
    assert "{" not in text
    assert kind.counted == f"errors_{kind}"


def test_a_forbidden_group_is_named() -> None:
    text = describe(KafkaFailure(FailureKind.AUTHORIZATION, "a refusal", group=True), KafkaOptions(**GOOD))
    assert text == (
        "kafka kafka:9092: expected to be allowed to use group cpcmon, found a refusal; "
        "grant Read on the group to the anonymous user"
    )
