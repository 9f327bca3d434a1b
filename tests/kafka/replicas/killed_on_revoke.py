"""`cpcmon`, but killed by SIGKILL when the group takes partitions away, before it can rejoin."""

import os
import signal
import sys
from collections.abc import Iterable

from monitor.cli import main
from monitor.sources.kafka_ownership import Ownership
from monitor.sources.kafka_partition import Partition


def _killed(_: Ownership, __: Iterable[Partition]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    # kafka-python calls it after the SyncGroup response with the smaller assignment, and rejoins afterwards.
    Ownership.revoked = _killed  # type: ignore[method-assign]
    sys.exit(main())
