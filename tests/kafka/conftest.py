"""Real brokers: one for the whole run, and two for a test that kills one."""

import gc
import logging
import os
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.broker import Cluster
from tests.kafka.jars import NoBroker, broker_jars
from tests.kafka.mock import MockCluster
from tests.kafka.shared import SecuredBroker, shared_broker
from tests.kafka.topics import Topics
from tests.servers import cannot, real_server


@pytest.fixture(autouse=True)
def collected_sockets() -> Iterator[None]:
    """Collect the sockets that kafka-python leaves open, before they warn in another test.

    Log records would keep them alive through their exceptions, so nothing below CRITICAL is logged.
    """
    log = logging.getLogger("kafka")
    before = log.level
    log.setLevel(logging.CRITICAL)
    # Older objects are not searched, which would take longer than most tests.
    gc.freeze()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        log.setLevel(before)
        for thread in threading.enumerate():
            if thread.name == "kafka-connect":
                # A connection attempt that nobody waits for closes its socket when it is over.
                thread.join(5.0)
        gc.collect()
    gc.unfreeze()


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder shared by all workers of this run."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "kafka"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def real_kafka() -> None:
    """Skip without a broker; fail in CI."""
    real_server("java")
    try:
        broker_jars()
    except NoBroker as error:
        cannot(f"NO KAFKA BROKER ({error})")


@pytest.fixture(scope="session")
def secured_kafka(real_kafka: None, run_folder: Path) -> Iterator[SecuredBroker]:  # noqa: ARG001, a condition
    """One real broker for all workers, with TLS and SASL listeners."""
    with shared_broker(run_folder) as broker:
        yield broker


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> Topics:
    """One real broker for all workers, or the one that KAFKA_BOOTSTRAP names."""
    named = os.environ.get("KAFKA_BOOTSTRAP")
    if not named:
        broker: SecuredBroker = request.getfixturevalue("secured_kafka")
        return broker
    if not Topics(named).in_sync(1):
        pytest.fail("KAFKA_BOOTSTRAP: expected the address of a broker that answers, found none")
    return Topics(named)


@pytest.fixture
def cluster_of_two(real_kafka: None, tmp_path: Path) -> Iterator[Cluster]:  # noqa: ARG001
    """Two brokers for one test."""
    with Cluster(tmp_path / "two", 2) as cluster:
        yield cluster


@pytest.fixture
def mock_kafka() -> Iterator[MockCluster]:
    """Three mock brokers, which need no Java."""
    with MockCluster(3) as cluster:
        yield cluster
