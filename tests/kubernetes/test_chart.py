"""The chart renders the same as Kustomize, and validates its values."""

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.kubernetes.rendering import CHART, OVERLAYS, Renderer, container, one, parsed, shared_rules, what_matters
from tests.servers import real_server


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_helm_and_kustomize_render_the_same(render: Renderer, overlay: str) -> None:
    """Except for order, the namespace, the managed-by label, and release rules."""
    ours, theirs = (what_matters(render.documents(way, overlay)) for way in ("kustomize", "helm"))
    assert ours.keys() == theirs.keys()
    for name, document in ours.items():
        assert document == theirs[name], name


@pytest.mark.parametrize("values", [[], ["--values", str(CHART / "values-replicas.yaml")]])
def test_helm_lint_finds_nothing(render: Renderer, values: list[str]) -> None:
    ran = render.run("helm", "lint", "--strict", str(CHART), *values)
    assert "0 chart(s) failed" in ran.stdout
    assert "WARNING" not in ran.stdout


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("replica=3", "replica"),
        ("image.tag=latest", "image"),
        ("image.digest=sha256:12", "digest"),
        ("secrets.requird=true", "requird"),
        ("replicas=many", "replicas"),
    ],
)
def test_unknown_and_invalid_values_are_rejected(render: Renderer, setting: str, expected: str) -> None:
    """By the schema: Helm itself ignores unknown values."""
    ran = render.helm("--set", setting, check=False)
    assert ran.returncode != 0
    assert expected in ran.stderr


def test_more_than_one_replica_with_a_directory_is_rejected(render: Renderer) -> None:
    """Each would read all files."""
    ran = render.helm("--set", "replicas=2", check=False)
    assert ran.returncode != 0
    assert "every record would count several times" in ran.stderr
    assert render.helm("--set", "replicas=2,inbox.enabled=false").returncode == 0
    assert render.helm("--set", "replicas=0").returncode == 0


def test_a_digest_replaces_the_tag(render: Renderer) -> None:
    digest = f"sha256:{'ab' * 32}"
    documents = parsed(render.helm("--set", f"image.digest={digest}").stdout)
    assert container(documents)["image"] == f"registry.hospital.example/cpcmon@{digest}"


def test_kinds_of_the_operator_can_be_disabled(render: Renderer) -> None:
    """A cluster without the Prometheus operator would reject them."""
    words = [word for key in ("serviceMonitor", "prometheusRule") for word in ("--set", f"{key}.enabled=false")]
    kinds = {document["apiVersion"] for document in parsed(render.helm(*words).stdout)}
    assert kinds == {"v1", "apps/v1", "policy/v1", "networking.k8s.io/v1"}


def test_an_existing_claim_is_used(render: Renderer) -> None:
    documents = parsed(render.helm("--set", "inbox.existingClaim=results").stdout)
    assert not [document for document in documents if document["kind"] == "PersistentVolumeClaim"]
    volumes = one(documents, "StatefulSet")["spec"]["template"]["spec"]["volumes"]
    assert {"name": "inbox", "persistentVolumeClaim": {"claimName": "results", "readOnly": True}} in volumes


def test_the_inbox_outlives_the_release(render: Renderer) -> None:
    """Like the volumes of the state, which Kubernetes does not delete with a StatefulSet."""
    claim = one(parsed(render.helm().stdout), "PersistentVolumeClaim")
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_names_contain_cpcmon_for_any_release_name(render: Renderer) -> None:
    """The job in Prometheus is the name of the Service, which the rules select."""
    ran = render.run("helm", "template", "radiology", str(CHART))
    assert one(parsed(ran.stdout), "Service")["metadata"]["name"] == "radiology-cpcmon"


def test_names_that_look_like_numbers_stay_names(render: Renderer) -> None:
    """Kubernetes rejects labels and namespaces that are numbers."""
    words = ["--set-string", "networkPolicy.monitoringNamespace=7,references.configMap=8,inbox.existingClaim=9"]
    documents = parsed(render.run("helm", "template", "2024", str(CHART), "--namespace", "17", *words).stdout)
    assert {document["metadata"]["namespace"] for document in documents} == {"17"}
    labels = {document["metadata"]["labels"]["app.kubernetes.io/instance"] for document in documents}
    assert labels == {one(documents, "Service")["spec"]["selector"]["app.kubernetes.io/instance"]} == {"2024"}
    (let_in,) = one(documents, "NetworkPolicy")["spec"]["ingress"]
    assert let_in["from"][0]["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "7"}
    volumes = {each["name"]: each for each in one(documents, "StatefulSet")["spec"]["template"]["spec"]["volumes"]}
    assert volumes["references"]["configMap"]["name"] == "8"
    assert volumes["inbox"]["persistentVolumeClaim"]["claimName"] == "9"


def test_a_release_without_a_pod_is_down_while_another_is_up(render: Renderer, tmp_path: Path) -> None:
    """Prometheus has no target for a pod without an address."""
    rules = one(parsed(render.helm().stdout), "PrometheusRule")["spec"]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(rules), encoding="utf-8")
    up = 'up{job="%s",namespace="cpcmon",instance="cpcmon/%s-0"}'
    down = {
        "exp_labels": {"severity": "critical", "job": "cpcmon", "namespace": "cpcmon"},
        "exp_annotations": {
            "summary": "cpcmon cannot be scraped.",
            "description": "cpcmon in cpcmon has no pod that Prometheus can scrape. Its models are not monitored.",
            "runbook_url": "docs/runbooks/down.md",
        },
    }
    expected = [(9, []), (30, [down])]
    test = {
        "interval": "1m",
        "input_series": [
            {"series": up % ("cpcmon", "cpcmon"), "values": "1x10 _x40"},
            {"series": up % ("other-cpcmon", "other-cpcmon"), "values": "1x50"},
        ],
        "alert_rule_test": [
            {"eval_time": f"{minute}m", "alertname": "CpcmonDown", "exp_alerts": alerts} for minute, alerts in expected
        ],
    }
    (tmp_path / "test.yml").write_text(yaml.safe_dump({"rule_files": ["rules.yml"], "tests": [test]}), encoding="utf-8")
    command = [real_server("promtool"), "test", "rules", "test.yml"]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("setting", ["replicas=0", "serviceMonitor.enabled=false"])
def test_a_release_without_scraping_is_not_down(render: Renderer, setting: str) -> None:
    document = one(parsed(render.helm("--set", setting).stdout), "PrometheusRule")
    assert document["spec"] == shared_rules(document)
