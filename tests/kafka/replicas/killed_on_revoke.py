"""`cpcmon` that kills itself when partitions are revoked, before it rejoins."""

import os
import signal
import sys
from unittest.mock import patch

from monitor.cli import main
from monitor.sources.kafka.partitions import Ownership

if __name__ == "__main__":
    # kafka-python calls it after the SyncGroup response, before it rejoins.
    with patch.object(Ownership, "revoked", lambda *_: os.kill(os.getpid(), signal.SIGKILL)):
        sys.exit(main())
