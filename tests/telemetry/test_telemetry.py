"""The daemon's metrics about itself."""

import logging
import subprocess
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import prometheus_client
import pytest
from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from monitor.core.estimators import ESTIMATORS
from monitor.records.rejections import Reason
from monitor.sinks.prometheus_page import PrometheusSink
from monitor.sources.base import ShardLag, ShardStatus, SourceStatus
from monitor.sources.directory.directory_options import DirectoryEvent
from monitor.sources.kafka.consumer import FailureKind
from monitor.sources.kafka.kafka_options import KafkaEvent as CountedByKafka
from monitor.state.commit_plan import Counters
from monitor.telemetry import DaemonFacts, Telemetry
from tests.sinks import reports
from tests.sinks.pages import families, samples


@pytest.fixture
def telemetry() -> Telemetry:
    """A daemon with two models, before the first event."""
    made = Telemetry(reports.facts)
    made.configured(("density", "triage"))
    return made


def test_promtool_finds_nothing(telemetry: Telemetry, promtool: Path) -> None:
    """In the whole page: reports and telemetry."""
    sink = PrometheusSink()
    sink.publish(reports.density())
    page = bytes(sink.page()) + telemetry.page()
    checked = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True, check=False)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")


def test_reports_and_telemetry_share_no_family(telemetry: Telemetry) -> None:
    """A split family would invalidate the page."""
    sink = PrometheusSink()
    sink.publish(reports.density())
    assert not families(bytes(sink.page())).keys() & families(telemetry.page()).keys()


def test_counters_are_0_before_the_first_event() -> None:
    """Otherwise `increase` would miss the first event."""
    nothing = replace(reports.facts(), counters=Counters())
    telemetry = Telemetry(lambda: nothing)
    telemetry.configured(("density", "triage"))
    found = samples(telemetry.page())
    for source, events in {"results": DirectoryEvent, "late": DirectoryEvent, "stream": CountedByKafka}.items():
        for model in ("density", "triage"):
            assert found[f"cpcmon_records_total{{model={model},source={source}}}"] == 0
        for reason in Reason:
            assert found[f"cpcmon_records_rejected_total{{reason={reason},source={source}}}"] == 0
        for event in events:
            assert found[f"cpcmon_source_events_total{{event={event},source={source}}}"] == 0
    for model in ("density", "triage"):
        names = ("normalised", "argmax_mismatch", "future", "referred", "other_version", "unstored_segment", "late")
        for name in (*names, "evicted"):
            assert found[f"cpcmon_records_{name}_total{{model={model}}}"] == 0
        for name in ("evaluations", "evaluation_failures", "scheduler_missed", "scheduler_skipped"):
            assert found[f"cpcmon_{name}_total{{model={model}}}"] == 0
        for estimator in ESTIMATORS:
            assert found[f"cpcmon_estimator_failures_total{{estimator={estimator.name},model={model}}}"] == 0
    assert found["cpcmon_state_recovered_total{from=backup}"] == found["cpcmon_state_recovered_total{from=empty}"] == 0
    assert found["cpcmon_state_damaged_chunks_total{}"] == found["cpcmon_resumed_total{}"] == 0


def test_ingestion_counters_are_exported(telemetry: Telemetry) -> None:
    """Without those of removed sources and models."""
    found = samples(telemetry.page())
    assert found["cpcmon_records_total{model=density,source=results}"] == 12_345
    assert found["cpcmon_records_rejected_total{reason=bad_sum,source=results}"] == 3
    assert found["cpcmon_source_events_total{event=bytes_read,source=results}"] == 99_000_000
    assert found["cpcmon_state_recovered_total{from=backup}"] == 1
    assert not [series for series in found if "elsewhere" in series]


def test_unknown_events_are_exported() -> None:
    """A custom source has its own events."""
    facts = replace(
        reports.facts(), counters=Counters.from_stored({("source_events_total", "results", "rebalanced"): 2})
    )
    found = samples(Telemetry(lambda: facts).page())
    assert found["cpcmon_source_events_total{event=rebalanced,source=results}"] == 2


def test_events_are_counted(telemetry: Telemetry) -> None:
    """A failed evaluation or reload counts in both counters."""
    telemetry.evaluated("density", 0.3)
    telemetry.evaluation_failed("density")
    telemetry.estimator_failed("density", "cpc_acc", 4)
    telemetry.missed("density")
    telemetry.skipped("density")
    telemetry.clock_jumped()
    telemetry.ticked(0.01)
    telemetry.reloaded(reports.NOW + 60.0)
    telemetry.reload_failed()
    found = samples(telemetry.page())
    assert found["cpcmon_evaluations_total{model=density}"] == 2
    assert found["cpcmon_evaluation_failures_total{model=density}"] == 1
    assert found["cpcmon_estimator_failures_total{estimator=cpc_acc,model=density}"] == 4
    assert found["cpcmon_scheduler_missed_total{model=density}"] == 1
    assert found["cpcmon_scheduler_skipped_total{model=density}"] == 1
    assert found["cpcmon_clock_jumps_total{}"] == 1
    assert found["cpcmon_evaluation_duration_seconds_bucket{le=0.1,model=density}"] == 0
    assert found["cpcmon_evaluation_duration_seconds_bucket{le=0.5,model=density}"] == 1
    assert found["cpcmon_tick_duration_seconds_count{}"] == 1
    assert found["cpcmon_config_reloads_total{}"] == 2
    assert found["cpcmon_config_reload_failures_total{}"] == 1
    assert found["cpcmon_config_last_reload_successful{}"] == 0
    assert found["cpcmon_config_last_reload_success_timestamp_seconds{}"] == reports.NOW + 60.0


def test_before_the_first_load_no_reload_has_failed() -> None:
    """So that CpcmonReloadFailed does not fire."""
    found = samples(Telemetry(reports.facts).page())
    assert found["cpcmon_config_last_reload_successful{}"] == 1
    assert "cpcmon_config_last_reload_success_timestamp_seconds{}" not in found


def test_before_the_state_is_read_no_ingestion_counter_is_exported() -> None:
    """A jump from 0 to the stored value would look like new events."""
    facts = replace(reports.facts(), counters=None)
    found = families(Telemetry(lambda: facts).page())
    assert "cpcmon_records_total" not in found
    assert "cpcmon_state_recovered_total" not in found
    assert "cpcmon_ready" in found


def test_only_models_that_take_labels_have_counters_of_labels() -> None:
    """Of the sources that carry them."""
    found = [name for name in samples(Telemetry(reports.facts).page()) if name.startswith("cpcmon_labels_")]
    assert sorted(found) == [
        "cpcmon_labels_corrected_total{model=density}",
        "cpcmon_labels_repeated_total{model=density}",
        "cpcmon_labels_total{model=density,source=pathology}",
        "cpcmon_labels_without_prediction_total{model=density}",
    ]
    config = replace(reports.config(), sources=(), models=reports.config().models[1:])
    facts = replace(reports.facts(), config=config, counters=Counters())
    assert not any("cpcmon_labels" in name for name in families(Telemetry(lambda: facts).page()))


def test_a_removed_model_loses_its_series() -> None:
    """Also if its evaluation ends after the reload. Other models keep their counts."""
    config = replace(reports.config(), models=reports.config().models[:1])
    facts = replace(reports.facts(), models=("density",), config=config)
    shown = Telemetry(lambda: facts)
    shown.configured(("density", "triage"))
    shown.evaluated("triage", 0.1)
    shown.evaluated("density", 0.1)
    shown.configured(("density",))
    shown.evaluated("triage", 0.1)
    shown.missed("the schedule itself")
    found = samples(shown.page())
    assert not [series for series in found if "triage" in series or "itself" in series]
    assert found["cpcmon_evaluations_total{model=density}"] == 1


def test_settings_that_the_shipped_rules_need_are_exported(telemetry: Telemetry) -> None:
    """The kind of an alert, the gap of the schedule, and whether replicas share the model."""
    found = samples(telemetry.page())
    kinds = {
        "accuracy_low": "accuracy_low",
        "accuracy_high": "accuracy_high",
        "apart": "disagreement",
        "silent": "silent",
        "missed": "performance_low",
    }
    for alert, kind in {**kinds, "refused": "degraded_input"}.items():
        on = "upper" if kind.startswith(("accuracy", "performance")) else ""
        assert found[f"cpcmon_alert_info{{alert={alert},kind={kind},model=density,on={on}}}"] == 1
    assert found["cpcmon_evaluation_gap_seconds{model=density}"] == 60
    assert found["cpcmon_evaluation_gap_seconds{model=triage}"] == 86_400
    assert found["cpcmon_model_shared{model=density}"] == 0
    shared = replace(reports.facts(), config=reports.shared_config())
    assert samples(Telemetry(lambda: shared).page())["cpcmon_model_shared{model=density}"] == 1


def test_without_unread_data_there_is_no_age(telemetry: Telemetry) -> None:
    found = samples(telemetry.page())
    assert found["cpcmon_source_oldest_unread_timestamp_seconds{source=results}"] == reports.NOW - 30.0
    assert "cpcmon_source_oldest_unread_timestamp_seconds{source=late}" not in found
    assert found["cpcmon_source_ready{source=late}"] == 0
    assert found["cpcmon_source_lag_bytes{source=results}"] == 4096


def test_deliveries_that_are_not_configured_have_no_series() -> None:
    """A 0 would look like a webhook without messages."""
    facts = replace(reports.facts(), webhook=None, heartbeat=None)
    found = families(Telemetry(lambda: facts).page())
    assert not [name for name in found if "webhook" in name or "heartbeat" in name]


def test_a_part_that_fails_is_counted_and_the_others_stay(caplog: pytest.LogCaptureFixture) -> None:

    def fails() -> DaemonFacts:
        raise RuntimeError("no facts")

    telemetry = Telemetry(fails)
    telemetry.configured(("density",))
    with caplog.at_level(logging.ERROR, "cpcmon"):
        found = samples(telemetry.page())
    assert found["cpcmon_telemetry_errors{}"] == 1
    assert found["cpcmon_evaluations_total{model=density}"] == 0
    assert "process_resident_memory_bytes{}" in found
    assert "cpcmon_ready{}" not in found
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def _read_strictly(page: bytes) -> Iterable[Metric]:
    found: Iterable[Metric] = text_string_to_metric_families(page.decode())  # type: ignore[no-untyped-call]
    return found


def test_openmetrics_has_the_same_values_and_ends_once(telemetry: Telemetry) -> None:
    """Read strictly, with the part of the reports."""
    sink = PrometheusSink()
    sink.publish(reports.full())
    page = bytes(sink.page()) + telemetry.page(openmetrics=True)
    assert page.count(b"# EOF") == 1
    found = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in _read_strictly(page)
        for sample in family.samples
        if not sample.name.startswith("process_") and not sample.name.endswith("_created")
    }
    expected = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in prometheus_client.parser.text_string_to_metric_families(
            (bytes(sink.page()) + telemetry.page()).decode()
        )
        for sample in family.samples
        if not sample.name.startswith("process_")
    }
    assert found == expected


def test_openmetrics_says_since_when_a_counter_counts_unless_the_state_keeps_it(telemetry: Telemetry) -> None:
    """A counter that was restored began with an earlier process."""
    before = time.time()
    page = telemetry.page(openmetrics=True)
    created = {
        sample.name: sample.value
        for family in _read_strictly(page)
        for sample in family.samples
        if sample.name.endswith("_created")
    }
    assert before - 60.0 < created["cpcmon_evaluations_created"] <= before
    assert "cpcmon_tick_duration_seconds_created" in created
    assert "cpcmon_records_created" not in created


def test_the_text_format_has_no_created_series(telemetry: Telemetry) -> None:
    """The default registry of the library is not changed."""
    telemetry.evaluated("density", 0.1)
    assert b"_created" not in telemetry.page()
    assert b"cpcmon" not in prometheus_client.generate_latest()
    assert b"_created" in prometheus_client.generate_latest(_fresh_registry())


def _fresh_registry() -> prometheus_client.CollectorRegistry:
    registry = prometheus_client.CollectorRegistry()
    prometheus_client.Counter("others", "Of another library.", registry=registry).inc()
    return registry


def test_a_source_has_the_events_of_its_type_only(telemetry: Telemetry) -> None:
    found = samples(telemetry.page())
    assert "cpcmon_source_events_total{event=rebalances,source=results}" not in found
    assert "cpcmon_source_events_total{event=files_truncated,source=stream}" not in found


def test_without_kafka_there_are_no_kafka_series() -> None:
    facts = replace(reports.facts(), sources={"results": SourceStatus("results", "directory")})
    assert not [name for name in families(Telemetry(lambda: facts).page()) if "kafka" in name]


def test_partitions_with_the_largest_lag_are_exported_and_all_are_summed() -> None:
    """It limits the size of the page."""
    lags = {f"predictions/{number}": ShardLag(number, number / 10.0) for number in range(1000)}
    stream = SourceStatus("stream", "kafka", shards=ShardStatus(lags, 1000))
    facts = replace(reports.facts(), sources={"stream": stream})
    found = samples(Telemetry(lambda: facts).page())
    shown = {
        series: value for series, value in found.items() if series.startswith("cpcmon_kafka_partition_lag_records")
    }
    assert len(shown) == 100
    assert min(shown.values()) == 900
    assert found["cpcmon_kafka_lag_records{source=stream}"] == sum(range(1000))
    assert found["cpcmon_kafka_lag_seconds{source=stream}"] == 99.9


def test_every_kind_of_kafka_failure_has_a_series(telemetry: Telemetry) -> None:
    found = samples(telemetry.page())
    shown = {kind: found[f"cpcmon_kafka_poll_errors_total{{source=stream,type={kind}}}"] for kind in FailureKind}
    assert shown == dict.fromkeys(FailureKind, 0.0) | {FailureKind.UNREACHABLE: 2.0}


def test_before_the_state_is_read_no_loss_is_exported() -> None:
    """A jump from 0 to the stored value would look like a loss."""
    facts = replace(reports.facts(), counters=None)
    found = families(Telemetry(lambda: facts).page())
    assert "cpcmon_kafka_records_lost_total" not in found
    assert "cpcmon_kafka_lag_records" in found
