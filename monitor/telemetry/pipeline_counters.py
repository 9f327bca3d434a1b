"""The counters that the pipeline keeps over restarts, as Prometheus shows them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily

from monitor.decode.rejections import Reason
from monitor.sources.counted import Counted
from monitor.sources.kafka_counted import Counted as CountedByKafka
from monitor.telemetry.facts import DaemonFacts

_CLOSED: Mapping[str, tuple[str, ...]] = {
    "reason": tuple(Reason),
    "from": ("backup", "empty"),
}
"""Labels whose values are known beforehand, so that each can be shown as 0 before it happens."""


@dataclass(frozen=True, slots=True)
class _Counter:
    name: str
    labels: tuple[str, ...]
    help: str


_COUNTERS = (
    _Counter("records_total", ("source", "model"), "Records taken into windows."),
    _Counter("records_rejected_total", ("source", "reason"), "Records refused."),
    _Counter(
        "records_normalised_total", ("model",), "Records whose probabilities were rounded, and divided by their sum."
    ),
    _Counter(
        "records_argmax_mismatch_total", ("model",), "Records that name another class than their largest probability."
    ),
    _Counter("records_future_total", ("model",), "Records stamped in the future, and taken as of now."),
    _Counter(
        "records_other_version_total", ("model",), "Records of another version of the model, kept out of windows."
    ),
    _Counter(
        "records_unstored_segment_total", ("model",), "Entries in segments past the limit, counted in the whole only."
    ),
    _Counter("records_late_total", ("model",), "Records older than the window reaches, left out."),
    _Counter("records_evicted_total", ("model",), "Records that left the window of the whole."),
    _Counter(
        "source_events_total",
        ("source", "event"),
        "What happened at a source; docs/directory.md and docs/kafka.md explain the events.",
    ),
    _Counter("state_recovered_total", ("from",), "Starts at which the state was damaged and replaced."),
    _Counter("state_damaged_chunks_total", (), "Batches of records dropped from the state because they were damaged."),
    _Counter("resumed_total", (), "Times that the state could be written again after a pause."),
)


def pipeline_families(facts: DaemonFacts) -> Iterator[CounterMetricFamily]:
    """Yield the counters of what is configured now, those of which nothing happened yet as 0."""
    if facts.counters is None:
        return
    for counter in _COUNTERS:
        family = CounterMetricFamily(f"cpcmon_{counter.name}", counter.help, labels=counter.labels)
        known = dict.fromkeys(_known(counter, facts), 0)
        counted = {key[1:]: count for key, count in facts.counters.items() if key[0] == counter.name}
        for labels, count in (known | counted).items():
            if _is_configured(dict(zip(counter.labels, labels, strict=True)), facts):
                family.add_metric(labels, count)
        yield family


def _known(counter: _Counter, facts: DaemonFacts) -> list[tuple[str, ...]]:
    if counter.labels == ("source", "event"):
        # Each sort of source has a list of its own.
        lists = {name: Counted if source.kafka is None else CountedByKafka for name, source in facts.sources.items()}
        return [(name, event) for name, events in lists.items() for event in events]
    values: Mapping[str, tuple[str, ...]] = {"source": tuple(facts.sources), "model": facts.models, **_CLOSED}
    return _combinations([values[label] for label in counter.labels])


def _combinations(values: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [()]
    for column in values:
        rows = [(*row, value) for row in rows for value in column]
    return rows


def _is_configured(labels: Mapping[str, str], facts: DaemonFacts) -> bool:
    # The state remembers counters of models and sources that are gone; nobody expects their series back.
    model, source = labels.get("model"), labels.get("source")
    return (model is None or model in facts.models) and (source is None or source in facts.sources)
