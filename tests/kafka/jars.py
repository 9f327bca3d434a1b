"""The jars of a real Kafka: fetched by Maven once, and kept outside the tree."""

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
    """A real broker cannot be had here."""


def version() -> str:
    """Return the version that is asked for: CPCMON_KAFKA_VERSION, or the one that the pom names."""
    named = re.search(r"<kafka.version>([^<]+)<", _POM.read_text())
    assert named is not None
    return os.environ.get("CPCMON_KAFKA_VERSION") or named[1]


def broker_jars() -> Path:
    """Return the folder of the jars; raises NoBroker where they cannot be fetched."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cpcmon"
    cache.mkdir(parents=True, exist_ok=True)
    recipe = hashlib.sha256(_POM.read_bytes()).hexdigest()[:8]
    folder = cache / f"kafka-{version()}-{recipe}"
    with locked(cache / "kafka.lock"):
        if not folder.is_dir():
            _fetch(folder)
    return folder


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a file that one process at a time can hold; the kernel lets go when the process dies."""
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
            said = "\n".join((ran.stdout + ran.stderr).strip().splitlines()[:5])
            raise NoBroker(f"Kafka {version()} could not be fetched by Maven: {said}")
        # Only a rename makes it the cache: a killed download leaves a folder that nobody takes for complete.
        shutil.move(jars, folder)
