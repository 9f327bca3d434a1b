"""End to end with the real Prometheus and Alertmanager: a scrape, a rule that fires, a notification."""

import re
import threading
import time
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from monitor.core.alerts import AlertPhase
from monitor.rules.rule_file import rule_file
from monitor.sinks.prometheus_page import PrometheusSink
from tests.prometheus.receiver import Receiver
from tests.prometheus.running import free_port, running
from tests.servers import real_server
from tests.sinks import reports

pytestmark = pytest.mark.slow

_PROMETHEUS = """
global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}
rule_files: [rules.yml]
scrape_configs:
  - job_name: cpcmon
    static_configs: [{{targets: ["127.0.0.1:{exporter}"]}}]
alerting:
  alertmanagers:
    - static_configs: [{{targets: ["127.0.0.1:{alertmanager}"]}}]
"""

_ALERTMANAGER = """
route: {{receiver: hook, group_by: ["..."], group_wait: 0s, group_interval: 1s, repeat_interval: 1h}}
receivers:
  - name: hook
    webhook_configs: [{{url: "http://127.0.0.1:{hook}/", send_resolved: true}}]
"""


class _Exporter:
    """Serves the metrics page of a sink."""

    def __init__(self) -> None:
        self.sink = PrometheusSink()
        self.port = free_port()
        self._server: ThreadingHTTPServer | None = None

    def start(self) -> None:
        """Answer scrapes."""
        sink = self.sink

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = bytes(sink.page())
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(page)))
                self.end_headers()
                self.wfile.write(page)

            def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  the library's own name
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """Stop."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


def test_e16_a_drop_fires_a_recovery_resolves_and_a_dead_exporter_is_down(tmp_path: Path) -> None:
    """With generated rules, and waits of a second or two."""
    prometheus, alertmanager = real_server("prometheus"), real_server("prometheus-alertmanager")
    exporter, receiver = _Exporter(), Receiver()
    ports = {"exporter": exporter.port, "hook": receiver.port, "alertmanager": free_port(), "prometheus": free_port()}
    rules = re.sub(r"^( +for:) .*$", r"\1 2s", rule_file(reports.config()), flags=re.MULTILINE)
    (tmp_path / "rules.yml").write_text(rules)
    (tmp_path / "prometheus.yml").write_text(_PROMETHEUS.format(**ports))
    (tmp_path / "alertmanager.yml").write_text(_ALERTMANAGER.format(**ports))
    site = (("site", "A"),)

    def publish(phase: AlertPhase, accuracy: float) -> None:
        one = reports.window(site, accuracy=accuracy, alerts=(reports.accuracy_low(phase),))
        exporter.sink.publish(reports.report(reports.window(), one, at=time.time()))

    publish(AlertPhase.OK, 0.9)
    exporter.start()
    with ExitStack() as stack:
        stack.callback(receiver.close)
        stack.callback(exporter.stop)
        stack.enter_context(
            running(
                f"http://127.0.0.1:{ports['alertmanager']}/-/ready", tmp_path / "alertmanager.log", alertmanager,
                "--config.file=alertmanager.yml", "--storage.path=alertmanager", "--cluster.listen-address=",
                f"--web.listen-address=127.0.0.1:{ports['alertmanager']}",
            )
        )  # fmt: skip
        stack.enter_context(
            running(
                f"http://127.0.0.1:{ports['prometheus']}/-/ready", tmp_path / "prometheus.log", prometheus,
                "--config.file=prometheus.yml", "--storage.tsdb.path=prometheus",
                "--rules.alert.for-grace-period=0s", "--rules.alert.for-outage-tolerance=0s", "--rules.alert.resend-delay=1s",
                f"--web.listen-address=127.0.0.1:{ports['prometheus']}",
            )
        )  # fmt: skip
        receiver.wait_for("CpcmonWatchdog", "", "firing")
        publish(AlertPhase.FIRING, 0.74)
        receiver.wait_for("CpcmonAccuracyLow", "site=A", "firing")
        publish(AlertPhase.RECOVERING, 0.82)
        publish(AlertPhase.OK, 0.9)
        receiver.wait_for("CpcmonAccuracyLow", "site=A", "resolved")
        exporter.stop()
        receiver.wait_for("CpcmonDown", "", "firing")
        exporter.start()
        receiver.wait_for("CpcmonDown", "", "resolved")
