"""ServiceMonitor and PrometheusRule, against the types of the Prometheus operator."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.kubernetes.rendering import OVERLAYS, Renderer, one

KINDS = ("PrometheusRule", "ServiceMonitor")


@pytest.mark.slow
def test_the_operator_knows_every_field(render: Renderer, tools: Path) -> None:
    """And does not know a misspelt one. All at once: the types take seconds to import."""
    documents = [one(render.documents("kustomize", overlay), kind) for overlay in OVERLAYS for kind in KINDS]
    misspelt = one(render.documents("kustomize", "one"), "ServiceMonitor")
    misspelt["spec"]["sampelLimit"] = 3
    ran = subprocess.run(
        [str(tools / "python"), str(Path(__file__).with_name("operator_kinds.py"))],
        input=json.dumps([*documents, misspelt]), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    wanted = [f"{kind} known" for _ in OVERLAYS for kind in KINDS]
    assert ran.stdout.splitlines() == [*wanted, "ServiceMonitor unknown"], ran.stderr
