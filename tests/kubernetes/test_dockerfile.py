"""The Dockerfile, read as text, for machines that cannot build it."""

import json
import re
from pathlib import PurePosixPath

from tests.conftest import ROOT
from tests.kubernetes.rendering import DEPLOY

TEXT = (DEPLOY / "docker" / "Dockerfile").read_text(encoding="utf-8")


def _steps() -> list[tuple[str, str]]:
    """Return instructions and their arguments, with continuation lines joined."""
    lines = [line for line in TEXT.splitlines() if line and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined.splitlines())]


def _all(instruction: str) -> list[str]:
    return [rest for word, rest in _steps() if word == instruction]


def test_no_step_needs_a_shell() -> None:
    for command in [
        *_all("RUN"),
        *_all("ENTRYPOINT"),
        *_all("CMD"),
        *(rest.partition("CMD ")[2] for rest in _all("HEALTHCHECK")),
    ]:
        assert all(isinstance(word, str) for word in json.loads(command))


def test_the_base_image_is_pinned_by_digest() -> None:
    """A tag may change under a rebuild. The argument remains, for a mirror."""
    (base,) = _all("ARG")
    assert re.fullmatch(r"PYTHON_IMAGE=python:3\.11\.\d+-slim-bookworm@sha256:[0-9a-f]{64}", base)
    assert {rest.split()[0] for rest in _all("FROM")} == {"${PYTHON_IMAGE}", "wheel"}


def test_only_locked_packages_with_hashes_are_installed() -> None:
    installs = [json.loads(command) for command in _all("RUN") if '"install"' in command]
    assert len(installs) == 2
    for words in installs:
        assert "--require-hashes" in words or {"--no-index", "--no-deps"} <= set(words)


def test_the_last_stage_only_copies_the_environment() -> None:
    last = _steps()[max(place for place, (word, _) in enumerate(_steps()) if word == "FROM") :]
    assert "RUN" not in {word for word, _ in last}
    assert all("--from=installed" in rest for word, rest in last if word == "COPY")
    assert [rest for word, rest in last if word == "USER"] == ["10877:10877"]


def test_copied_files_exist_and_are_not_ignored() -> None:
    """Everything else is ignored: environments, states, secrets."""
    first, *allowed = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    assert first == "*"
    let_in = {line[1:] for line in allowed if line.startswith("!")}
    copied = {name for rest in _all("COPY") if "--from" not in rest for name in rest.split()[:-1]}
    assert copied == let_in
    assert all((ROOT / PurePosixPath(name)).exists() for name in copied)
