"""ServiceMonitor and PrometheusRule, against the types of the Prometheus operator."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.kubernetes.rendering import OVERLAYS, Documents, Renderer, one

pytestmark = pytest.mark.slow

KINDS = ["PrometheusRule", "ServiceMonitor"]


def _checked(tools: Path, documents: Documents) -> "subprocess.CompletedProcess[str]":
    script = Path(__file__).with_name("operator_kinds.py")
    return subprocess.run(
        [str(tools / "python"), str(script)],
        input=json.dumps(documents), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_operator_knows_every_field(render: Renderer, tools: Path, overlay: str) -> None:
    documents = render.documents("kustomize", overlay)
    ran = _checked(tools, [one(documents, kind) for kind in KINDS])
    assert ran.stdout.split() == KINDS, ran.stderr


def test_an_unknown_field_is_found(render: Renderer, tools: Path) -> None:
    """The test above can fail."""
    monitor = one(render.documents("kustomize", "one"), "ServiceMonitor")
    monitor["spec"]["sampelLimit"] = 3
    assert _checked(tools, [monitor]).returncode != 0
