"""`cpcmon`, but killed by SIGKILL when the group takes partitions away, before it can rejoin."""

import os
import signal
import sys
from unittest.mock import patch

from monitor.cli import main
from monitor.sources.kafka.partitions import Ownership

if __name__ == "__main__":
    # kafka-python calls it after the SyncGroup response with the smaller assignment, and rejoins afterwards.
    with patch.object(Ownership, "revoked", lambda *_: os.kill(os.getpid(), signal.SIGKILL)):
        sys.exit(main())
