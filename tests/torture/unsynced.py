"""cpcmon without database syncs, to show that the power cut test detects that."""

import sqlite3
import sys
from pathlib import Path

from monitor.state import database
from tests.torture.process import run

_configure = database._configure  # noqa: SLF001


def _without_sync(connection: sqlite3.Connection, path: Path, *, networked: bool) -> None:
    _configure(connection, path, networked=networked)
    connection.execute("PRAGMA synchronous = OFF")


if __name__ == "__main__":
    database._configure = _without_sync  # noqa: SLF001
    sys.exit(run(sys.argv[1:]))
