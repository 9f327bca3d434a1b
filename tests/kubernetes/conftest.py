"""Fixtures for manifests: the programs, and their output."""

from pathlib import Path

import pytest

from tests.kafka.conftest import kafka, real_kafka, run_folder, secured_kafka
from tests.kubernetes.rendering import Renderer
from tests.kubernetes.tools import NoTools, tool_folder
from tests.servers import cannot

__all__ = ["kafka", "real_kafka", "run_folder", "secured_kafka"]


@pytest.fixture(scope="session")
def tools() -> Path:
    """The folder of helm, kubectl, kubernetes-validate, checkov and check-jsonschema; skip without them, fail in CI."""
    try:
        return tool_folder()
    except NoTools as error:
        cannot(f"NO TOOLS FOR MANIFESTS ({error})")


@pytest.fixture(scope="session")
def render(tools: Path) -> Renderer:
    """Kustomize and Helm."""
    return Renderer(tools)
