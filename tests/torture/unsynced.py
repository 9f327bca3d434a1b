"""cpcmon with one line changed: its database is not synced. Shows that the power cut test detects it."""

import sqlite3
import sys
from pathlib import Path

from monitor.cli import main
from monitor.state import database

_configure = database._configure  # noqa: SLF001 - to break it on purpose


def _careless(connection: sqlite3.Connection, path: Path, *, networked: bool) -> None:
    _configure(connection, path, networked=networked)
    connection.execute("PRAGMA synchronous = OFF")


if __name__ == "__main__":
    database._configure = _careless  # noqa: SLF001 - see above
    sys.exit(main())
