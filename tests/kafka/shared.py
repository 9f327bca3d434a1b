"""One broker for all workers of a test run, which ends when the last of them does, however it ends.

A keeper process holds the broker. Every worker that uses it holds a shared lock on one file; the keeper waits for the
exclusive lock. The kernel lets go of a dead worker's lock, so nothing is counted and nothing can be counted wrong.
"""

import fcntl
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tests.kafka.broker import Cluster
from tests.kafka.jars import locked
from tests.kafka.node import BrokerFailed
from tests.kafka.security import Security
from tests.kafka.topics import Topics
from tests.web.certificates import Pair

_ROOT = Path(__file__).resolve().parents[2]
_DOORS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class SecuredBroker(Topics):
    """A broker with an open door for tests themselves, and guarded ones for what they test."""

    def __init__(self, addresses: dict[str, str], security: Security, log: Path) -> None:
        super().__init__(addresses["PLAINTEXT"])
        self.addresses = addresses
        self.security = security
        self.log = log
        """What the broker itself says, for instance of those that it refuses."""


@contextmanager
def shared_broker(folder: Path) -> Iterator[SecuredBroker]:
    """Use the broker that belongs to a folder; the first one who asks starts it."""
    with (folder / "users").open("a") as users:
        with locked(folder / "starting"):
            # Waits while a keeper whose last user left is stopping.
            fcntl.flock(users, fcntl.LOCK_SH)
            if not (folder / "address.json").exists():
                _start_keeper(folder)
        yield _read(folder / "address.json")


def _start_keeper(folder: Path) -> None:
    said = folder / "keeper.log"
    with said.open("ab") as log:
        # A session of its own: Ctrl-C is for pytest, whose end the keeper notices.
        keeper = subprocess.Popen(
            [sys.executable, "-m", "tests.kafka.shared", str(folder)],
            cwd=_ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    while not (folder / "address.json").exists():
        if keeper.poll() is not None:
            raise BrokerFailed(f"the shared broker did not start; {said} says: {said.read_text()[-4000:]}")
        time.sleep(0.05)
    # Nobody waits for it: it ends after this process.
    keeper.returncode = 0


def _keep(folder: Path, users: IO[str]) -> None:
    """Run a broker until nobody uses it."""
    address = folder / "address.json"
    own = Path(folder / f"broker-{time.time_ns()}")
    own.mkdir()
    with Cluster(own, secured=True) as cluster:
        assert cluster.security is not None
        addresses = {door: cluster.address(door) for door in _DOORS}
        _write(address, SecuredBroker(addresses, cluster.security, cluster.nodes[1].log))
        fcntl.flock(users, fcntl.LOCK_EX)
        address.unlink()


def _write(path: Path, broker: SecuredBroker) -> None:
    security = broker.security
    document = {
        "addresses": broker.addresses,
        "log": str(broker.log),
        "authority": str(security.authority),
        "pairs": {"client": _names(security.client), "stranger": _names(security.stranger)},
        "login": {"user": security.user, "password": security.password},
    }
    fresh = path.with_suffix(".new")
    fresh.touch(mode=0o600)
    fresh.write_text(json.dumps(document))
    fresh.replace(path)


def _names(pair: Pair) -> list[str]:
    return [str(pair.cert), str(pair.key)]


def _read(path: Path) -> SecuredBroker:
    document = json.loads(path.read_text())
    pairs = {name: Pair(Path(cert), Path(key)) for name, (cert, key) in document["pairs"].items()}
    security = Security(Path(document["authority"]), pairs["client"], pairs["stranger"], **document["login"])
    return SecuredBroker(document["addresses"], security, Path(document["log"]))


if __name__ == "__main__":
    place = Path(sys.argv[1])
    with (place / "users").open("a") as held:
        _keep(place, held)
