"""The real daemon in the environment of a pod: it starts, and answers the probes."""

import time
from pathlib import Path

import pytest

from monitor.cli import main
from tests.daemon.process import Process, running
from tests.kubernetes.pod import PodFolders, arguments
from tests.kubernetes.rendering import OVERLAYS, Renderer, container, one

pytestmark = pytest.mark.slow

LIMIT_SECONDS = 60


@pytest.fixture(params=OVERLAYS)
def pod(request: pytest.FixtureRequest, render: Renderer, tmp_path: Path) -> PodFolders:
    """The folders of a pod of each overlay."""
    return PodFolders(render.documents("kustomize", request.param), tmp_path / "pod")


def _probe(process: Process, pod: PodFolders, kind: str) -> int:
    return process.ask(pod.container[f"{kind}Probe"]["httpGet"]["path"])[0]


def _passes(process: Process, pod: PodFolders, kind: str) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while (status := _probe(process, pod, kind)) != 200:
        assert time.monotonic() < deadline, f"{kind}: {status}\n{process.log}"
        time.sleep(0.2)


def _started(pod: PodFolders) -> list[str]:
    """Return the arguments of the container without files and addresses."""
    command, *words = pod.container["args"]
    assert command == "run"
    return [word for word in words if not word.startswith(("--config.file", "--web.listen-address"))]


def test_every_path_of_the_configuration_is_mounted(pod: PodFolders) -> None:
    assert pod.paths_outside() == []


def test_the_configuration_passes_the_check(pod: PodFolders) -> None:
    assert main(["check-config", str(pod.write_configuration_for_here())]) == 0


def test_the_container_listens_on_its_port_and_reads_mounted_files(pod: PodFolders) -> None:
    flags = arguments(pod.container["args"])
    assert flags["--web.listen-address"] == f":{pod.container['ports'][0]['containerPort']}"
    assert Path(pod.here(flags["--config.file"])).is_file()
    assert "--config.watch" in flags


def test_one_replica_becomes_ready_and_reads_its_inbox(render: Renderer, tmp_path: Path) -> None:
    pod = PodFolders(render.documents("kustomize", "one"), tmp_path / "pod")
    with running(pod.write_configuration_for_here(), *_started(pod)) as process:
        for kind in ("startup", "liveness", "readiness"):
            _passes(process, pod, kind)
        process.wait_for('cpcmon_window_records{model="density",segment="all"}', 300.0)
        monitor = one(render.documents("kustomize", "one"), "ServiceMonitor")["spec"]
        assert process.ask(monitor["endpoints"][0]["path"])[0] == 200
        assert process.stop() == 0


def test_a_replica_without_a_broker_lives_and_is_not_ready(render: Renderer, tmp_path: Path) -> None:
    """Kubernetes must not restart it: that does not repair a broker."""
    pod = PodFolders(render.documents("kustomize", "replicas"), tmp_path / "pod")
    file = pod.write_configuration_for_here()
    # A name that does not resolve.
    file.write_text(file.read_text(encoding="utf-8").replace("kafka-bootstrap.kafka:9093", "localhost:1"))
    with running(file, *_started(pod)) as process:
        for kind in ("startup", "liveness"):
            _passes(process, pod, kind)
        assert _probe(process, pod, "readiness") == 503
        process.wait_for('cpcmon_source_ready{source="stream"}', 0.0)
        assert _probe(process, pod, "liveness") == 200
        assert process.stop() == 0


def test_the_pods_meet_the_restricted_standard(render: Renderer) -> None:
    """The namespace enforces it."""
    documents = render.documents("kustomize", "replicas")
    labels = one(documents, "Namespace")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    pods = one(documents, "StatefulSet")["spec"]["template"]["spec"]
    assert pods["securityContext"]["runAsNonRoot"]
    assert pods["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container(documents)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
