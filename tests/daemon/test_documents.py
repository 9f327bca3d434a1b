"""The JSON documents of the real process: configuration, reference."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.process import Process, running, write_records, write_reference

pytestmark = pytest.mark.slow

MARK = "ZZSECRET"
CONFIG = f"""\
storage: {{path: state}}
sources:
  - {{name: results, type: directory, path: inbox}}
models:
  - {{name: density, reference: density.ref, remember_ids: 1000, evaluate: {{every: 1s}}}}
  - {{name: later, evaluate: {{every: 1s}}}}
notify:
  webhook: {{url: "https://127.0.0.1:1/{MARK}"}}
"""


def document_of(process: Process, path: str) -> Any:
    """Return a JSON document."""
    status, body = process.ask(path)
    assert status == 200, body
    assert MARK not in body
    return json.loads(body)


def test_documents_follow_a_reload(tmp_path: Path) -> None:
    """Secrets are hidden in all of them."""
    (tmp_path / "inbox").mkdir()
    reference, vectors, _ = write_reference(tmp_path)
    write_records(tmp_path / "inbox" / "a.jsonl", vectors, model="density", version="2.1")
    file = tmp_path / "config.yaml"
    file.write_text(CONFIG)
    with running(file) as process:
        process.wait_for('cpcmon_window_records{model="density",segment="all"}', 600.0)
        settings = {one["path"]: one for one in document_of(process, "/api/v1/configuration")["settings"]}
        assert settings["models[0].remember_ids"]["value"] == "1000"
        assert settings["notify.webhook.url"] == {
            "path": "notify.webhook.url",
            "value": None,
            "hidden": True,
            "line": 8,
        }
        found = document_of(process, "/api/v1/reference?model=density")
        assert found["fingerprint"] == reference.fingerprint
        assert found["lower"] < found["accuracy"] < found["upper"]
        assert sum(one["records"] for one in found["reliability"]) == 600
        assert process.ask("/api/v1/reference?model=later")[0] == 404

        other, _, _ = write_reference(tmp_path, seed=5)
        file.write_text(CONFIG.replace("remember_ids: 1000", "remember_ids: 2000"))
        process.send_signal(signal.SIGHUP)
        process.wait_for_line("configuration reloaded")
        assert document_of(process, "/api/v1/reference?model=density")["fingerprint"] == other.fingerprint
        settings = {one["path"]: one for one in document_of(process, "/api/v1/configuration")["settings"]}
        assert settings["models[0].remember_ids"]["value"] == "2000"
        assert MARK not in process.log
        assert process.stop() == 0
