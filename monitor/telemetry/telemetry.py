"""Counts events of the daemon, and renders its part of the metrics page."""

import logging
import platform
from collections.abc import Callable, Collection, Iterable, Iterator
from importlib.metadata import version
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from monitor.core.estimate import ADAPTIVE, CONSENSUS
from monitor.core.estimators import ESTIMATORS
from monitor.telemetry.families import DaemonFacts, FactsCollector

log = logging.getLogger("cpcmon")

_EVALUATION_SECONDS = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0)
_EOF = b"# EOF\n"
_TICK_SECONDS = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0)


class _Collector(Protocol):
    def collect(self) -> Iterable[Metric]: ...


class Telemetry:
    """The daemon's metrics about itself. Safe for use by several threads."""

    def __init__(self, facts: Callable[[], DaemonFacts]) -> None:
        own = CollectorRegistry()
        self._evaluations = Counter("cpcmon_evaluations", "Evaluations.", ["model"], registry=own)
        self._failures = Counter("cpcmon_evaluation_failures", "Evaluations that failed.", ["model"], registry=own)
        self._estimator_failures = Counter(
            "cpcmon_estimator_failures", "Windows for which an estimator failed.", ["model", "estimator"], registry=own
        )
        self._missed = Counter(
            "cpcmon_scheduler_missed", "Evaluations not run because they were late.", ["model"], registry=own
        )
        self._skipped = Counter(
            "cpcmon_scheduler_skipped",
            "Evaluations not run because the previous one still ran.",
            ["model"],
            registry=own,
        )
        self._duration = Histogram(
            "cpcmon_evaluation_duration_seconds", "Duration of evaluations.", ["model"],
            buckets=_EVALUATION_SECONDS, registry=own,
        )  # fmt: skip
        self._tick = Histogram(
            "cpcmon_tick_duration_seconds", "Duration of one round of the ingestion loop.",
            buckets=_TICK_SECONDS, registry=own,
        )  # fmt: skip
        self._jumps = Counter("cpcmon_clock_jumps", "Jumps of the wall clock.", registry=own)
        self._reloads = Counter("cpcmon_config_reloads", "Loads of the configuration, with the first.", registry=own)
        self._reload_failures = Counter(
            "cpcmon_config_reload_failures", "Loads of the configuration that failed.", registry=own
        )
        self._successful = Gauge(
            "cpcmon_config_last_reload_successful", "1 when the last reload succeeded, else 0.", registry=own
        )
        _build_info(own)
        self._successful.set(1)
        self._reloaded_at: float | None = None
        self._models: frozenset[str] = frozenset()
        self._parts: tuple[_Collector, ...] = (own, FactsCollector(facts), ProcessCollector(registry=None))

    def configured(self, models: Collection[str]) -> None:
        """Export the series of these models, from 0, and drop those of others."""
        wanted = frozenset(models)
        gone, self._models = self._models - wanted, wanted
        for model in sorted(wanted):
            for family in (self._evaluations, self._failures, self._missed, self._skipped, self._duration):
                family.labels(model)
            for estimator in _estimators():
                self._estimator_failures.labels(model, estimator)
        for model in gone:
            for family in (self._evaluations, self._failures, self._missed, self._skipped, self._duration):
                family.remove(model)
            self._estimator_failures.remove_by_labels({"model": model})

    def evaluated(self, model: str, seconds: float) -> None:
        """Count an evaluation."""
        if model in self._models:
            self._evaluations.labels(model).inc()
            self._duration.labels(model).observe(seconds)

    def evaluation_failed(self, model: str) -> None:
        """Count an evaluation that failed."""
        if model in self._models:
            self._evaluations.labels(model).inc()
            self._failures.labels(model).inc()

    def estimator_failed(self, model: str, estimator: str, count: int) -> None:
        """Count windows for which an estimator failed."""
        if model in self._models:
            self._estimator_failures.labels(model, estimator).inc(count)

    def missed(self, model: str) -> None:
        """Count an evaluation that did not run because it was late."""
        if model in self._models:
            self._missed.labels(model).inc()

    def skipped(self, model: str) -> None:
        """Count an evaluation that did not run because the previous one still ran."""
        if model in self._models:
            self._skipped.labels(model).inc()

    def clock_jumped(self) -> None:
        """Count a jump of the wall clock."""
        self._jumps.inc()

    def reloaded(self, now: float) -> None:
        """Count a load of the configuration."""
        self._reloads.inc()
        self._successful.set(1)
        self._reloaded_at = now

    def reload_failed(self) -> None:
        """Count a reload that failed."""
        self._reloads.inc()
        self._reload_failures.inc()
        self._successful.set(0)

    def ticked(self, seconds: float) -> None:
        """Count a round of the ingestion loop."""
        self._tick.observe(seconds)

    def page(self, *, openmetrics: bool = False) -> bytes:
        """Return all series in the text format 0.0.4, or in OpenMetrics 1.0. A part that fails is left out and counted."""
        pages, failed = [], 0
        for part in self._parts:
            try:
                pages.append(_openmetrics(_filled(part)) if openmetrics else _text(_without_created(part)))
            except Exception as error:  # estimates and alerts must still be scraped
                log.exception("metrics: rendering a part of the page failed: %s", type(error).__name__)
                failed += 1
        last = self._last(failed)
        return b"".join([*pages, *((_openmetrics(last), _EOF) if openmetrics else (_text(last),))])

    def _last(self, failed: int) -> Iterator[Metric]:
        if self._reloaded_at is not None:
            name = "cpcmon_config_last_reload_success_timestamp_seconds"
            yield GaugeMetricFamily(
                name, "Time of the last successful load of the configuration.", value=self._reloaded_at
            )
        help_ = "Parts of this page that failed and are missing."
        yield GaugeMetricFamily("cpcmon_telemetry_errors", help_, value=failed)


class _Families:
    """A collector of given families."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """Return the families."""
        return self._families


def _text(families: Iterable[Metric]) -> bytes:
    return generate_latest(_Families(families))


def _openmetrics(families: Iterable[Metric]) -> bytes:
    """Return families without the end of a page."""
    page: bytes = generate_openmetrics(_Families(families))  # type: ignore[no-untyped-call]
    return page.removesuffix(_EOF)


def _filled(collector: _Collector) -> Iterator[Metric]:
    """Yield families without empty ones."""
    return (metric for metric in collector.collect() if metric.samples)


def _without_created(collector: _Collector) -> Iterator[Metric]:
    """Yield families without their `_created` series, which the text format does not know."""
    for metric in _filled(collector):
        metric.samples = [sample for sample in metric.samples if sample.name != f"{metric.name}_created"]
        yield metric


def _estimators() -> list[str]:
    return [*(form.name for one in ESTIMATORS for form in one.forms() if form.variant is None), CONSENSUS, ADAPTIVE]


def _build_info(registry: CollectorRegistry) -> None:
    build = Gauge(
        "cpcmon_build_info",
        "Versions of cpcmon and of its main libraries.",
        ["version", "python_version", "numpy_version"],
        registry=registry,
    )
    build.labels(version("cpcmon"), platform.python_version(), version("numpy")).set(1)
