"""What the Dockerfile promises, as it stands there: for those who cannot build it here."""

import json
import re
from pathlib import PurePosixPath

from tests.conftest import ROOT
from tests.kubernetes.rendering import DEPLOY

TEXT = (DEPLOY / "docker" / "Dockerfile").read_text(encoding="utf-8")


def _steps() -> list[tuple[str, str]]:
    """Return instructions with what follows them, long ones in one line."""
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


def test_nothing_is_installed_that_the_lock_does_not_name_by_its_hash() -> None:
    installs = [json.loads(command) for command in _all("RUN") if '"install"' in command]
    assert len(installs) == 2
    for words in installs:
        assert "--require-hashes" in words or {"--no-index", "--no-deps"} <= set(words)


def test_the_last_stage_runs_nothing_and_takes_only_what_was_installed() -> None:
    last = _steps()[max(place for place, (word, _) in enumerate(_steps()) if word == "FROM") :]
    assert "RUN" not in {word for word, _ in last}
    assert all("--from=installed" in rest for word, rest in last if word == "COPY")
    assert [rest for word, rest in last if word == "USER"] == ["10877:10877"]


def test_what_is_copied_exists_and_is_not_kept_out_by_the_ignore_file() -> None:
    """And whatever else lies in the tree is kept out: an environment, a state, a secret."""
    first, *allowed = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    assert first == "*"
    let_in = {line[1:] for line in allowed if line.startswith("!")}
    copied = {name for rest in _all("COPY") if "--from" not in rest for name in rest.split()[:-1]}
    assert copied == let_in
    assert all((ROOT / PurePosixPath(name)).exists() for name in copied)
