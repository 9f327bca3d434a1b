"""A real Prometheus that scrapes, evaluates rules and answers queries."""

import json
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.grafana.dashboard import Query
from tests.prometheus.running import free_port, running
from tests.servers import real_server

PATIENCE_SECONDS = 90.0
"""On a machine that is busy with other tests."""

_SHOWN_SECONDS = 60.0
_STEP_SECONDS = 2.0
_CONFIG = "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\n"

Labels = dict[str, str]


class Prometheus:
    """A server that answers queries."""

    def __init__(self, address: str) -> None:
        self._address = address

    def answer(self, query: Query, values: Mapping[str, str]) -> list[tuple[Labels, float]]:
        """Return labels and latest value of every series in the result of a query."""
        asked = query.asked_with(values)
        if query.instant:
            found = self._ask("query", query=asked)
            return [(one["metric"], float(one["value"][1])) for one in found]
        now = time.time()
        found = self._ask("query_range", query=asked, start=now - _SHOWN_SECONDS, end=now, step=_STEP_SECONDS)
        return [(one["metric"], float(one["values"][-1][1])) for one in found]

    def problem(self, query: Query, values: Mapping[str, str]) -> str:
        """Return the problem with the result of a query: it is empty, or lacks a label of the legend."""
        found = self.answer(query, values)
        if not found:
            return f"{query.name} returns nothing: {query.asked_with(values)}"
        lacking = {label for labels, _ in found for label in query.legend_labels if not labels.get(label)}
        return f"{query.name} has no {sorted(lacking)} for its legend" if lacking else ""

    def _ask(self, kind: str, **parameters: object) -> list[dict[str, Any]]:
        address = f"{self._address}/api/v1/{kind}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(address, timeout=30.0) as answer:  # noqa: S310  an address of our own
                found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters['query']}: {error.read().decode()}") from error
        return found


@contextmanager
def prometheus(folder: Path, jobs: Mapping[str, list[str]], rules: str) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes the targets of each job and evaluates rules."""
    program, port = real_server("prometheus"), free_port()
    scraped = [{"job_name": job, "static_configs": [{"targets": targets}]} for job, targets in jobs.items()]
    (folder / "rules.yml").write_text(rules)
    # JSON is YAML.
    (folder / "prometheus.yml").write_text(f"{_CONFIG}rule_files: [rules.yml]\nscrape_configs: {json.dumps(scraped)}\n")
    address = f"http://127.0.0.1:{port}"
    words = ["--config.file=prometheus.yml", "--storage.tsdb.path=prometheus", f"--web.listen-address=127.0.0.1:{port}"]
    words += ["--rules.alert.for-grace-period=0s", "--rules.alert.for-outage-tolerance=0s"]
    with running(f"{address}/-/ready", folder / "prometheus.log", program, *words):
        yield Prometheus(address)


def wait_until_nothing_is_missing(missing: Callable[[], list[str]], meanwhile: Callable[[], None]) -> None:
    """Wait until nothing is missing, or fail with the list."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while left := missing():
        assert time.monotonic() < deadline, "\n".join(left)
        meanwhile()
        time.sleep(0.5)
