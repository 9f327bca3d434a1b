"""The JSON documents of the real process: configuration, reference, realised accuracies."""

import json
import os
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
  - {{name: density, reference: density.ref, realised: audit.jsonl, evaluate: {{every: 1s}}}}
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
        assert settings["models[0].realised"]["value"] == "audit.jsonl"
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

        assert document_of(process, "/api/v1/realised?model=density")["realised"] == []
        audit = tmp_path / "audit.jsonl"
        audit.write_text('{"at": 1790000000, "segment": "all", "records": 100, "right": 87}\nnonsense\n')
        document = document_of(process, "/api/v1/realised?model=density")
        assert [one["accuracy"] for one in document["realised"]] == [0.87]
        assert document["remark"] == "realised: 1 invalid line"
        audit.unlink()
        os.mkfifo(audit)
        document = document_of(process, "/api/v1/realised?model=density")
        assert (document["realised"], document["remark"]) == ([], "realised: expected a file, found a pipe or a device")

        other, _, _ = write_reference(tmp_path, seed=5)
        (tmp_path / "other.jsonl").write_text('{"at": 5, "segment": "all", "records": 4, "right": 1}\n')
        file.write_text(CONFIG.replace("audit.jsonl", "other.jsonl"))
        process.send_signal(signal.SIGHUP)
        process.wait_for_line("configuration reloaded")
        assert document_of(process, "/api/v1/reference?model=density")["fingerprint"] == other.fingerprint
        document = document_of(process, "/api/v1/realised?model=density")
        assert ([one["accuracy"] for one in document["realised"]], document["remark"]) == ([0.25], None)
        settings = {one["path"]: one for one in document_of(process, "/api/v1/configuration")["settings"]}
        assert settings["models[0].realised"]["value"] == "other.jsonl"
        assert MARK not in process.log
        assert process.stop() == 0
