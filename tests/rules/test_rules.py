"""The rules of a configuration, by the real promtool."""

import math
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from apscheduler.triggers.cron import CronTrigger

from monitor.config.config import Config, Cron, Every, Links, ModelConfig, Storage
from monitor.core.alerts import AlertRule, AlertType, Severity
from monitor.evaluation.crontab import longest_gap_seconds, shortest_gap_seconds
from monitor.rules.rule_file import alert_name, rule_file
from tests.rules.rule_tests import Rules
from tests.sinks import reports

TARGET = 'job="cpcmon",instance="a"'
UP = {f"up{{{TARGET}}}": "1x120"}
EVALUATED = {f'cpcmon_last_evaluation_timestamp_seconds{{{TARGET},model="density"}}': "0+60x120"} | {
    f'cpcmon_last_evaluation_timestamp_seconds{{{TARGET},model="triage"}}': "0+60x120"
}
WELL = UP | EVALUATED
"""A daemon that is scraped, and evaluates every minute, for two hours."""


def _alert(segment: str = "all", severity: str = "critical", name: str = "accuracy_low", series: str = "firing") -> str:
    labels = f'{TARGET},model="density",segment="{segment}",alert="{name}",severity="{severity}"'
    return f"cpcmon_alert_{series}{{{labels}}}"


FIELD = [("lower", "0.8", 0.65), ("upper", "0.8", 0.8), ("lower", "0.9", 0.6), ("upper", "0.9", 0.85)]


def _field(end: str, level: str) -> str:
    of = f'{TARGET},model="density",segment="all",level="{level}"'
    return f"cpcmon_estimated_accuracy_field_{end}_ratio{{{of}}}"


def _accuracy(bound: str = "") -> str:
    return f'cpcmon_estimated_accuracy_{bound}ratio{{{TARGET},model="density",segment="all",estimator="adaptive"}}'


@pytest.fixture
def rules(promtool: Path, tmp_path: Path) -> Rules:
    """The rules of a configuration with an alert of each type."""
    return Rules(promtool, tmp_path, reports.config())


def test_promtool_lint_finds_nothing(rules: Rules) -> None:
    """Also with two models that have alerts of the same name, and with special characters in names."""
    special = ModelConfig('mod"el\\ {{ x }}\n', None, alerts=reports.config().models[0].alerts)
    config = replace(rules.config, models=(*rules.config.models, special), links=Links('special": \\ {{ y }}'))
    assert replace(rules, config=config).check() == ""


def test_the_smallest_configuration_has_rules(rules: Rules) -> None:
    """A model without alerts still has rules on its evaluation."""
    config = Config(Storage(Path("state")), (), (ModelConfig("density", None),))
    assert replace(rules, config=config).check() == ""
    assert "CpcmonEvaluationStale" in rule_file(config)


def test_segments_fire_separately(rules: Rules) -> None:
    series = WELL | {_alert("site=A"): "1x60", _alert("site=B"): "1x60", _alert("all"): "0x60"}
    (found,) = rules.firing(series, 10)
    assert found == {"CpcmonAccuracyLow": 2, "CpcmonWatchdog": 1}


@pytest.mark.parametrize(
    ("shape", "fires"),
    [
        pytest.param("0x5 1x20", True, id="fires"),
        pytest.param("1x5 0x20", False, id="recovered"),
        pytest.param("1x5 stale _x3 1x20", True, id="a gap before"),
        pytest.param("1x11 stale _x9", True, id="during a restart of five minutes"),
        pytest.param("1x14 stale _x9", True, id="one failed scrape"),
        pytest.param("0x11 stale _x9", False, id="a gap does not fire"),
        pytest.param("1x11 stale _x3 0x20", False, id="recovered after the restart"),
    ],
)
def test_e16_a_gap_neither_fires_nor_resolves(rules: Rules, shape: str, fires: bool) -> None:  # noqa: FBT001
    """At minute 16."""
    (found,) = rules.firing(WELL | {_alert(): shape}, 16)
    assert ("CpcmonAccuracyLow" in found) == fires


def test_e16_a_gap_ends_after_a_while(rules: Rules) -> None:
    """By then CpcmonDown fires."""
    series = {_alert(): "1x10", f"up{{{TARGET}}}": "1x10 0x50"} | EVALUATED
    before, after = rules.firing(series, 24, 27)
    assert before["CpcmonAccuracyLow"] == 1
    assert after["CpcmonAccuracyLow"] == 0
    assert before["CpcmonDown"] == after["CpcmonDown"] == 1


@pytest.mark.parametrize(
    "shape", [pytest.param("0.7x10 NaN NaN NaN NaN NaN NaN NaN", id="NaN"), pytest.param("0.7x10 stale", id="absent")]
)
def test_e16_an_estimate_that_vanishes_does_not_resolve(rules: Rules, shape: str) -> None:
    """The daemon holds the alert; only the description reads the estimate."""
    series = WELL | {_accuracy(): shape, _alert(): "1x60", _alert(series="held"): "0x10 1x50"}
    (found,) = rules.firing(series, 15)
    assert found["CpcmonAccuracyLow"] == 1
    assert "It cannot be evaluated now" in rules.described(series, 15, "CpcmonAccuracyLow")


def test_e16_nan_in_one_segment_does_not_affect_the_others(rules: Rules) -> None:
    series = WELL | {_alert("site=A"): "1x60", _alert("site=B"): "0x5 NaN NaN NaN NaN NaN NaN NaN NaN NaN NaN"}
    (found,) = rules.firing(series, 12)
    assert found["CpcmonAccuracyLow"] == 1


def test_e16_a_frozen_value_fires(rules: Rules) -> None:
    """The page is still served with old values; the alert fires after five minutes and five more."""
    frozen = f'cpcmon_last_evaluation_timestamp_seconds{{{TARGET},model="density"}}'
    series = WELL | {frozen: "0+60x10 600x100", _alert(): "0x120"}
    before, after = rules.firing(series, 15, 22)
    assert before["CpcmonEvaluationStale"] == 0
    assert after["CpcmonEvaluationStale"] == 1


def test_e16_a_model_that_was_never_evaluated_fires(rules: Rules) -> None:
    """Its series are absent."""
    (found,) = rules.firing(UP | {name: values for name, values in EVALUATED.items() if "triage" in name}, 10)
    assert found["CpcmonEvaluationStale"] == 1


@pytest.mark.parametrize(
    ("up", "fires"),
    [
        pytest.param({f"up{{{TARGET}}}": "1x5 0x60"}, True, id="down"),
        pytest.param({}, True, id="never configured"),
        pytest.param({f"up{{{TARGET}}}": "1x5 stale"}, True, id="removed from the configuration"),
        pytest.param({'up{job="other"}': "1x60"}, True, id="only others are scraped"),
        pytest.param({f"up{{{TARGET}}}": "1x5 0x3 1x60"}, False, id="a restart"),
    ],
)
def test_e16_down_fires_and_a_restart_does_not(rules: Rules, up: dict[str, str], fires: bool) -> None:  # noqa: FBT001
    """At minute 12."""
    (found,) = rules.firing(EVALUATED | up, 12)
    assert ("CpcmonDown" in found) == fires


def test_a_removed_target_is_down_with_its_own_labels(rules: Rules) -> None:
    """Inhibition of its other alerts, which end after a quarter of an hour, needs them."""
    gone = EVALUATED | {f"up{{{TARGET}}}": "1x5 stale", _alert(): "1x5 stale"}
    for minute in (11, 18, 25, 50):
        assert 'instance="a", job="cpcmon"' in rules.described(gone, minute, "CpcmonDown")
    assert [found["CpcmonAccuracyLow"] for found in rules.firing(gone, 18, 25)] == [1, 0]
    moved = {f"up{{{TARGET}}}": "1x5 stale", 'up{job="cpcmon",instance="b"}': "_x8 1x60"}
    assert [found["CpcmonDown"] for found in rules.firing(EVALUATED | moved, 7, 12, 20, 40)] == [0, 0, 0, 0]


def test_another_job_can_be_named(rules: Rules) -> None:
    """For several daemons with one Prometheus."""
    assert 'up{job=~\\"monitor-east\\"} == 0' in rule_file(rules.config, "monitor-east")
    assert ".*cpcmon.*" not in rule_file(rules.config, "monitor-east")


@pytest.mark.parametrize("config", [reports.config(), reports.shared_config()], ids=["alone", "replicas"])
def test_daemons_with_models_of_the_same_name_are_separate(rules: Rules, config: Config) -> None:
    """With a job and a rule file each."""
    east = replace(rules, config=config, text=rule_file(config, "east"))
    assert east.check() == ""
    own = {name.replace('job="cpcmon"', 'job="east"'): values for name, values in WELL.items()}
    neighbour = WELL | {
        _alert(): "1x60",
        _alert(name="silent"): "1x60",
        f'cpcmon_estimate_valid{{{TARGET},model="density",segment="all"}}': "0x60",
        f'cpcmon_evaluation_failures_total{{{TARGET},model="density"}}': "0+1x60",
    }
    assert east.firing(own | neighbour, 40) == [{"CpcmonWatchdog": 1}]
    never = {name: values for name, values in own.items() if "last_evaluation" not in name}
    assert east.firing(never | neighbour, 40) == [{"CpcmonEvaluationStale": 2, "CpcmonWatchdog": 1}]
    fallen = {name.replace('job="cpcmon"', 'job="east"'): values for name, values in neighbour.items()}
    assert {"CpcmonSilent", "CpcmonEvaluationFailing"} <= set(east.firing(fallen, 40)[0])


_DAMAGED = ('cpcmon_state_recovered_total{from="empty",', "cpcmon_state_damaged_chunks_total{")


@pytest.mark.parametrize(
    ("shapes", "fires"),
    [
        # Down for longer than an hour. An empty state counts from 0.
        pytest.param({"a": "0x5 _x90 1x60", "b": "3x5 _x90 1x60"}, True, id="damaged"),
        # Long ago. Deleted on purpose.
        pytest.param({"a": "1x5 _x90 1x60", "b": "1x5 _x90 0x60"}, False, id="not damaged"),
    ],
)
def test_a_damaged_state_is_reported_after_a_long_downtime(rules: Rules, shapes: dict[str, str], fires: bool) -> None:  # noqa: FBT001
    """A power cut may last longer than the range of the rule."""
    series = {f'{one}instance="{name}{len(one)}"}}': shape for one in _DAMAGED for name, shape in shapes.items()}
    for found in rules.firing(series, 98, 155):
        assert found["CpcmonStateRecovered"] == (4 if fires else 0)


def test_a_damaged_state_is_reported_for_an_hour(rules: Rules) -> None:
    (found,) = rules.firing({'cpcmon_state_recovered_total{from="empty"}': "0x5 _x90 1x120"}, 165)
    assert found["CpcmonStateRecovered"] == 0


@pytest.mark.parametrize(
    ("when", "evaluated", "failing", "fires"),
    [
        pytest.param(Every(3600.0), "0x59 1x59 2x59 3x59", "0x59 1x59 2x59 3x59", True, id="every hour"),
        pytest.param(Cron("0 6 * * *"), "0x59 1x180", "0x59 1x180", True, id="every night"),
        pytest.param(Cron("* 8-18 * * mon-fri"), "0+1x240", "0x59 1x180", False, id="one of many"),
        pytest.param(Cron("* 8-18 * * mon-fri"), "0+1x240", "0x59 1+1x180", True, id="all of a working day"),
    ],
)
def test_failures_are_reported_for_any_schedule(
    rules: Rules,
    when: Every | Cron,
    evaluated: str,
    failing: str,
    fires: bool,  # noqa: FBT001
) -> None:
    """Also for one evaluation a night: of a model whose evaluations fail, and of one whose estimator fails."""
    models = tuple(ModelConfig(name, None, evaluate=when) for name in ("density", "triage"))
    series = {
        'cpcmon_evaluation_failures_total{model="density"}': failing,
        'cpcmon_estimator_failures_total{model="triage",estimator="ac"}': failing,
        **{f'cpcmon_evaluations_total{{model="{model.name}"}}': evaluated for model in models},
    }
    (found,) = replace(rules, config=replace(rules.config, models=models)).firing(series, 170)
    assert found["CpcmonEvaluationFailing"] == (2 if fires else 0)


def test_e1_a_warming_window_is_not_reported_as_invalid(rules: Rules) -> None:
    """It is no fault, and every new segment would fire."""
    state = f'cpcmon_window_state{{{TARGET},model="density",segment="site=A",state="warming"}}'
    series = WELL | {f'cpcmon_estimate_valid{{{TARGET},model="density",segment="site=A"}}': "0x120", state: "1x120"}
    (found,) = rules.firing(series, 60)
    assert set(found) == {"CpcmonWatchdog"}


@pytest.mark.parametrize("state", ["catching_up", "version_mismatch", "no_reference", "degraded_input"])
def test_a_fault_of_the_model_is_not_repeated_for_each_segment(rules: Rules, state: str) -> None:
    """It has an alert of its own."""
    window = f'{TARGET},model="density",segment="site=A"'
    series = {f"cpcmon_estimate_valid{{{window}}}": "0x60", f'cpcmon_window_state{{{window},state="{state}"}}': "1x60"}
    (found,) = rules.firing(WELL | series, 45)
    assert set(found) == {"CpcmonWatchdog"}


def test_a_configured_alert_on_degraded_input_replaces_the_built_in_one(rules: Rules) -> None:
    (found,) = rules.firing(WELL | {'cpcmon_input_degraded{model="density"}': "1x60"}, 30)
    assert set(found) == {"CpcmonWatchdog"}


def test_a_firing_alert_survives_a_change_of_severity(rules: Rules) -> None:
    """Prometheus rejects a rule that yields the same alert twice."""
    series = WELL | {_alert(severity="warning"): "1x10 stale", _alert(severity="critical"): "_x10 1x60"}
    (found,) = rules.firing(series, 15)
    assert found["CpcmonAccuracyLow"] == 1


def test_a_notification_has_the_numbers_of_its_window(rules: Rules) -> None:
    """In the summary those for a pager's title. All with one decimal, and times that people read."""
    series = WELL | {
        _alert(): "1x60",
        _accuracy(): "0.742x60",
        _accuracy("lower_"): "0.71x60",
        _accuracy("upper_"): "0.77x60",
        **{_field(end, level): f"{value}x60" for end, level, value in FIELD},
        f'cpcmon_window_records{{{TARGET},model="density",segment="all"}}': "1000x60",
        f'cpcmon_baseline_records{{{TARGET},model="density",segment="all",kind="own"}}': "2000x60",
        f'cpcmon_baseline_accuracy_ratio{{{TARGET},model="density",segment="all",kind="own"}}': "0.893x60",
        _alert(series="since_timestamp_seconds"): "300x60",
    }
    output = rules.described(series, 10, "CpcmonAccuracyLow")
    assert 'summary="density, all records: estimated accuracy 74.2%, was 89.3%"' in output
    assert 'segment="all"' in output
    assert 'severity="critical"' in output
    assert (
        "density, all: estimated accuracy 74.2% by adaptive, interval 71.0% to 77.0%, of 1000 records, field interval 60.0% to"
        " 85.0% (in the real shifts we tried, about nine in ten accuracies lay inside). Its upper bound stayed below 80.0%"
        " for 30m and over enough new records. Baseline: 89.3%, its own first 2000 records, without labels."
        " Firing since 1970-01-01 00:05 UTC, for 5m 0s. Notify" in output
    )
    assert 'runbook_url="https://runbooks.example/cpcmon/accuracy.md"' in output
    assert "cannot be evaluated" not in output


def test_a_description_names_the_consensus_of_an_old_reference(rules: Rules) -> None:
    series = WELL | {_alert(): "1x60", _accuracy().replace("adaptive", "consensus"): "0.742x60"}
    output = rules.described(series, 10, "CpcmonAccuracyLow")
    assert "estimated accuracy 74.2% by consensus, since the reference is of an older version. Its upper" in output


def _window(name: str, more: str = "") -> str:
    return f'{name}{{{TARGET},model="density",segment="site=A,scanner=2"{more}}}'


def _of_change(name: str, direction: str) -> str:
    return _window(f"cpcmon_change_{name}", f',direction="{direction}"')


@pytest.mark.parametrize(("alert", "direction", "did"), [("dropped", "down", "dropped"), ("rose", "up", "risen")])
def test_a_change_is_described_with_its_evidence_and_when_it_began(
    rules: Rules, alert: str, direction: str, did: str
) -> None:
    """And the estimate of the window. The series of the other direction are of no use. Without series it reads well too."""
    fired = {_alert("site=A,scanner=2", name=alert): "1x60"}
    name = alert_name(alert)
    other = {_of_change(one, "up" if direction == "down" else "down"): "1x60" for one in ("evidence", "started")}
    alone = rules.described(WELL | fired | other, 10, name)
    assert re.search(rf'description="density, site=A,scanner=2: the accuracy has {did}\. (Ask|Check)', alone), alone
    series = {
        _of_change("evidence", direction): "8.2468x60",
        _of_change("evidence_threshold", direction): "7.1x60",
        _of_change("started_timestamp_seconds", direction): f"{reports.NOW:.0f}x60",
        _of_change("records_since_start", direction): "340x60",
        _window("cpcmon_estimated_accuracy_ratio", ',estimator="adaptive"'): "0.842x60",
        _window("cpcmon_estimated_accuracy_lower_ratio", ',estimator="adaptive"'): "0.8x60",
        _window("cpcmon_estimated_accuracy_upper_ratio", ',estimator="adaptive"'): "0.88x60",
        _window("cpcmon_baseline_records", ',kind="own"'): "2000x60",
        _window("cpcmon_baseline_accuracy_ratio", ',kind="own"'): "0.8934x60",
        _window("cpcmon_window_records"): "500x60",
        _window("cpcmon_alert_since_timestamp_seconds", f',alert="{alert}"'): f"{reports.NOW + 60:.0f}x60",
    }
    output = rules.described(WELL | fired | other | series, 10, name)
    noun = "drop" if direction == "down" else "rise"
    assert (
        f'summary="density, A 2: estimated accuracy 84.2%, was 89.3%, {noun} began about 2025-10-09 08:53 UTC"'
        in output
    )
    assert (
        f"the accuracy has {did}: evidence 10^8.2, budget 10^7.1. It began about 2025-10-09 08:53 UTC, 340 records ago. The"
        " estimate of the window, which also holds older records, is 84.2%, interval 80.0% to 88.0%, of 500 records."
        " Baseline: 89.3%, its own first 2000 records, without labels." in output
    )
    assert "change.md" in output
    # The drop is over, and its evidence gone: what is there now began later, and is not what fired.
    output = rules.described(
        WELL | fired | series | {_of_change("started_timestamp_seconds", direction): "2e9x60"}, 10, name
    )
    assert "began" not in output


@pytest.mark.parametrize(
    ("segment", "labels"),
    [
        ("all", {}),
        ("site=A", {"segment_1": "site=A"}),
        ("site=,scanner=2", {"segment_1": "site=", "segment_2": "site=,scanner=2"}),
        (
            "site=St. Ann,unit=x y,scanner=2,coil=1",
            {
                "segment_1": "site=St. Ann",
                "segment_2": "site=St. Ann,unit=x y",
                "segment_3": "site=St. Ann,unit=x y,scanner=2",
            },
        ),
        ("site=A,B,scanner=2~0a1b2c3d", {}),
    ],
)
def test_a_change_is_labelled_with_the_segments_that_contain_it(
    rules: Rules, segment: str, labels: dict[str, str]
) -> None:
    """For Alertmanager, which has no prefixes. In odd names a comma may not separate anything."""
    output = rules.described(WELL | {_alert(segment, name="dropped"): "1x60"}, 10, "CpcmonDropped")
    assert 'direction="down"' in output
    assert dict(re.findall(r'(segment_\d)="([^"]*)"', output)) == labels


def test_a_drift_is_described_with_its_limit(rules: Rules) -> None:
    """And only the measures that are known."""
    drifted = AlertRule("drifted", kind=AlertType.OUTPUT_DRIFT)
    config = replace(rules.config, models=(ModelConfig("density", None, alerts=(drifted,)),))
    fired = _alert(severity="warning").replace("accuracy_low", "drifted")
    measured = f'{{{TARGET},model="density",segment="all",measure="class_mix"}}'
    series = {
        fired: "1x60",
        f"cpcmon_output_drift{measured}": "0.324x60",
        f"cpcmon_output_drift_limit{measured}": "0.16x60",
    }
    output = replace(rules, config=config).described(series, 10, "CpcmonDrifted")
    assert (
        'summary="density, all records: the model answers differently than it did: class_mix 0.32 from its baseline"'
        in output
    )
    assert "than it did. The mix of predicted classes is 0.32 from its baseline. Its limit is 0.16. Do not" in output


def test_a_description_has_the_threshold_of_a_drop(rules: Rules) -> None:
    dropped = AlertRule("accuracy_low", drop=0.05)
    config = replace(rules.config, models=(ModelConfig("density", None, alerts=(dropped,)),))
    series = {_alert(severity="warning"): "1x60"}
    of_threshold = _alert(severity="warning").replace(
        "cpcmon_alert_firing{", 'cpcmon_accuracy_threshold_ratio{estimator="adaptive",'
    )
    records = f'cpcmon_baseline_records{{{TARGET},model="density",segment="all",kind="own"}}'
    bare, numbered = (
        replace(rules, config=config).described(one, 10, "CpcmonAccuracyLow")
        for one in (series, series | {of_threshold: "0.8428x60", records: "2000x60"})
    )
    assert "stayed below its baseline minus 5 points, for 30m" in bare
    assert "stayed below 84.3%, its baseline minus 5 points, for 30m" in numbered
    assert "enough new records. Baseline: its own first 2000 records, without labels. Notify" in numbered


def test_the_share_of_rejected_records_is_0_when_records_look_wrong(rules: Rules) -> None:
    """A constant output is degraded input without rejections."""
    share = f'cpcmon_input_rejected_ratio{{{TARGET},model="density"}}'
    output = rules.described(WELL | {_alert(name="refused"): "1x60", share: "0x60"}, 10, "CpcmonRefused")
    assert "recent records are rejected or look wrong (rejected: 0.0%)" in output


def test_records_that_look_wrong_fire_one_alert(rules: Rules) -> None:
    special = {f'cpcmon_input_{one}{{{TARGET},model="triage"}}': "1x60" for one in ("constant", "degraded")}
    (found,) = rules.firing(WELL | special, 30)
    assert found == {"CpcmonInputDegraded": 1, "CpcmonWatchdog": 1}


@pytest.mark.parametrize(
    "name",
    [
        "accuracy_low",
        "accuracy_high",
        "apart",
        "silent",
        "refused",
        "missed",
        "flawless",
        "drifted",
        "new_site",
        "audited_low",
        "audited_high",
    ],
)
def test_texts_read_well_without_series(rules: Rules, name: str) -> None:
    """A template that fails would become an error message."""
    output = rules.described(WELL | {_alert(name=name): "1x60"}, 10, alert_name(name))
    assert re.search(r'summary="density, all records: [^"{}<>]+"', output), output
    assert re.search(r'description="density, all: [^"{}<>]+\."', output), output


def test_a_description_names_the_metric_and_its_numbers(rules: Rules) -> None:
    """Of the class that the alert compares, not of another one, nor of the macro average."""
    of_b, of_all = (f'{TARGET},model="density",segment="all",metric="sensitivity",class="{one}"' for one in ("b", ""))
    series = {
        f"cpcmon_estimated_performance_ratio{{{of_b}}}": "0.7x60",
        f"cpcmon_estimated_performance_ratio{{{of_all}}}": "0.9x60",
        f"cpcmon_estimated_performance_lower_ratio{{{of_b}}}": "0.6x60",
        f"cpcmon_estimated_performance_upper_ratio{{{of_b}}}": "0.74x60",
        f'cpcmon_performance_threshold_ratio{{{of_b},alert="missed",severity="warning"}}': "0.75x60",
    }
    output = rules.described(WELL | series | {_alert(name="missed"): "1x60"}, 10, "CpcmonMissed")
    assert 'summary="density, all records: estimated sensitivity of b 70.0%, threshold 75.0%"' in output
    assert (
        "density, all: estimated sensitivity of b 70.0%, interval 60.0% to 74.0%. Its upper bound stayed below 75.0%,"
        " the reference's value minus 5 points, for 30m and over enough new records."
    ) in output


def test_each_replica_alerts_on_a_metric_of_its_own_records(rules: Rules) -> None:
    """The metrics of two replicas do not add up."""
    other = TARGET.replace('"a"', '"b"')
    firing = [_alert(name="missed"), _alert(name="missed").replace(TARGET, other)]
    shared = replace(rules, config=reports.shared_config())
    (found,) = shared.firing(WELL | {firing[0]: "1x60", firing[1]: "1x60"}, 10)
    assert found["CpcmonMissed"] == 2
    assert "density, all, one replica (a): " in shared.described(WELL | {firing[0]: "1x60"}, 10, "CpcmonMissed")


def test_an_audited_accuracy_is_described_as_such_and_each_replica_has_its_own(rules: Rules) -> None:
    """With the labels that it rests on, over the horizon."""
    of_window = f'{TARGET},model="density",segment="all"'
    series = {
        f'cpcmon_audited_accuracy_ratio{{{of_window},scope="horizon"}}': "0.712x60",
        f'cpcmon_audited_accuracy_ratio{{{of_window},scope="window"}}': "0.9x60",
        f'cpcmon_audited_accuracy_lower_ratio{{{of_window},scope="horizon"}}': "0.68x60",
        f'cpcmon_audited_accuracy_upper_ratio{{{of_window},scope="horizon"}}': "0.74x60",
        f'cpcmon_audited_labels{{{of_window},scope="horizon"}}': "310x60",
        f"cpcmon_audit_labels_ratio{{{of_window}}}": "0.96x60",
    }
    other = TARGET.replace('"a"', '"b"')
    firing = [_alert(name="audited_low"), _alert(name="audited_low").replace(TARGET, other)]
    shared = replace(rules, config=reports.shared_config())
    (found,) = shared.firing(WELL | {firing[0]: "1x60", firing[1]: "1x60"}, 10)
    assert found["CpcmonAuditedLow"] == 2
    output = shared.described(WELL | series | {firing[0]: "1x60"}, 10, "CpcmonAuditedLow")
    assert 'summary="density, all records: audited accuracy 71.2%, threshold 75.0%"' in output
    assert (
        "density, all, one replica (a): audited accuracy 71.2%, interval 68.0% to 74.0%, from 310 labels (96.0% of the audited"
        " records). Its upper bound stayed below 75.0% for 30m."
    ) in output
    assert "estimated accuracy" not in output


def test_wrong_estimates_are_described_with_both_numbers(rules: Rules) -> None:
    of_window = f'{TARGET},model="density",segment="all"'
    series = {
        f"cpcmon_estimates_wrong{{{of_window}}}": "1x60",
        f'cpcmon_track_record_latest_realised_ratio{{{of_window},kind="audited"}}': "0.7123x60",
        f"cpcmon_track_record_latest_estimated_ratio{{{of_window}}}": "0.8449x60",
        f"cpcmon_track_record_latest_timestamp_seconds{{{of_window}}}": "86400x60",
    }
    output = rules.described(WELL | series, 20, "CpcmonEstimatesWrong")
    numbers = "the estimates were wrong{}, labels say 71.2%, the estimate said 84.5%"
    assert f'summary="density, all records: {numbers.format("")}"' in output
    assert (
        numbers.format(" by more than their intervals") + ", in the latest judged block, until 1970-01-02 00:00 UTC"
        in output
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("accuracy_low", "CpcmonAccuracyLow"),
        ("silent", "CpcmonSilent"),
        ("below-80.percent", "CpcmonBelow80Percent"),
        ("lowA", "CpcmonLowA"),
    ],
)
def test_alert_names_are_camel_case(name: str, expected: str) -> None:
    assert alert_name(name) == expected


@pytest.mark.parametrize(
    ("when", "limit"),
    [
        pytest.param(Every(60.0), 300, id="never under five minutes"),
        pytest.param(Every(3600.0), 7200, id="two periods"),
        pytest.param(Cron("0 3 * * *"), 2 * 86400, id="daily"),
        pytest.param(Cron("*/5 8-17 * * 0-4"), 2 * (2 * 86400 + 14 * 3600 + 300), id="not at weekends"),
    ],
)
def test_staleness_follows_the_schedule(when: Every | Cron, limit: int) -> None:
    """A model that is evaluated once a day is not stale at noon."""
    config = Config(Storage(Path("state")), (), (ModelConfig("density", None, evaluate=when),))
    assert f'{{model=\\"density\\"}}[4m]) > {limit} or' in rule_file(config)


@pytest.mark.parametrize(
    "line",
    ["* * * * *", "*/5 * * * *", "*/7 * * * *", "0 3 * * *", "30 8,12,18 * * mon-fri", "0 0 1 * *", "5 0 29 feb *",
     "0-30/10 6 * * sat,sun", "0 9 * jun-aug *", "10/20 * * * *", "0 6 last * *"],
)  # fmt: skip
def test_the_longest_and_shortest_gap_of_a_crontab_line_are_those_of_apscheduler(line: str) -> None:
    """Over eight years, or the first three thousand runs."""
    trigger = CronTrigger.from_crontab(line, timezone=UTC)
    at = trigger.get_next_fire_time(None, datetime(2024, 1, 1, tzinfo=UTC))
    longest, shortest = 0.0, math.inf
    for _ in range(3_000):
        assert at is not None
        later = trigger.get_next_fire_time(at, at + timedelta(seconds=1))
        if later is None or later > datetime(2031, 12, 31, tzinfo=UTC):
            break
        gap, at = (later - at).total_seconds(), later
        longest, shortest = max(longest, gap), min(shortest, gap)
    assert longest_gap_seconds(Cron(line)) == longest
    assert shortest_gap_seconds(line) == shortest


def test_severities_are_the_usual_three() -> None:
    """Every alert has one."""
    text = rule_file(reports.config())
    severities = re.findall(r'^ +severity: "(\w+)"$', text, re.MULTILINE)
    assert len(severities) == text.count("- alert: ")
    assert set(severities) <= set(Severity)


def test_a_summary_names_what_it_is_about() -> None:
    """The model and segment, the source, or the daemon; but for the alert that always fires."""
    summaries = re.findall(r'^ +summary: "(.+)"$', rule_file(reports.shared_config()), re.MULTILINE)
    assert [one for one in summaries if "{{ $labels." not in one and "{{ with $labels." not in one] == [
        "Alerts of cpcmon are delivered"
    ]


def test_every_alert_has_a_runbook() -> None:
    """And every runbook an alert."""
    folder = Path(__file__).resolve().parents[2] / "docs" / "runbooks"
    linked = set(re.findall(r'runbook_url: "https://runbooks.example/cpcmon/(.+)"', rule_file(reports.shared_config())))
    assert linked == {path.name for path in folder.glob("*.md")}


def test_every_alert_type_has_a_rule() -> None:
    assert {rule.kind for rule in reports.config().models[0].alerts} == set(AlertType)


@pytest.mark.parametrize(
    ("line", "days"), [("0 3 * * 7", 7), ("0 3 * * 0", 7), ("0 3 * * 1-5", 3), ("0 3 * * 0-4", 3), ("0 3 29 2 *", 1461)]
)
def test_the_longest_gap_counts_days_of_the_week_as_cron_does(line: str, days: int) -> None:
    """0 and 7 are Sunday."""
    assert longest_gap_seconds(Cron(line)) == days * 86_400.0
