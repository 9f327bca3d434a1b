"""The chart renders the same as Kustomize, and validates its values."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.kubernetes.rendering import (
    CHART,
    DEPLOY,
    OVERLAYS,
    TLS_VALUES,
    Renderer,
    configuration,
    container,
    one,
    parsed,
    shared_rules,
    what_matters,
)
from tests.servers import real_server


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_helm_and_kustomize_render_the_same(render: Renderer, overlay: str) -> None:
    """Except for order, the namespace, the managed-by label, and release rules."""
    ours, theirs = (what_matters(render.documents(way, overlay)) for way in ("kustomize", "helm"))
    assert ours.keys() == theirs.keys()
    for name, document in ours.items():
        assert document == theirs[name], name


def test_helm_and_kustomize_render_the_same_with_tls_and_passwords(render: Renderer, tmp_path: Path) -> None:
    kubernetes, here = DEPLOY / "kubernetes", tmp_path.resolve()
    parts = {"resources": ["overlays/one"], "components": ["components/web"]}
    kustomization = {kind: [os.path.relpath(kubernetes / one, here) for one in ones] for kind, ones in parts.items()}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization), encoding="utf-8")
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(TLS_VALUES), encoding="utf-8")
    ours = what_matters(parsed(render.run("kubectl", "kustomize", str(here)).stdout))
    theirs = what_matters(parsed(render.helm("--values", str(tmp_path / "values.yaml")).stdout))
    assert ours == theirs


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


def test_dashboards_can_be_labelled_for_another_grafana_and_disabled(render: Renderer) -> None:
    words = ["--set", "dashboards.labels.team=ml,dashboards.annotations.grafana_folder=Models"]
    found = [
        document["metadata"]
        for document in parsed(render.helm(*words).stdout)
        if "grafana_dashboard" in document["metadata"]["labels"]
    ]
    assert [one["name"] for one in found] == ["cpcmon-dashboard-wall", "cpcmon-dashboard"]
    assert all(one["labels"]["team"] == "ml" and one["annotations"] == {"grafana_folder": "Models"} for one in found)
    assert "grafana_dashboard" not in render.helm("--set", "dashboards.enabled=false").stdout


@pytest.mark.parametrize("dns", ["[]", "null"])
def test_without_rules_for_dns_the_other_rules_remain(render: Renderer, dns: str) -> None:
    """For a cluster whose brokers have addresses, or that resolves names elsewhere."""
    brokers = {"to": [{"ipBlock": {"cidr": "10.1.0.0/24"}}], "ports": [{"protocol": "TCP", "port": 9093}]}
    words = ["--set-json", f"networkPolicy.dns={dns}", "--set-json", f"networkPolicy.egress={json.dumps([brokers])}"]
    assert one(parsed(render.helm(*words).stdout), "NetworkPolicy")["spec"]["egress"] == [brokers]


def test_links_of_the_values_are_those_of_the_configuration(render: Renderer) -> None:
    """Once: a second `links` would be rejected by cpcmon only."""
    text = configuration(parsed(render.helm("--set", "links.page=https://cpcmon.example").stdout))
    assert yaml.safe_load(text)["links"] == {"page": "https://cpcmon.example"}
    assert "links" not in yaml.safe_load(configuration(parsed(render.helm().stdout)))
    both = ["--set", "links.page=https://a.example", "--set-string", "config=links: {page: https://b.example}"]
    assert "found in both" in render.helm(*both, check=False).stderr
    # As copied from the browser: the daemon would not start.
    for address in ("wiki", "https://grafana.example/d/cpcmon?orgId=1", "https://me:secret@wiki.example/"):
        assert "links.page: Does not match" in render.helm("--set", f"links.page={address}", check=False).stderr


def test_values_for_the_pod_reach_the_pod(render: Renderer, tmp_path: Path) -> None:
    """And every field is known to Kubernetes."""
    values = {
        "podAnnotations": {"example/team": "radiology"},
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]}}},
        "podSecurityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None},
        "caBundle": {"configMap": "hospital-ca"},
        "web": {"secret": "cpcmon-web"},
        "extraVolumes": [{"name": "labels", "persistentVolumeClaim": {"claimName": "labels"}}],
        "extraVolumeMounts": [{"name": "labels", "mountPath": "/var/labels", "readOnly": True}],
    }  # fmt: skip
    file, rendered = tmp_path / "values.yaml", tmp_path / "rendered.yaml"
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    rendered.write_text(render.helm("--values", str(file)).stdout, encoding="utf-8")
    render.run("kubernetes-validate", "--strict", "-k", "1.27", str(rendered))
    documents = parsed(rendered.read_text(encoding="utf-8"))
    template = one(documents, "StatefulSet")["spec"]["template"]
    assert template["metadata"]["annotations"] == values["podAnnotations"]
    assert template["spec"]["affinity"] == values["affinity"]
    # OpenShift chooses the ids; the rest stays.
    assert set(template["spec"]["securityContext"]) == {"runAsNonRoot", "fsGroupChangePolicy", "seccompProfile"}
    mounted = {mount["name"]: mount["mountPath"] for mount in container(documents)["volumeMounts"]}
    assert mounted.items() >= {"labels": "/var/labels", "ca": "/etc/cpcmon/ca", "web": "/etc/cpcmon/web"}.items()
    assert set(mounted) == {volume["name"] for volume in template["spec"]["volumes"]} | {"state"}
    assert container(documents)["env"] == [{"name": "SSL_CERT_FILE", "value": "/etc/cpcmon/ca/ca.crt"}]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("web.tlsSecret=a", "web.secret: expected"),
        ("web.secret=b,web.tlsSecret=a", "serviceMonitor.tlsConfig: expected"),
    ],
)
def test_tls_that_would_be_off_or_unreadable_is_rejected(render: Renderer, settings: str, expected: str) -> None:
    ran = render.helm("--set", settings, check=False)
    assert ran.returncode != 0
    assert expected in ran.stderr


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
    ran = render.helm("--set", "links.runbooks=https://wiki.example/runbooks/")
    rules = one(parsed(ran.stdout), "PrometheusRule")["spec"]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(rules), encoding="utf-8")
    up = 'up{job="%s",namespace="cpcmon",instance="cpcmon/%s-0"}'
    down = {
        "exp_labels": {"severity": "critical", "job": "cpcmon", "namespace": "cpcmon"},
        "exp_annotations": {
            "summary": "cpcmon cannot be scraped.",
            "description": "cpcmon in cpcmon has no pod that Prometheus can scrape. Its models are not monitored.",
            "runbook_url": "https://wiki.example/runbooks/down.md",
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
