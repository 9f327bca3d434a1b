"""The output of Kustomize and Helm is valid, safe and consistent."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.prometheus.build_rules import CHART
from tests.grafana.dashboard import DASHBOARD, WALL
from tests.kubernetes.rendering import OVERLAYS, WAYS, Renderer, container, one, parsed, shared_rules
from tests.servers import real_server

LABELS = {"app.kubernetes.io/name": "cpcmon", "app.kubernetes.io/instance": "cpcmon"}
OF_OPERATOR = {"ServiceMonitor", "PrometheusRule"}
"""Kinds without a schema in kubernetes-validate."""
MEANT = {
    "CKV_K8S_11": "no limit on the processor: being throttled makes evaluations late",
    "CKV_K8S_15": "IfNotPresent: a pod can start while the registry is away",
    "CKV_K8S_43": "the digest is that of the hospital's own image",
}
"""Accepted findings of checkov, with reasons."""
MOST_ANNOTATION_BYTES = 256 << 10
"""Of all annotations of a manifest; the API server rejects more."""

BOTH_WAYS = pytest.mark.parametrize(("way", "overlay"), [(way, overlay) for way in WAYS for overlay in OVERLAYS])


@pytest.fixture(scope="module")
def rendered(render: Renderer, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A file per rendering."""
    folder = tmp_path_factory.mktemp("rendered")
    for way in WAYS:
        for overlay in OVERLAYS:
            (folder / f"{way}-{overlay}.yaml").write_text(render.text(way, overlay), encoding="utf-8")
    return sorted(folder.iterdir())


@pytest.mark.parametrize("kubernetes", ["1.27", "1.37"])
def test_every_field_is_known_to_kubernetes(render: Renderer, rendered: list[Path], kubernetes: str) -> None:
    """In the oldest version that the chart allows, and the newest with a schema."""
    ran = render.run("kubernetes-validate", "--strict", "-k", kubernetes, *map(str, rendered))
    output = (ran.stdout + ran.stderr).splitlines()
    kinds = [document["kind"] for file in rendered for document in parsed(file.read_text(encoding="utf-8"))]
    without_schema = [kind for kind in kinds if kind in OF_OPERATOR]
    assert len(without_schema) == len(OF_OPERATOR) * len(rendered)
    assert sum(" passed for resource " in line for line in output) == len(kinds) - len(without_schema)
    assert sum("Couldn't find schema" in line for line in output) == len(without_schema)


def test_an_unknown_field_is_found(render: Renderer, tmp_path: Path) -> None:
    """The test above can fail."""
    file = tmp_path / "manifests.yaml"
    file.write_text(render.text("kustomize", "one").replace("maxUnavailable", "maxUnavailible"), encoding="utf-8")
    assert render.run("kubernetes-validate", "--strict", "-k", "1.37", str(file), check=False).returncode != 0


@pytest.mark.slow
def test_checkov_finds_only_accepted_findings(render: Renderer, rendered: list[Path]) -> None:
    """All four renderings at once: checkov starts slowly."""
    words = ["--framework", "kubernetes", "--skip-download", "--compact", "--output", "json"]
    ran = render.run("checkov", "--directory", str(rendered[0].parent), *words, check=False)
    results = json.loads(ran.stdout)["results"]
    assert {(check["file_path"], check["check_id"]) for check in results["failed_checks"]} == {
        (f"/{file.name}", check) for file in rendered for check in MEANT
    }
    assert not results["parsing_errors"]
    assert len(results["passed_checks"]) > 300


@BOTH_WAYS
def test_every_selector_selects_the_pods(render: Renderer, way: str, overlay: str) -> None:
    """A missing selector silently selects nothing, or everything."""
    documents = render.documents(way, overlay)
    pods = one(documents, "StatefulSet")["spec"]
    assert pods["template"]["metadata"]["labels"] == LABELS
    assert pods["selector"] == {"matchLabels": LABELS}
    assert pods["serviceName"] == one(documents, "Service")["metadata"]["name"]
    assert one(documents, "Service")["spec"]["selector"] == LABELS
    assert one(documents, "PodDisruptionBudget")["spec"]["selector"] == {"matchLabels": LABELS}
    assert one(documents, "NetworkPolicy")["spec"]["podSelector"] == {"matchLabels": LABELS}
    assert one(documents, "ServiceMonitor")["spec"]["selector"] == {"matchLabels": LABELS}
    assert one(documents, "Service")["metadata"]["labels"].items() >= LABELS.items()
    assert {document["metadata"].get("namespace", "cpcmon") for document in documents} == {"cpcmon"}


@BOTH_WAYS
def test_an_upgrade_changes_no_immutable_field(render: Renderer, way: str, overlay: str) -> None:
    """Volume claim templates are immutable, with their labels."""
    (claim,) = one(render.documents(way, overlay), "StatefulSet")["spec"]["volumeClaimTemplates"]
    assert "0.1.0" not in json.dumps(claim)


@BOTH_WAYS
def test_every_named_port_exists_in_the_container(render: Renderer, way: str, overlay: str) -> None:
    documents = render.documents(way, overlay)
    asked = container(documents)
    port, for_probes = asked["ports"]
    (served,) = one(documents, "Service")["spec"]["ports"]
    (scraped,) = one(documents, "ServiceMonitor")["spec"]["endpoints"]
    (let_in,) = one(documents, "NetworkPolicy")["spec"]["ingress"][0]["ports"]
    probes = {asked[f"{kind}Probe"]["httpGet"]["port"] for kind in ("startup", "liveness", "readiness")}
    assert {served["name"], served["targetPort"], scraped["port"], let_in["port"]} == {port["name"]}
    assert probes == {for_probes["name"]}


@BOTH_WAYS
def test_the_sidecar_of_grafana_finds_both_dashboards(render: Renderer, way: str, overlay: str) -> None:
    """By the label that kube-prometheus-stack looks for, in every namespace."""
    found: dict[str, Any] = {}
    for document in render.documents(way, overlay):
        if document["metadata"]["labels"].get("grafana_dashboard") == "1":
            assert document["kind"] == "ConfigMap"
            found |= {name: json.loads(text) for name, text in document["data"].items()}
    assert found == {"cpcmon.json": DASHBOARD, "cpcmon-wall.json": WALL}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_kubectl_apply_can_remember_every_manifest(render: Renderer, overlay: str) -> None:
    """It keeps a copy in an annotation, as JSON with escapes for HTML, and the annotations of a manifest have a limit."""
    for document in render.documents("kustomize", overlay):
        copy = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
        size = len(copy.encode()) + 5 * sum(map(copy.count, "<>&"))
        assert size < MOST_ANNOTATION_BYTES - 1000, f"{document['kind']} {document['metadata']['name']}"


@BOTH_WAYS
def test_a_pod_that_is_not_ready_does_not_block_a_drain(render: Renderer, way: str, overlay: str) -> None:
    """By default Kubernetes evicts it only if enough others are ready; without brokers none is."""
    budget = one(render.documents(way, overlay), "PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


@pytest.mark.slow
def test_a_pod_that_moves_keeps_its_instance_label(render: Renderer, tmp_path: Path) -> None:
    """Rules compare values of an instance over time."""
    relabelings, *others = [
        one(render.documents(way, overlay), "ServiceMonitor")["spec"]["endpoints"][0]["relabelings"]
        for way in WAYS
        for overlay in OVERLAYS
    ]
    assert others == [relabelings] * 3
    pods = {"10.0.0.1:9877": "cpcmon-0", "10.0.7.7:9877": "cpcmon-0", "10.0.0.2:9877": "cpcmon-1"}
    assert _instances(tmp_path, relabelings, pods) == ["cpcmon/cpcmon-0", "cpcmon/cpcmon-0", "cpcmon/cpcmon-1"]


def _instances(folder: Path, relabelings: list[dict[str, Any]], pods: dict[str, str]) -> list[str]:
    """Return the `instance` labels that the real Prometheus gives to pods."""
    words = {"sourceLabels": "source_labels", "targetLabel": "target_label"}
    seen = [
        {
            "targets": [address],
            "labels": {"__meta_kubernetes_namespace": "cpcmon", "__meta_kubernetes_pod_name": name},
        }
        for address, name in pods.items()
    ]
    job = {
        "job_name": "cpcmon",
        "static_configs": seen,
        "relabel_configs": [{words.get(key, key): value for key, value in each.items()} for each in relabelings],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump({"scrape_configs": [job]}), encoding="utf-8")
    command = [real_server("promtool"), "check", "service-discovery", "--timeout=1s", "prometheus.yml", "cpcmon"]
    ran = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder, timeout=60)
    found = {one["labels"]["__address__"]: str(one["labels"]["instance"]) for one in json.loads(ran.stdout)}
    return [found[address] for address in pods]


def test_prometheus_accepts_the_rendered_rules(render: Renderer, tmp_path: Path) -> None:
    """Helm did not expand their templates."""
    promtool, files = real_server("promtool"), []
    for way in WAYS:
        for overlay in OVERLAYS:
            document = one(render.documents(way, overlay), "PrometheusRule")
            assert shared_rules(document) == yaml.safe_load(CHART.read_text(encoding="utf-8"))
            files.append(tmp_path / f"{way}-{overlay}.yml")
            files[-1].write_text(yaml.safe_dump(document["spec"]), encoding="utf-8")
    subprocess.run([promtool, "check", "rules", *map(str, files)], check=True, capture_output=True)
