"""The image, built by a real podman and run as in the manifests: read-only, as an unprivileged user."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.pod import PodFolders
from tests.kubernetes.podman import Podman, memory, podman
from tests.kubernetes.rendering import Renderer, one

pytestmark = pytest.mark.slow

LIMIT_SECONDS = 60
ASK = "import sys, urllib.request as u; sys.stdout.write(u.urlopen('http://127.0.0.1:9877' + sys.argv[1], timeout=9).read().decode())"
TRY_TO_WRITE = """
import pathlib, sys
for folder in sys.argv[1:]:
    try:
        pathlib.Path(folder, "mine").write_text("x")
        print(folder)
    except OSError:
        pass
print(*(file.name for file in pathlib.Path("/opt/cpcmon/bin").iterdir()))
"""


@pytest.mark.skipif(os.geteuid() != 0 and os.environ.get("CI") != "true", reason="NOT ROOT: the image is not built")
def test_the_image_runs_with_the_security_context_of_the_manifests(render: Renderer, tmp_path: Path) -> None:
    """One test, since the image is built once."""
    documents = render.documents("kustomize", "one")
    pod = PodFolders(documents, tmp_path / "pod")
    with podman(memory()) as engine:
        image = engine.build()
        _is_as_the_manifests_expect(image, pod)
        name = engine.start(*_as_the_pod(documents, pod), arguments=pod.container["args"])
        for kind in ("startup", "liveness", "readiness"):
            _answers(engine, name, pod.container[f"{kind}Probe"]["httpGet"]["path"], "")
        _answers(engine, name, "/metrics", 'cpcmon_window_records{model="density",segment="all"} 300')
        engine("exec", name, *image["Healthcheck"]["Test"][1:])
        _writes_only_where_it_may(engine, name)
        engine("stop", "--time", str(LIMIT_SECONDS), name)
        assert engine("inspect", "--format", "{{.State.ExitCode}}", name).strip() == "0", engine("logs", name)


def _is_as_the_manifests_expect(image: dict[str, Any], pod: PodFolders) -> None:
    config, context = image["Config"], pod.container["securityContext"]
    assert config["User"] == "10877:10877"
    assert config["ExposedPorts"] == {f"{pod.container['ports'][0]['containerPort']}/tcp": {}}
    assert config["Entrypoint"] == ["/opt/cpcmon/bin/cpcmon"]
    # With a probe address, which the health check asks.
    assert set(config["Cmd"]) <= set(pod.container["args"])
    assert set(config["Volumes"]) <= set(pod.mounts)
    assert image["Healthcheck"]["Test"][0] == "CMD"  # the shell form would need a shell
    assert context["readOnlyRootFilesystem"]


def _as_the_pod(documents: list[dict[str, Any]], pod: PodFolders) -> list[str]:
    """Return the options of podman for the security context of the manifest."""
    context = one(documents, "StatefulSet")["spec"]["template"]["spec"]["securityContext"]
    words = ["--user", f"{context['runAsUser']}:{context['runAsGroup']}", "--security-opt", "no-new-privileges"]
    words += [f"--cap-drop={right}" for right in pod.container["securityContext"]["capabilities"]["drop"]]
    # Otherwise podman adds a writable /tmp and /run.
    words += ["--read-only", "--read-only-tmpfs=false"]
    for mount in pod.container["volumeMounts"]:
        folder = pod.mounts[mount["mountPath"]]
        if not mount.get("readOnly", False):
            os.chown(folder, context["runAsUser"], context["fsGroup"])
        words += ["--volume", f"{folder}:{mount['mountPath']}:{'ro' if mount.get('readOnly') else 'rw'}"]
    return words


def _answers(engine: Podman, name: str, path: str, text: str) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while True:
        # Fails without output while the container does not listen.
        output = engine("exec", name, "python", "-c", f"{ASK}; print('ANSWERED')", path, check=False)
        if "ANSWERED" in output and text in output:
            return
        assert time.monotonic() < deadline, f"{path}: {output[-2000:]}\n{engine('logs', name)}"
        time.sleep(0.5)


def _writes_only_where_it_may(engine: Podman, name: str) -> None:
    """And has no pip."""
    may, may_not = ["/var/lib/cpcmon", "/tmp"], ["/opt/cpcmon", "/etc/cpcmon/config"]  # noqa: S108 - the container's own
    *written, programs = engine("exec", name, "python", "-c", TRY_TO_WRITE, *may, *may_not).splitlines()
    assert written == may
    assert "cpcmon" in programs
    assert "pip" not in programs
