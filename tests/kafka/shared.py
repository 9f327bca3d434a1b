"""One broker for all workers of a test run, which stops after the last of them exits.

A keeper process runs the broker. Every worker holds a shared lock on a file; the keeper waits for the exclusive lock.
The kernel releases the lock of a worker that dies.
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
_LISTENERS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class SecuredBroker(Topics):
    """A broker with a plaintext listener and secured ones."""

    def __init__(self, addresses: dict[str, str], security: Security, log: Path) -> None:
        super().__init__(addresses["PLAINTEXT"])
        self.addresses = addresses
        self.security = security
        self.log = log


@contextmanager
def shared_broker(folder: Path) -> Iterator[SecuredBroker]:
    """Use the broker of a folder; the first worker starts it."""
    with (folder / "users").open("a") as users:
        with locked(folder / "starting"):
            # Blocks while the keeper of an earlier broker stops.
            fcntl.flock(users, fcntl.LOCK_SH)
            if not (folder / "address.json").exists():
                _start_keeper(folder)
        yield _read(folder / "address.json")


def _start_keeper(folder: Path) -> None:
    path = folder / "keeper.log"
    with path.open("ab") as log:
        # In its own session: Ctrl-C must reach pytest only.
        keeper = subprocess.Popen(
            [sys.executable, "-m", "tests.kafka.shared", str(folder)],
            cwd=_ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    while not (folder / "address.json").exists():
        if keeper.poll() is not None:
            raise BrokerFailed(f"the shared broker did not start; {path}: {path.read_text()[-4000:]}")
        time.sleep(0.05)
    # It outlives this process: no warning about an unreaped child.
    keeper.returncode = 0


def _keep(folder: Path, users: IO[str]) -> None:
    """Run a broker until all workers have released their lock."""
    address = folder / "address.json"
    own = Path(folder / f"broker-{time.time_ns()}")
    own.mkdir()
    cluster = Cluster(own, secured=True)
    cluster.record_classes()
    with cluster:
        assert cluster.security is not None
        addresses = {listener: cluster.address(listener) for listener in _LISTENERS}
        _write(address, SecuredBroker(addresses, cluster.security, cluster.nodes[1].log))
        fcntl.flock(users, fcntl.LOCK_EX)
        address.unlink()


def _write(path: Path, broker: SecuredBroker) -> None:
    security = broker.security
    document = {
        "addresses": broker.addresses,
        "log": str(broker.log),
        "authority": str(security.authority),
        "pairs": {"client": _names(security.client), "untrusted": _names(security.untrusted)},
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
    security = Security(Path(document["authority"]), pairs["client"], pairs["untrusted"], **document["login"])
    return SecuredBroker(document["addresses"], security, Path(document["log"]))


if __name__ == "__main__":
    shared_folder = Path(sys.argv[1])
    with (shared_folder / "users").open("a") as lock:
        _keep(shared_folder, lock)
