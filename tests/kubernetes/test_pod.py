"""The real daemon in the environment of a pod: it starts, and answers the probes."""

import re
import ssl
import time
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
import yaml

from monitor.cli import main
from tests.daemon.process import Process, running
from tests.kubernetes.pod import PodFolders, arguments
from tests.kubernetes.rendering import OVERLAYS, TLS_VALUES, Renderer, container, one, parsed
from tests.web.certificates import Authority, Pair
from tests.web.test_web_config import HASH

pytestmark = pytest.mark.slow

LIMIT_SECONDS = 60
WEB = f"""
tls_server_config:
  cert_file: tls.crt
  key_file: tls.key
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: ca.crt
basic_auth_users: {{prometheus: {HASH}}}
"""


@pytest.fixture(params=OVERLAYS)
def pod(request: pytest.FixtureRequest, render: Renderer, tmp_path: Path) -> PodFolders:
    """The folders of a pod of each overlay."""
    return PodFolders(render.documents("kustomize", request.param), tmp_path / "pod")


def _probe(process: Process, pod: PodFolders, kind: str) -> int:
    """Ask as the kubelet does: over plain HTTP, without a password and without a certificate."""
    asked = pod.container[f"{kind}Probe"]["httpGet"]
    assert (asked["port"], asked.get("scheme", "HTTP")) == ("probes", "HTTP")
    found = re.search(r"http://[0-9.]+:[0-9]+", process.wait_for_line("probes are answered on"))
    assert found is not None
    try:
        with urlopen(found.group() + asked["path"], timeout=LIMIT_SECONDS) as answer:  # noqa: S310 - our own
            return int(answer.status)
    except HTTPError as error:
        return error.code


def _passes(process: Process, pod: PodFolders, kind: str) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while (status := _probe(process, pod, kind)) != 200:
        assert time.monotonic() < deadline, f"{kind}: {status}\n{process.log}"
        time.sleep(0.2)


def _started(pod: PodFolders) -> list[str]:
    """Return the arguments of the container with files and addresses of this machine."""
    command, *words = pod.container["args"]
    assert command == "run"
    free = [word.replace("probe-address=:9878", "probe-address=127.0.0.1:0") for word in words]
    return [pod.here(word) for word in free if not word.startswith(("--config.file", "--web.listen-address"))]


def test_every_path_of_the_configuration_is_mounted(pod: PodFolders) -> None:
    assert pod.paths_outside() == []


def test_the_configuration_passes_the_check(pod: PodFolders) -> None:
    assert main(["check-config", str(pod.write_configuration_for_here())]) == 0


def test_the_container_listens_on_its_port_and_reads_mounted_files(pod: PodFolders) -> None:
    flags = arguments(pod.container["args"])
    ports = [f":{port['containerPort']}" for port in pod.container["ports"]]
    assert [flags["--web.listen-address"], flags["--web.probe-address"]] == ports
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


def test_a_release_with_tls_and_passwords_passes_its_probes(render: Renderer, tmp_path: Path) -> None:
    """And with required client certificates; everything else is refused to those without."""
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(TLS_VALUES), encoding="utf-8")
    documents = parsed(render.helm("--values", str(values)).stdout)
    pod = PodFolders(documents, tmp_path / "pod")
    authority = Authority(tmp_path, "authority")
    authority.signed("server").copied_to(Pair(pod.named("web") / "tls.crt", pod.named("web") / "tls.key"))
    (pod.named("web") / "ca.crt").write_bytes(authority.pair.cert.read_bytes())
    (pod.named("web") / "web.yml").write_text(WEB, encoding="utf-8")
    with running(pod.write_configuration_for_here(), *_started(pod)) as process:
        for kind in ("startup", "liveness", "readiness"):
            _passes(process, pod, kind)
        endpoint = one(documents, "ServiceMonitor")["spec"]["endpoints"][0]
        assert process.url.startswith(f"{endpoint['scheme']}://")
        trusting = ssl.create_default_context(cafile=str(authority.pair.cert))
        with pytest.raises(OSError, match=r"(?i)certificate required|reset|closed"):
            urlopen(f"{process.url}/-/ready", timeout=LIMIT_SECONDS, context=trusting).read()  # noqa: S310 - our own
        client = authority.signed("prometheus")
        trusting.load_cert_chain(client.cert, client.key)
        with pytest.raises(HTTPError, match="401"):
            urlopen(f"{process.url}/-/ready", timeout=LIMIT_SECONDS, context=trusting)  # noqa: S310 - our own
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
