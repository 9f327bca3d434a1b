"""What the tests of manifests share: the programs, and what they render."""

import os
from pathlib import Path

import pytest

from tests.kafka.conftest import kafka, real_kafka, run_folder, secured_kafka
from tests.kubernetes.rendering import Renderer
from tests.kubernetes.tools import NoTools, tool_folder

__all__ = ["kafka", "real_kafka", "run_folder", "secured_kafka"]


@pytest.fixture(scope="session")
def tools() -> Path:
    """The folder of helm, kubectl, kubernetes-validate, checkov and check-jsonschema; skipped loudly without; in CI, fail."""
    try:
        return tool_folder()
    except NoTools as error:
        message = f"NO TOOLS FOR MANIFESTS: what they would show is not shown. {error}"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)


@pytest.fixture(scope="session")
def render(tools: Path) -> Renderer:
    """What Kustomize and Helm make of the tree."""
    return Renderer(tools)
