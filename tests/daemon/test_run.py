"""The real process with a watched directory."""

import json
import re
import signal
import socket
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from monitor.reference.reference import Reference
from monitor.testing.oracle import Oracle
from tests.conftest import Ran
from tests.daemon.conftest import Site
from tests.daemon.kafka_site import assert_matches_oracle
from tests.daemon.process import LIMIT, Process, one, running, write_records, write_reference
from tests.grafana.dashboard import Query
from tests.grafana.prometheus_server import prometheus
from tests.servers import real_server
from tests.sinks.receiver import Receiver, status
from tests.strategies import Singles, synthetic
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

HEALTHY: Singles = synthetic(1000, 3, seed=5, sharpness=2.6)[0]
POOR: Singles = synthetic(1000, 3, seed=6, sharpness=0.6)[0]
ALL = {"model": "density", "segment": "all"}


def window_records(count: int) -> tuple[str, float]:
    """Return the gauge of records in the window of all, with its expected value."""
    return 'cpcmon_window_records{model="density",segment="all"}', float(count)


def test_exported_estimates_match_the_oracle(site: Site) -> None:
    """After evictions, for all records and for sites; promtool accepts the page."""
    site.configure(more="metrics: {segments: all}")
    sites = ["A", "B", "C"]
    write_records(site.inbox / "a.jsonl", HEALTHY[:700], site=sites)
    write_records(site.inbox / "b.jsonl", POOR[:500], site=sites)
    with running(site.config) as process:
        process.wait_for("cpcmon_records_total" + '{model="density",source="results"}', 1200.0)
        page = process.wait_for(*window_records(300))
        oracle = Oracle(site.reference_vectors.tolist(), site.labels.tolist(), site.temperature)
        written = [*HEALTHY[:700], *POOR[:500]]
        held = {"all": written[-300:]}
        for place in (0, 2):
            of_site = [*HEALTHY[:700][place::3], *POOR[:500][place::3]]
            held[f"site={sites[place]}"] = of_site[-300:]
        for segment, vectors in held.items():
            assert_matches_oracle(page, segment, oracle.estimates([vector.tolist() for vector in vectors]))
        text = process.ask("/metrics")[1]
    checked = subprocess.run([real_server("promtool"), "check", "metrics"], input=text, text=True, capture_output=True)  # noqa: PLW1510
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_prometheus_scrapes_openmetrics_and_stores_every_series_of_it(site: Site) -> None:
    write_records(site.inbox / "a.jsonl", HEALTHY[:600], site=["A", "B"])

    def asked(expression: str) -> list[tuple[dict[str, str], float]]:
        return server.answer(Query("", "", expression, "", instant=True), {})

    def scraped() -> bool:
        lines = process.ask("/metrics", accept="application/openmetrics-text")[1].splitlines()
        count = sum(not one.startswith("#") for one in lines)
        return [value for _, value in asked("scrape_samples_scraped")] == [count]

    with ExitStack() as stack:
        process = stack.enter_context(running(site.config))
        page = process.wait_for(*window_records(300))
        target = process.url.removeprefix("http://")
        server = stack.enter_context(prometheus(site.folder, {"cpcmon": [target]}, "groups: []\n"))
        wait_until(scraped, lambda: f"{asked('scrape_samples_scraped')}", LIMIT)
        assert [labels["model"] for labels, _ in asked("cpcmon_evaluations_created")] == ["density"]
        stored = {labels["segment"]: value for labels, value in asked('cpcmon_window_records{model="density"}')}
        expected = {one: page[f'cpcmon_window_records{{model="density",segment="{one}"}}'] for one in stored}
        assert stored == expected
        assert stored.keys() == {"all", "site=A", "site=B"}


def test_it_imports_no_library_that_it_does_not_use(site: Site) -> None:
    """With a directory of JSONL: no Kafka, no Arrow, nothing that only calibration needs."""
    write_records(site.inbox / "a.jsonl", HEALTHY[:400], site="A")
    with running(site.config, environment={"PYTHONPROFILEIMPORTTIME": "1"}) as process:
        process.wait_for(*window_records(300))
        imported = re.findall(r"^import time:.*\| +(\w+)$", process.log, re.MULTILINE)
    assert "msgspec" in imported
    assert not set(imported) & {"kafka", "matplotlib", "pyarrow", "scipy"}


def test_it_is_ready_after_the_first_evaluation(site: Site) -> None:
    write_records(site.inbox / "a.jsonl", HEALTHY[:400], site="A")
    with running(site.config) as process:
        process.wait_for(*window_records(300))
        assert process.ask("/-/healthy") == (200, "cpcmon is healthy.\n")
        assert process.ask("/-/ready") == (200, "cpcmon is ready.\n")
        assert process.ask("/nope")[0] == 404
        status, body = process.ask("/api/v1/status")
        (model,) = json.loads(body)["models"]
        assert (status, model["model"], model["segments"][0]["records"]) == (200, "density", 300)
        assert 0.5 < model["segments"][0]["estimators"]["adaptive"]["accuracy"] < 1.0
        landing = process.ask("/")[1]
        assert "density" in landing
        assert "site" in landing
        assert process.stop() == 0
    assert "cpcmon has stopped" in process.log


def test_a23_a_missing_directory_makes_it_not_ready(site: Site) -> None:
    site.inbox.rmdir()
    with running(site.config) as process:
        process.wait_for('cpcmon_source_ready{source="results"}', 0.0)
        status, body = process.ask("/-/ready")
        assert status == 503
        assert "waiting for its directory" in body
        assert process.ask("/-/healthy")[0] == 200
        site.inbox.mkdir()
        process.wait_for('cpcmon_source_ready{source="results"}', 1.0)
        assert process.ask("/-/ready")[0] == 200


def test_a_firing_alert_survives_a_kill(site: Site) -> None:
    firing = 'cpcmon_alert_firing{alert="accuracy_low",model="density",segment="all",severity="critical"}'
    site.configure(below=0.75)
    write_records(site.inbox / "a.jsonl", POOR[:300])
    with running(site.config) as process:
        process.wait_for(*window_records(300))
        # The alert fires only with new records.
        for start in range(300, 1000, 50):
            write_records(site.inbox / "a.jsonl", POOR[start : start + 50])
            page = process.wait_for("cpcmon_records_total" + '{model="density",source="results"}', start + 50.0)
            if one(page, "cpcmon_alert_firing", alert="accuracy_low", segment="all"):
                break
        since = process.wait_for(firing, 1.0)
        wait_for_commit(process, since)
        process.kill()
    with running(site.config) as process:
        page = process.wait_for(firing, 1.0)
        name = "cpcmon_alert_since_timestamp_seconds"
        assert one(page, name, alert="accuracy_low") == one(since, name, alert="accuracy_low")


def test_an_undelivered_alert_is_sent_after_a_kill_and_a_stop(site: Site) -> None:
    """The receiver was down when the alert fired."""
    firing = 'cpcmon_alert_firing{alert="silent",model="density",segment="all",severity="warning"}'
    with Receiver(status(503)) as down, Receiver() as up:

        def configured(url: str) -> None:
            site.configure(more=f"notify: {{webhook: {{url: '{url}', allow_http: true}}}}")
            site.config.write_text(site.config.read_text("utf-8").replace("after: 2h", "after: 1s"), encoding="utf-8")

        configured(down.url())
        for end in ("kill", "stop"):
            with running(site.config) as process:
                page = process.wait_for(firing, 1.0)
                assert down.get().json["status"] == "firing"
                wait_for_commit(process, page)
                getattr(process, end)()
        configured(up.url())
        with running(site.config) as process:
            assert up.get().json["status"] == "firing"
            process.wait_for("cpcmon_webhook_sent_total", 1.0)
            assert process.stop() == 0
        with running(site.config) as process:
            process.wait_for(firing, 1.0)
            assert up.received.empty()


def wait_for_commit(process: Process, page: dict[str, float]) -> None:
    """Wait for a commit after a scrape."""
    name = "cpcmon_last_commit_timestamp_seconds"
    process.wait_until(lambda now: one(now, name) != one(page, name), "a commit")


def test_a_reload_applies_a_valid_configuration_and_rejects_an_invalid_one(site: Site) -> None:
    write_records(site.inbox / "a.jsonl", HEALTHY[:400], site="A")
    with running(site.config, "--web.enable-lifecycle") as process:
        page = process.wait_for(*window_records(300))
        assert one(page, "cpcmon_accuracy_threshold_ratio", **ALL) == 0.5
        site.configure(window=200, below=0.61)
        process.send_signal(signal.SIGHUP)
        process.wait_for_line("configuration reloaded")
        page = process.wait_for(*window_records(200))
        assert one(page, "cpcmon_accuracy_threshold_ratio", **ALL) == 0.61
        assert one(page, "cpcmon_config_last_reload_successful") == 1.0
        assert one(page, "cpcmon_records_total", source="results") == 400.0

        site.config.write_text(site.config.read_text("utf-8").replace("window:", "windw:"), encoding="utf-8")
        process.send_signal(signal.SIGHUP)
        process.wait_for_line("reload failed")
        page = process.wait_for("cpcmon_config_last_reload_successful", 0.0)
        assert one(page, "cpcmon_accuracy_threshold_ratio", **ALL) == 0.61
        status, body = process.ask("/-/reload", "POST")
        assert status == 500
        assert "windw" in body
        assert "line" in body or re.search(r"config.yaml:\d+", body)
        assert process.ask("/-/reload")[0] == 405

        site.configure()
        site.config.write_text(site.config.read_text("utf-8").replace("path: state", "path: other"), encoding="utf-8")
        status, body = process.ask("/-/reload", "POST")
        assert status == 500
        assert "restart cpcmon" in body

        site.configure(window=100)
        assert process.ask("/-/reload", "POST")[0] == 200
        page = process.wait_for(*window_records(100))
        assert one(page, "cpcmon_config_last_reload_successful") == 1.0
        assert process.stop() == 0


def test_reloads_under_load_lose_and_repeat_no_record(site: Site) -> None:
    with running(site.config, "--web.enable-lifecycle") as process:
        for start in range(0, 1000, 100):
            write_records(
                site.inbox / f"{start}.jsonl", HEALTHY[start : start + 100], id=[f"r{start + n}" for n in range(100)]
            )
            site.configure(window=300 + start)
            assert process.ask("/-/reload", "POST")[0] == 200
        page = process.wait_for("cpcmon_records_total" + '{model="density",source="results"}', 1000.0)
        assert sum(value for key, value in page.items() if key.startswith("cpcmon_records_rejected_total")) == 0
        process.wait_for(*window_records(1000))


def test_b11_exit_codes(site: Site) -> None:
    """1: runtime error, 2: invalid configuration, 3: state in use."""
    with running(site.config) as process:
        port = process.url.rpartition(":")[2]
        second = Process(site.config)
        assert second.end() == 3
        assert "no other cpcmon uses" in second.log
        other = site.folder / "other.yaml"
        other.write_text(site.config.read_text("utf-8").replace("path: state", "path: state2"), encoding="utf-8")
        third = Process(other, "--web.listen-address", f"127.0.0.1:{port}")
        assert third.end() == 1
        assert "in use" in third.log
    site.config.write_text("storage: {path: state}\nmodels: 3\n", encoding="utf-8")
    bad = Process(site.config)
    assert bad.end() == 2
    assert "models: expected" in bad.log


def test_a_second_sigterm_ends_it_at_once(site: Site) -> None:
    with running(site.config) as process:
        process.wait_for_line("is ready on")
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
        assert process.end() in {0, 1}


def test_systemd_is_notified_of_every_step(site: Site, tmp_path: Path) -> None:
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        manager.settimeout(LIMIT)
        environment = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "1000000"}

        def until(word: str) -> None:
            while word not in manager.recv(4096).decode():
                pass

        with running(site.config, environment=environment) as process:
            until("READY=1")
            until("WATCHDOG=1")
            until("STATUS=")
            process.send_signal(signal.SIGHUP)
            until("RELOADING=1")
            until("READY=1")
            process.send_signal(signal.SIGTERM)
            until("STOPPING=1")
            assert process.end() == 0


def test_a35_the_log_is_one_line_per_event(site: Site) -> None:
    (site.inbox / "a\nlevel=error msg=forged.jsonl").write_text("not json\n", encoding="utf-8")
    with running(site.config) as process:
        process.wait_for("cpcmon_records_rejected_total" + '{reason="bad_json",source="results"}', 1.0)
        process.stop()
    for line in process.lines:
        assert re.match(r"ts=\S+ level=\w+ msg=", line), line


def test_d1_no_id_and_no_file_name_is_exposed(site: Site) -> None:
    """Ids, groups, file names, unknown fields and rejected values contain a marker; logs, pages and state do not."""
    marker = "ZZPATIENT"
    alerts = "alerts:\n      - {name: changed, type: change, group_by: patient}\n"
    site.config.write_text(site.config.read_text("utf-8").replace("alerts:\n", alerts), encoding="utf-8")
    write_records(
        site.inbox / f"{marker}.jsonl",
        HEALTHY[:200],
        id=[f"{marker}-{n}" for n in range(200)],
        patient=marker,
        name=marker,
    )
    with (site.inbox / f"{marker}.jsonl").open("a") as file:
        file.write(f'{{"probs": "{marker}"}}\n{{"probs": [1, 0, 0], "site": "{marker} <{marker}>"}}\n{marker}\n')
    (site.inbox / f"{marker}.csv").write_text(f"{marker},b\n1,2\n")
    (site.inbox / f"{marker}.txt").write_text(marker)
    with running(site.config, "--log.level", "debug", "--log.format", "json") as process:
        process.wait_for(*window_records(200))
        process.wait_for("cpcmon_records_rejected_total" + '{reason="bad_segment",source="results"}', 1.0)
        process.wait_for('cpcmon_records_without_group_total{model="density"}', 0.0)
        shown = [process.ask(path)[1] for path in ("/metrics", "/api/v1/status", "/", "/-/ready", "/nope")]
        model_pages = ("/model?name", "/reference?name", "/api/v1/history?model", "/api/v1/reference?model")
        shown += [process.ask(f"{path}=density")[1] for path in model_pages]
        for path in ("rejects", "configuration"):
            shown += [process.ask(f"/{path}")[1], process.ask(f"/api/v1/{path}")[1]]
        assert process.stop() == 0
    assert all({"ts", "level", "msg"} <= set(json.loads(line)) for line in process.lines)
    shown.append(process.log)
    assert not any(marker in text for text in shown)
    for stored in (site.folder / "state").iterdir():
        assert marker.encode() not in stored.read_bytes(), stored.name
        assert stored.stat().st_mode & 0o077 == 0


def test_run_check_config_and_rules_accept_the_same_file(site: Site, cpcmon: Callable[..., Ran]) -> None:
    for words in (["run", "--config.check", "--config.file"], ["check-config"], ["rules", "--config.file"]):
        done = cpcmon(*words, site.config)
        assert done.code == 0, done.err


def history(process: Process, span: str = "recent", segment: str = "all") -> dict[str, Any]:
    """Return the history of a window."""
    status, body = process.ask(f"/api/v1/history?model=density&span={span}&segment={segment}")
    assert status == 200, body
    found: dict[str, Any] = json.loads(body)
    return found


def test_evidence_of_a_change_survives_a_reload_and_a_kill(site: Site) -> None:
    """Without new records it stays as it is; the records of a window are no new ones."""
    evidence = ("cpcmon_change_evidence", {"segment": "all", "direction": "down"})
    write_records(site.inbox / "first.jsonl", HEALTHY[:400])
    with running(site.config, "--web.enable-lifecycle") as process:
        page = process.wait_until(
            lambda page: one(page, "cpcmon_window_records", segment="all") == 300.0, "400 records"
        )
        before = one(page, evidence[0], **evidence[1])
        assert before is not None
        assert process.ask("/-/reload", "POST")[0] == 200
        process.wait_for_line("configuration reloaded")
        process.wait_until(lambda page: one(page, evidence[0], **evidence[1]) == before, "the same evidence")
        process.kill()
    with running(site.config) as process:
        process.wait_until(lambda page: one(page, evidence[0], **evidence[1]) == before, "the same evidence")


def test_history_survives_a_reload_a_kill_and_a_stop(site: Site) -> None:
    write_records(site.inbox / "a.jsonl", HEALTHY[:300], site="A")
    before: dict[str, Any] = {}
    for end in ("kill", "stop", ""):
        with running(site.config, "--web.enable-lifecycle") as process:
            process.wait_for(*window_records(300))
            if before:
                after = history(process, segment="site=A")
                assert after["at"][: len(before["at"])] == before["at"]
                assert after["accuracy"][: len(before["at"])] == before["accuracy"]
            if not end:
                break
            assert process.ask("/-/reload", "POST")[0] == 200
            before = history(process, segment="site=A")
            wait_for_points(process, len(before["at"]) + 2)
            assert before["state"][-1] == "ok"
            assert history(process, "days")["accuracy"][-1] is not None
            # History is written with the next tick, which is before the second later evaluation.
            getattr(process, end)()


def wait_for_points(process: Process, count: int) -> None:
    """Wait for so many points."""
    wait_until(lambda: len(history(process)["at"]) >= count, seconds=LIMIT, every=0.1)


def test_a_new_reference_is_marked_in_the_history(site: Site) -> None:
    """Also after a kill; earlier points keep their reference."""
    write_records(site.inbox / "a.jsonl", HEALTHY[:300])
    fingerprints = [Reference.load(site.folder / "density.ref").fingerprint[:12]]
    with running(site.config, "--web.enable-lifecycle") as process:
        process.wait_for(*window_records(300))
        wait_for_points(process, 1)
        assert set(history(process)["reference"]) == set(fingerprints)
        assert 'class="replaced"' not in process.ask("/model?name=density")[1]
        fingerprints.append(write_reference(site.folder, seed=2)[0].fingerprint[:12])
        assert process.ask("/-/reload", "POST")[0] == 200
        # History is written with the next tick, which is before the second later evaluation.
        wait_for_points(process, len(history(process)["at"]) + 3)
        process.kill()
    with running(site.config) as process:
        process.wait_for(*window_records(300))
        found = history(process)["reference"]
        assert list(dict.fromkeys(found)) == fingerprints
        assert found == sorted(found, key=fingerprints.index)
        assert 'class="replaced"' in process.ask("/model?name=density")[1]
        assert process.stop() == 0


def test_a_removed_model_has_no_series_and_no_history(site: Site) -> None:
    second = '  - {name: other, reference: other.ref, version: "2.1"}\n'
    write_reference(site.folder, "other", seed=2)
    site.configure(more=second)
    with running(site.config, "--web.enable-lifecycle") as process:
        process.wait_for('cpcmon_estimate_valid{model="other",segment="all"}', 0.0)
        assert process.ask("/api/v1/history?model=other")[0] == 200
        site.configure()
        assert process.ask("/-/reload", "POST")[0] == 200
        assert process.ask("/api/v1/history?model=other")[0] == 404
        assert not any('model="other"' in key for key in process.metrics())
        assert process.stop() == 0
    connection = sqlite3.connect(site.folder / "state" / "state.db")
    assert connection.execute("SELECT DISTINCT model FROM history").fetchall() == [("density",)]
    connection.close()


def alert_history(process: Process, model: str = "density") -> list[dict[str, Any]]:
    """Return the alert history of a model, oldest first."""
    rows = json.loads(process.ask(f"/api/v1/alerts?model={model}&limit=1000")[1])["history"]
    assert isinstance(rows, list)
    return rows[::-1]


def _logged(process: Process) -> list[tuple[str, str, str]]:
    """Return the transitions of the model density in the log: alert, from, to."""
    lines = [line for line in process.lines if "model=density" in line]
    return [found for line in lines for found in re.findall(r"alert=(\w+) .*from=(\w+) to=(\w+)", line)]


def test_the_alert_history_is_that_of_log_and_webhook_after_a_reload_and_a_kill(site: Site) -> None:
    other = '  - {name: other, reference: other.ref, version: "2.1", alerts: [{name: silent, after: 1s}], evaluate: {every: 1s}}\n'
    write_reference(site.folder, "other", seed=2)
    with Receiver() as receiver:
        notify = f"notify: {{webhook: {{url: '{receiver.url()}', allow_http: true}}}}\n"

        def configured(after: str, more: str = "") -> None:
            site.configure(more=more + notify)
            site.config.write_text(site.config.read_text("utf-8").replace("after: 2h", after), encoding="utf-8")

        configured("after: 1s", other)
        with running(site.config, "--web.enable-lifecycle") as process:
            process.wait_for('cpcmon_alert_firing{alert="silent",model="other",segment="all",severity="warning"}', 1.0)
            process.wait_for("cpcmon_webhook_sent_total", 2.0)
            before = alert_history(process)
            # Its alerts are gone, and so is its history.
            configured("after: 1s")
            assert process.ask("/-/reload", "POST")[0] == 200
            assert "to=gone" in process.wait_for_line("model=other segment=all alert=silent from=firing")
            assert process.ask("/api/v1/alerts?model=other")[0] == 404
            assert alert_history(process) == before
            configured("after: 1h")
            assert process.ask("/-/reload", "POST")[0] == 200
            # Whether it is stored by now that this was delivered is left to chance: no message may be lost.
            wait_for_commit(process, process.wait_for("cpcmon_webhook_sent_total", 4.0))
            wait_for_commit(process, process.metrics())
            before, logged = alert_history(process), _logged(process)
            process.kill()
        configured("after: 1s")
        with running(site.config) as process:
            process.wait_for("cpcmon_webhook_sent_total", 1.0)
            after, logged = alert_history(process), logged + _logged(process)
            assert process.stop() == 0
        sent = [receiver.get().json for _ in range(5)]
    assert after[: len(before)] == before
    assert [(one["alert"], one["from"], one["to"]) for one in after] == logged
    told = [(one["status"], one["at"]) for one in sent if one["model"] == "density"]
    ends = [one for one in after if (one["from"] == "firing") != (one["to"] == "firing")]
    assert [("firing" if one["to"] == "firing" else "resolved", _stamp(one["at"])) for one in ends] == told
    assert len(told) == 3


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def test_source_counts_and_rejects_survive_a_kill(site: Site) -> None:
    write_records(site.inbox / "a.jsonl", HEALTHY[:200])
    with (site.inbox / "a.jsonl").open("a") as file:
        file.write('{"probs": [1, 0]}\nno json\n')
    for _ in range(2):
        with running(site.config) as process:
            process.wait_for(*window_records(200))
            (source,) = json.loads(process.ask("/api/v1/status")[1])["sources"]
            assert (source["source"], source["type"], source["ready"]) == ("results", "directory", True)
            assert (source["records"], source["rejected"], source["unread_bytes"]) == (200, 2, 0)
            rejects = json.loads(process.ask("/api/v1/rejects")[1])
            assert sum(one["records"] for one in rejects["counts"]) == 2
            assert [one["number"] for one in rejects["latest"]] == [202, 201]
            assert {one["source"] for one in rejects["latest"]} == {"results"}
            assert all(one["origin"].startswith("file#") for one in rejects["latest"])
            process.kill()
