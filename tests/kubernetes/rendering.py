"""Manifests as rendered by kubectl and Helm, in comparable form."""

import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.conftest import ROOT

DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "cpcmon"
OVERLAYS = ("one", "replicas")
WAYS = ("kustomize", "helm")

TLS_VALUES = {
    "web": {"secret": "cpcmon-web", "tlsSecret": "cpcmon-tls"},
    "serviceMonitor": {
        "tlsConfig": {"serverName": "cpcmon.cpcmon.svc", "ca": {"secret": {"name": "cpcmon-tls", "key": "ca.crt"}}},
        "basicAuth": {key: {"name": "cpcmon-scrape", "key": key} for key in ("username", "password")},
    },
}
"""Values of a release with TLS and passwords."""

Documents = list[dict[str, Any]]
_ONLY_KUSTOMIZE = "Namespace"
"""Helm creates it with --create-namespace, and cannot label it."""
RELEASE_RULES = "cpcmon of this release"
_BY_NAME = {"volumes", "volumeMounts"}
"""Lists whose order does not matter."""


class Renderer:
    """Runs kubectl and Helm."""

    def __init__(self, tools: Path) -> None:
        self._tools = tools

    @cache  # noqa: B019 - one renderer per session
    def text(self, way: str, overlay: str) -> str:
        """Return all manifests of an overlay, rendered by kubectl or Helm."""
        if way == "kustomize":
            return self.run("kubectl", "kustomize", str(DEPLOY / "kubernetes" / "overlays" / overlay)).stdout
        values = [] if overlay == "one" else ["--values", str(CHART / f"values-{overlay}.yaml")]
        return self.helm(*values).stdout

    def documents(self, way: str, overlay: str) -> Documents:
        """Return them as objects."""
        return parsed(self.text(way, overlay))

    def helm(self, *words: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        """Render the chart."""
        return self.run("helm", "template", "cpcmon", str(CHART), "--namespace", "cpcmon", *words, check=check)

    def run(self, program: str, *words: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        """Run a program; show its output if it fails."""
        command = [str(self._tools / program), *words]
        # checkov would check PyPI for updates.
        environment = {**os.environ, "CKV_SKIP_PACKAGE_UPDATE_CHECK": "true"}
        ran = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=environment)
        assert ran.returncode == 0 or not check, f"{program}:\n{ran.stdout}\n{ran.stderr}"
        return ran


def parsed(text: str) -> Documents:
    """Return the documents of a rendering."""
    return [document for document in yaml.safe_load_all(text) if document]


def one(documents: Documents, kind: str) -> dict[str, Any]:
    """Return the only document of a kind."""
    (found,) = (document for document in documents if document["kind"] == kind)
    return found


def container(documents: Documents) -> dict[str, Any]:
    """Return the only container of the pods."""
    (found,) = one(documents, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def configuration(documents: Documents) -> str:
    """Return the configuration that the ConfigMap holds."""
    (found,) = (one["data"]["config.yaml"] for one in documents if "config.yaml" in one.get("data", {}))
    return str(found)


def what_matters(documents: Documents) -> dict[str, Any]:
    """Return the documents by kind and name, without differences that are allowed."""
    found = {}
    for document in documents:
        if document["kind"] != _ONLY_KUSTOMIZE:
            document["metadata"]["labels"].pop("app.kubernetes.io/managed-by", None)
            document["metadata"].pop("annotations", None)
            if document["kind"] == "PrometheusRule":
                document["spec"] = shared_rules(document)
            found[f"{document['kind']} {document['metadata']['name']}"] = _ordered(document)
    return found


def shared_rules(document: dict[str, Any]) -> dict[str, Any]:
    """Return the rules without those of the chart alone, which depend on the release name."""
    return {"groups": [group for group in document["spec"]["groups"] if group["name"] != RELEASE_RULES]}


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: sorted(map(_ordered, inner), key=lambda one: str(one["name"])) if key in _BY_NAME else _ordered(inner)
            for key, inner in value.items()
        }
    return [_ordered(inner) for inner in value] if isinstance(value, list) else value
