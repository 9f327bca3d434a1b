"""The jars of Kafka: downloaded once by Maven, and cached outside the tree."""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_POM = Path(__file__).with_name("pom.xml")
_LIMIT_SECONDS = 600


class NoBroker(Exception):
    """The jars of a broker are not available."""


def version() -> str:
    """Return the version in CPCMON_KAFKA_VERSION, by default that of the pom."""
    named = re.search(r"<kafka.version>([^<]+)<", _POM.read_text())
    assert named is not None
    return os.environ.get("CPCMON_KAFKA_VERSION") or named[1]


def broker_jars() -> Path:
    """Return the folder of the jars; raises NoBroker if they cannot be downloaded."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cpcmon"
    cache.mkdir(parents=True, exist_ok=True)
    pom_hash = hashlib.sha256(_POM.read_bytes()).hexdigest()[:8]
    folder = cache / f"kafka-{version()}-{pom_hash}"
    with locked(cache / "kafka.lock"):
        if not folder.is_dir():
            _fetch(folder)
    return folder


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file; the kernel releases it if the process dies."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="partial-") as partial:
        jars = Path(partial) / "jars"
        command = ["mvn", "-q", "-B", "-f", str(_POM), "dependency:copy-dependencies", "-DincludeScope=runtime"]
        command += [f"-Dkafka.version={version()}", f"-DoutputDirectory={jars}"]
        command += ["-Dkafka3"] if version().startswith("3.") else []
        try:
            ran = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_SECONDS, check=False)
        except FileNotFoundError as error:
            raise NoBroker("mvn is not installed, and no jars are in the cache") from error
        except subprocess.TimeoutExpired as error:
            raise NoBroker(f"Kafka {version()} was not fetched by Maven in {_LIMIT_SECONDS} s") from error
        if ran.returncode != 0 or not any(jars.glob("kafka_2.13-*.jar")):
            log = "\n".join((ran.stdout + ran.stderr).strip().splitlines()[:5])
            raise NoBroker(f"Kafka {version()} could not be fetched by Maven: {log}")
        # Moved only when complete: a killed download leaves no partial cache.
        shutil.move(jars, folder)
