"""The shipped configurations of Prometheus and Alertmanager, sixty times as fast and on loopback."""

import json
import re
import shutil
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from deploy.prometheus.build_rules import RULES
from tests.conftest import ROOT
from tests.prometheus.receiver import LIMIT_SECONDS
from tests.prometheus.running import free_port, running
from tests.servers import real_server
from tests.waiting import wait_until

_SHORTER = {"s": "ms", "m": "s", "h": "m", "d": "h"}
"""A minute becomes a second."""


class Chain:
    """A running Prometheus, and its Alertmanager."""

    def __init__(self, url: str, alertmanager: str) -> None:
        self.url, self.alertmanager = url, alertmanager

    def ask(self, query: str) -> list[dict[str, Any]]:
        """Return the result of a query."""
        address = f"{self.url}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        try:
            with urllib.request.urlopen(address, timeout=LIMIT_SECONDS) as answer:  # noqa: S310  an address of our own
                return list(json.load(answer)["data"]["result"])
        except HTTPError as error:
            raise AssertionError(f"{query}: {error.read().decode()}") from error

    def value(self, query: str) -> float:
        """Return the single value of a query; 0 without a result."""
        return sum(float(one["value"][1]) for one in self.ask(query))

    def firing(self) -> set[tuple[str, str]]:
        """Return the firing alerts, with their segments."""
        found = [one["metric"] for one in self.ask('ALERTS{alertstate="firing"}')]
        return {(one["alertname"], one.get("segment", "")) for one in found}

    def wait_until(self, query: str, least: float) -> None:
        """Wait until a query reaches a value."""
        until = time.monotonic() + LIMIT_SECONDS
        while (found := self.value(query)) < least:
            assert time.monotonic() < until, f"{query}: expected {least} or more, found {found}"
            time.sleep(0.2)

    def wait_until_muted(self, name: str, segment: str) -> None:
        """Wait until Alertmanager has an alert, and another one inhibits it."""
        matchers = [("filter", f'alertname="{name}"'), ("filter", f'segment="{segment}"')]
        address = f"{self.alertmanager}/api/v2/alerts?{urllib.parse.urlencode(matchers)}"

        def muted() -> bool:
            with urllib.request.urlopen(address, timeout=LIMIT_SECONDS) as answer:  # noqa: S310  an address of our own
                return any(one["status"]["inhibitedBy"] for one in json.load(answer))

        wait_until(muted, lambda: f"{name} of {segment} is not inhibited", LIMIT_SECONDS, every=0.2)


def fast_rules() -> str:
    """Return the shipped rules with `for` divided by sixty."""
    return re.sub(r"^( +for: \d+)([mhd])$", lambda m: m[1] + _SHORTER[m[2]], RULES.read_text(), flags=re.MULTILINE)


@contextmanager
def alertmanager(folder: Path, hook: int, group_wait: str = "0s") -> Iterator[int]:
    """Run Alertmanager with the shipped file, with receivers on loopback and waits of a second."""
    program, port = real_server("prometheus-alertmanager"), free_port()
    shipped = ROOT / "deploy" / "alertmanager"
    shutil.copy(shipped / "cpcmon.tmpl", folder)
    # The path is the name of the receiver.
    text, count = re.subn(
        r"(name: (.+)\n.+url: )\S+?\}", rf'\1"http://127.0.0.1:{hook}/\2"}}', (shipped / "alertmanager.yml").read_text()
    )
    assert count == text.count("webhook_configs: ")
    for setting, value in (("group_wait", group_wait), ("group_interval", "1s")):
        text = re.sub(rf"{setting}: \w+", f"{setting}: {value}", text)
    (folder / "alertmanager.yml").write_text(text)
    with running(
        f"http://127.0.0.1:{port}/-/ready", folder / "alertmanager.log", program,
        "--config.file=alertmanager.yml", "--storage.path=alertmanager", "--cluster.listen-address=",
        f"--web.listen-address=127.0.0.1:{port}",
    ):  # fmt: skip
        yield port


@contextmanager
def chain(folder: Path, exporter: int, hook: int, group_wait: str = "0s") -> Iterator[Chain]:
    """Run both servers with the shipped files, with other ports and intervals of one second."""
    program, own = real_server("prometheus"), free_port()
    with alertmanager(folder, hook, group_wait) as manager:
        text = (ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text()
        for port, used in {"9877": exporter, "9093": manager, "9090": own}.items():
            text = text.replace(f"localhost:{port}", f"127.0.0.1:{used}")
        (folder / "prometheus.yml").write_text(text.replace("interval: 30s", "interval: 1s"))
        (folder / "cpcmon.rules.yml").write_text(fast_rules())
        with running(
            f"http://127.0.0.1:{own}/-/ready", folder / "prometheus.log", program,
            "--config.file=prometheus.yml", "--storage.tsdb.path=prometheus",
            "--rules.alert.for-grace-period=0s", "--rules.alert.for-outage-tolerance=0s", "--rules.alert.resend-delay=1s",
            f"--web.listen-address=127.0.0.1:{own}",
        ):  # fmt: skip
            yield Chain(f"http://127.0.0.1:{own}", f"http://127.0.0.1:{manager}")
