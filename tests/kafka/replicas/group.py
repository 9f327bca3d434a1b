"""Several replicas in one consumer group: started, waited for, and compared with what was written."""

import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.daemon.process import write_reference
from tests.kafka.producing import Truth
from tests.kafka.replicas.oracle import Held, Verdict, judge, records_expected
from tests.kafka.replicas.replica import MODEL, Replica, Setting
from tests.kafka.topics import Topics, unique

REPLICAS = 3
PARTITIONS = 8
EVERYTHING = 100_000
"""Records of a window that is never full."""
_SETTLE_SECONDS = 90.0
_STEADY_SECONDS = 4.0


class Group:
    """Replicas that share the partitions of one topic."""

    def __init__(self, setting: Setting, replicas: int = REPLICAS) -> None:
        self.setting = setting
        self.replicas = [Replica(f"replica-{number}", setting) for number in range(1, replicas + 1)]

    def settle(self, truth: Truth) -> None:
        """Wait until the replicas say that they own every partition once and hold what was written; or give up.

        Full windows look the same while the last records wait at the broker, so it also counts what they told the group:
        a replica does so only when what it read is on its disk. While partitions move, pages tell of the time before, so
        it also has to stay so for some evaluations. Who gives up says nothing: what is wrong then is found
        by comparing.
        """
        wanted = records_expected(truth, self.setting.most)
        ends = {(self.setting.topic, partition): max(records) + 1 for partition, records in truth.items()}
        topics = Topics(self.setting.brokers)
        deadline = time.monotonic() + _SETTLE_SECONDS
        since: float | None = None
        while time.monotonic() < deadline:
            told = [replica.records() for replica in self.replicas]
            owned = sum(replica.partitions() for replica in self.replicas)
            settled = None not in told and sum(filter(None, told)) == wanted and owned == len(truth)
            settled = settled and topics.reported(self.setting.group) == ends
            since = (since or time.monotonic()) if settled else None
            if since is not None and time.monotonic() - since > _STEADY_SECONDS:
                return
            time.sleep(0.25)

    def stop(self) -> None:
        """Stop all at once, so that nobody takes over what another one leaves."""
        for replica in self.replicas:
            replica.tell(signal.SIGTERM)
        for replica in self.replicas:
            replica.wait_stopped()

    def judge(self, truth: Truth) -> Verdict:
        """Compare what the replicas say in memory, then what lies on their disks, with what was written."""
        told = [replica.records() for replica in self.replicas]
        owned = [replica.partitions() for replica in self.replicas]
        self.stop()
        held: dict[int, list[Held]] = defaultdict(list)
        for replica in self.replicas:
            for partition, one in replica.held():
                held[partition].append(one)
        verdict = judge(truth, held, self.setting.most)
        wanted = records_expected(truth, self.setting.most)
        if sum(owned) != len(truth):
            verdict.problems.append(f"expected that each of {len(truth)} partitions has one owner, found {owned}")
        if None in told or sum(filter(None, told)) != wanted:
            verdict.problems.append(f"expected {wanted} records in memory, all replicas together, found {told}")
        return verdict

    def last_words(self) -> str:
        """Return what the replicas said lately."""
        return "\n".join(replica.last_words() for replica in self.replicas)


@contextmanager
def group_of_three(
    folder: Path, brokers: str, topic: str, assignor: str, most: int, *, static: bool = False
) -> Iterator[Group]:
    """Start three replicas, and leave none behind."""
    write_reference(folder, MODEL)
    reference = folder / f"{MODEL}.ref"
    group = Group(Setting(folder, brokers, unique("cpcmon"), topic, assignor, most, reference, static=static))
    try:
        for replica in group.replicas:
            replica.start()
        for replica in group.replicas:
            replica.wait_for_a_share()
        yield group
    finally:
        for replica in group.replicas:
            if replica.running:
                replica.forget()
