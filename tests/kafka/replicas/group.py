"""Several replicas in one consumer group, and their comparison with the oracle."""

import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.daemon.process import write_reference
from tests.kafka.producing import Truth
from tests.kafka.replicas.oracle import Comparison, StoredPartition, compare, records_expected
from tests.kafka.replicas.replica import MODEL, Replica, ReplicaOptions
from tests.kafka.topics import Topics, unique

REPLICAS = 3
PARTITIONS = 8
UNBOUNDED = 100_000
"""The size of a window that is never full."""
_SETTLE_SECONDS = 90.0
_STEADY_SECONDS = 4.0


class Group:
    """Replicas that share the partitions of one topic."""

    def __init__(self, options: ReplicaOptions, replicas: int = REPLICAS) -> None:
        self.options = options
        self.replicas = [Replica(f"replica-{number}", options) for number in range(1, replicas + 1)]

    def wait_until_caught_up(self, truth: Truth) -> None:
        """Wait until every partition has one owner and the windows hold all records, with a timeout.

        The committed offsets must be at the end too, since a full window does not show that records are missing.
        This must hold for some seconds, since metrics lag behind a rebalance. A timeout is no error: the comparison
        reports what is wrong.
        """
        wanted = records_expected(truth, self.options.window_size)
        ends = {(self.options.topic, partition): max(records) + 1 for partition, records in truth.items()}
        topics = Topics(self.options.brokers)
        deadline = time.monotonic() + _SETTLE_SECONDS
        since: float | None = None
        while time.monotonic() < deadline:
            records = [replica.records() for replica in self.replicas]
            owned = sum(replica.partitions() for replica in self.replicas)
            caught_up = None not in records and sum(filter(None, records)) == wanted and owned == len(truth)
            caught_up = caught_up and topics.committed_offsets(self.options.group) == ends
            since = (since or time.monotonic()) if caught_up else None
            if since is not None and time.monotonic() - since > _STEADY_SECONDS:
                return
            time.sleep(0.25)

    def stop(self) -> None:
        """Stop all at once, so that no partition is reassigned."""
        for replica in self.replicas:
            replica.send_signal(signal.SIGTERM)
        for replica in self.replicas:
            replica.wait_stopped()

    def compare(self, truth: Truth) -> Comparison:
        """Compare the exported metrics and then, after a stop, the states with what was written."""
        records = [replica.records() for replica in self.replicas]
        owned = [replica.partitions() for replica in self.replicas]
        self.stop()
        held: dict[int, list[StoredPartition]] = defaultdict(list)
        for replica in self.replicas:
            for partition, one in replica.stored_partitions():
                held[partition].append(one)
        comparison = compare(truth, held, self.options.window_size)
        wanted = records_expected(truth, self.options.window_size)
        if sum(owned) != len(truth):
            comparison.problems.append(f"expected one owner for each of {len(truth)} partitions, found {owned}")
        if None in records or sum(filter(None, records)) != wanted:
            comparison.problems.append(f"expected {wanted} records in the windows of all replicas, found {records}")
        return comparison

    def log_tail(self) -> str:
        """Return the last log lines of all replicas."""
        return "\n".join(replica.log_tail() for replica in self.replicas)


@contextmanager
def group_of_three(
    folder: Path, brokers: str, topic: str, assignor: str, window_size: int, *, static: bool = False
) -> Iterator[Group]:
    """Run three replicas."""
    write_reference(folder, MODEL)
    reference = folder / f"{MODEL}.ref"
    group = Group(
        ReplicaOptions(folder, brokers, unique("cpcmon"), topic, assignor, window_size, reference, static=static)
    )
    try:
        for replica in group.replicas:
            replica.start()
        for replica in group.replicas:
            replica.wait_for_assignment()
        yield group
    finally:
        for replica in group.replicas:
            if replica.running:
                replica.discard()
