"""Counts what the daemon does, and makes its part of the metrics page.

Labels are names that the configuration allows, and words of closed lists: they need no cleaning.
"""

import logging
import platform
from collections.abc import Callable, Collection, Iterable, Iterator
from importlib.metadata import version
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from monitor.core.estimators import ESTIMATORS
from monitor.core.estimators.consensus import CONSENSUS
from monitor.telemetry.facts import DaemonFacts
from monitor.telemetry.families import FactsCollector

log = logging.getLogger("cpcmon")

_EVALUATION_SECONDS = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0)
_TICK_SECONDS = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0)


class _Collects(Protocol):
    """Whatever has series to show."""

    def collect(self) -> Iterable[Metric]:
        """Yield them."""


class Telemetry:
    """What the daemon says about itself. Every method may be called by any thread."""

    def __init__(self, facts: Callable[[], DaemonFacts]) -> None:
        own = CollectorRegistry()
        self._evaluations = Counter("cpcmon_evaluations", "Evaluations begun.", ["model"], registry=own)
        self._failures = Counter("cpcmon_evaluation_failures", "Evaluations that failed.", ["model"], registry=own)
        self._estimator_failures = Counter(
            "cpcmon_estimator_failures", "Windows that an estimator failed on.", ["model", "estimator"], registry=own
        )
        self._missed = Counter(
            "cpcmon_scheduler_missed", "Evaluations left out for being late.", ["model"], registry=own
        )
        self._skipped = Counter(
            "cpcmon_scheduler_skipped", "Evaluations left out while one was still running.", ["model"], registry=own
        )
        self._duration = Histogram(
            "cpcmon_evaluation_duration_seconds", "How long evaluations took.", ["model"],
            buckets=_EVALUATION_SECONDS, registry=own,
        )  # fmt: skip
        self._tick = Histogram(
            "cpcmon_tick_duration_seconds", "How long it took to take in what the sources had.",
            buckets=_TICK_SECONDS, registry=own,
        )  # fmt: skip
        self._jumps = Counter("cpcmon_clock_jumps", "Times that the wall clock was found set.", registry=own)
        self._reloads = Counter(
            "cpcmon_config_reloads", "Times that the configuration was read, at the start too.", registry=own
        )
        self._reload_failures = Counter(
            "cpcmon_config_reload_failures", "Times that it could not be taken over.", registry=own
        )
        self._successful = Gauge(
            "cpcmon_config_last_reload_successful", "1 when the last reload succeeded, else 0.", registry=own
        )
        _build_info(own)
        self._successful.set(1)
        self._taken_over_at: float | None = None
        self._models: frozenset[str] = frozenset()
        self._parts: tuple[_Collects, ...] = (own, FactsCollector(facts), ProcessCollector(registry=None))

    def configured(self, models: Collection[str]) -> None:
        """From now on these models are evaluated: show 0 for what has not happened yet, nothing of others."""
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
        """An evaluation succeeded."""
        if model in self._models:
            self._evaluations.labels(model).inc()
            self._duration.labels(model).observe(seconds)

    def evaluation_failed(self, model: str) -> None:
        """An evaluation raised."""
        if model in self._models:
            self._evaluations.labels(model).inc()
            self._failures.labels(model).inc()

    def estimator_failed(self, model: str, estimator: str, count: int) -> None:
        """An estimator failed on some windows."""
        if model in self._models:
            self._estimator_failures.labels(model, estimator).inc(count)

    def missed(self, model: str) -> None:
        """An evaluation was left out for being late."""
        if model in self._models:
            self._missed.labels(model).inc()

    def skipped(self, model: str) -> None:
        """An evaluation was left out while one was still running."""
        if model in self._models:
            self._skipped.labels(model).inc()

    def clock_jumped(self) -> None:
        """The wall clock was found set."""
        self._jumps.inc()

    def reloaded(self, now: float) -> None:
        """A configuration was taken over: the first, or another."""
        self._reloads.inc()
        self._successful.set(1)
        self._taken_over_at = now

    def reload_failed(self) -> None:
        """A reload failed, and the configuration from before stays in use."""
        self._reloads.inc()
        self._reload_failures.inc()
        self._successful.set(0)

    def ticked(self, seconds: float) -> None:
        """The sources were asked for what they have."""
        self._tick.observe(seconds)

    def page(self) -> bytes:
        """Return all series in the text format 0.0.4. A part that fails is left out and said; the others stay."""
        pages, failed = [], 0
        for part in self._parts:
            try:
                pages.append(generate_latest(_WithoutCreated(part)))
            except Exception as error:  # whatever it is, estimates and alerts must still be scraped
                log.exception("metrics: a part of the page cannot be made: %s", type(error).__name__)
                failed += 1
        return b"".join([*pages, generate_latest(_Families(self._last(failed)))])

    def _last(self, failed: int) -> Iterator[Metric]:
        if self._taken_over_at is not None:
            name = "cpcmon_config_last_reload_success_timestamp_seconds"
            yield GaugeMetricFamily(name, "When a configuration was last taken over.", value=self._taken_over_at)
        help_ = "Parts of this page that could not be made and are missing."
        yield GaugeMetricFamily("cpcmon_telemetry_errors", help_, value=failed)


class _Families:
    """Families that are there already."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """Return them."""
        return self._families


class _WithoutCreated:
    """Series without the times at which counters came to be: they would double the page, and nobody asks."""

    def __init__(self, inner: _Collects) -> None:
        self._inner = inner

    def collect(self) -> Iterator[Metric]:
        """Yield what is left, families without a sample not at all."""
        for metric in self._inner.collect():
            created = f"{metric.name}_created"
            metric.samples = [sample for sample in metric.samples if sample.name != created]
            if metric.samples:
                yield metric


def _estimators() -> list[str]:
    return [*(form.name for one in ESTIMATORS for form in one.forms() if form.variant is None), CONSENSUS]


def _build_info(registry: CollectorRegistry) -> None:
    build = Gauge(
        "cpcmon_build_info", "The program that runs.", ["version", "python_version", "numpy_version"], registry=registry
    )
    build.labels(version("cpcmon"), platform.python_version(), version("numpy")).set(1)
