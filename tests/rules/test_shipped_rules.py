"""The shipped rules, which work for any configuration, by the real promtool."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from deploy.prometheus.build_rules import RULES, build
from tests.rules.rule_tests import Rules
from tests.sinks import reports

INFO = {"accuracy_low": "accuracy_low", "silent": "silent", "apart": "disagreement", "refused": "degraded_input"}
FIRING = {
    "CpcmonAccuracyLow": "accuracy_low",
    "CpcmonSegmentSilent": "silent",
    "CpcmonDisagreementHigh": "apart",
    "CpcmonInputRefused": "refused",
}


_GAUGES = ("kafka_assigned_partitions", "source_ready", "config_last_reload_successful")


def _daemon(instance: str, *, shared: int = 0) -> dict[str, str]:
    target = f'job="cpcmon",instance="{instance}"'
    shown = {
        f"up{{{target}}}": "1x120",
        f'cpcmon_last_evaluation_timestamp_seconds{{{target},model="density"}}': "0+60x120",
        f'cpcmon_evaluation_gap_seconds{{{target},model="density"}}': "60x120",
        f'cpcmon_model_shared{{{target},model="density"}}': f"{shared}x120",
    }
    for alert, kind in INFO.items():
        on = ',on="upper"' if kind == "accuracy_low" else ""
        shown[f'cpcmon_alert_info{{{target},model="density",alert="{alert}",kind="{kind}"{on}}}'] = "1x120"
    return shown


def _firing(instance: str, alert: str = "accuracy_low", segment: str = "all", severity: str = "critical") -> str:
    labels = f'job="cpcmon",instance="{instance}",model="density",segment="{segment}",alert="{alert}"'
    return f'cpcmon_alert_firing{{{labels},severity="{severity}"}}'


def _accuracy(bound: str = "", estimator: str = "doc_ts") -> str:
    labels = f'job="cpcmon",instance="a",model="density",segment="all",estimator="{estimator}"'
    return f"cpcmon_estimated_accuracy_{bound}ratio{{{labels}}}"


def _threshold(instance: str, severity: str = "critical") -> str:
    labels = f'job="cpcmon",instance="{instance}",model="density",segment="all",alert="accuracy_low",estimator="doc_ts"'
    return f'cpcmon_accuracy_threshold_ratio{{{labels},severity="{severity}"}}'


@pytest.fixture
def rules(promtool: Path, tmp_path: Path) -> Rules:
    """The file as it is shipped."""
    return Rules(promtool, tmp_path, reports.config(), RULES.read_text())


def test_the_shipped_files_are_up_to_date() -> None:
    """The Prometheus file, the manifest and the chart. If not: `python -m deploy.prometheus.build_rules`."""
    for path, text in build().items():
        assert path.read_text(encoding="utf-8") == text, path


def test_promtool_lint_finds_nothing(promtool: Path) -> None:
    ran = subprocess.run(
        [promtool, "check", "rules", "--lint=all", "--lint-fatal", RULES], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_no_rule_names_a_model_or_a_configured_alert() -> None:
    assert not re.search(r"model=~?\\\"|alert=~?\\\"", re.sub(r'alertname=\\"\w+\\"', "", RULES.read_text()))


@pytest.mark.parametrize("alert", FIRING)
def test_daemons_fire_separately(rules: Rules, alert: str) -> None:
    """A match with several series on both sides would fail the whole rule."""
    series = _daemon("a") | _daemon("b") | {_firing("a", FIRING[alert]): "1x60", _firing("b", FIRING[alert]): "0x60"}
    assert rules.firing(series, 10) == [{alert: 1, "CpcmonWatchdog": 1}]
    both = series | {_firing("b", FIRING[alert]): "1x60"}
    assert rules.firing(both, 10) == [{alert: 2, "CpcmonWatchdog": 1}]


@pytest.mark.parametrize(
    ("shape", "fires"),
    [
        pytest.param("1x5 0x20", False, id="recovered"),
        pytest.param("1x11 stale _x9", True, id="during a restart of five minutes"),
        pytest.param("0x11 stale _x9", False, id="a gap does not fire"),
        pytest.param("1x11 stale _x3 0x20", False, id="recovered after the restart"),
        pytest.param("1x2 stale _x30", True, id="thirteen minutes"),
        pytest.param("1x1 stale _x30", True, id="fourteen minutes"),
        pytest.param("1 stale _x30", False, id="sixteen minutes"),
    ],
)
def test_a_gap_neither_fires_nor_resolves(rules: Rules, shape: str, fires: bool) -> None:  # noqa: FBT001
    """At minute 16. A reported recovery resolves at once."""
    # cpcmon_alert_info has the same gaps.
    known = {name: re.sub(r"\b0x", "1x", shape) if "info" in name else values for name, values in _daemon("a").items()}
    (found,) = rules.firing(known | {_firing("a"): shape}, 16)
    assert ("CpcmonAccuracyLow" in found) == fires


@pytest.mark.parametrize("shape", ["0.7x10 NaN NaN NaN NaN NaN NaN NaN NaN NaN NaN NaN", "0.7x10 stale"])
def test_an_estimate_that_is_nan_or_absent_does_not_resolve(rules: Rules, shape: str) -> None:
    """Only the description reads the estimate."""
    series = _daemon("a") | {_firing("a"): "1x60", _threshold("a"): "0.8x60", _accuracy(): shape}
    assert rules.firing(series, 18) == [{"CpcmonAccuracyLow": 1, "CpcmonWatchdog": 1}]


def test_nan_in_one_segment_does_not_affect_the_others(rules: Rules) -> None:
    series = _daemon("a") | {
        _firing("a", segment="site=A"): "1x60",
        _firing("a", segment="site=B"): "0x5 NaN NaN NaN NaN",
    }
    assert rules.firing(series, 8) == [{"CpcmonAccuracyLow": 1, "CpcmonWatchdog": 1}]


@pytest.mark.parametrize("severity", ["critical", "warning", "info"])
def test_the_severity_is_the_configured_one(rules: Rules, severity: str) -> None:
    output = rules.described(_daemon("a") | {_firing("a", severity=severity): "1x60"}, 10, "CpcmonAccuracyLow")
    assert f'severity="{severity}"' in output
    assert 'alert="accuracy_low"' in output
    assert 'model="density"' in output


def test_a_notification_has_the_estimate_that_the_alert_compares(rules: Rules) -> None:
    """With its interval, threshold and records, what it was, and links where they are set."""
    of_window = 'job="cpcmon",instance="a",model="density",segment="all"'
    series = _daemon("a") | {
        _firing("a"): "1x60",
        _threshold("a"): "0.8x60",
        _accuracy(): "0.742x60",
        _accuracy(estimator="adaptive"): "0.91x60",
        _accuracy("lower_"): "0.71x60",
        _accuracy("upper_"): "0.77x60",
        f"cpcmon_window_records{{{of_window}}}": "1000x60",
        f'cpcmon_baseline_accuracy_ratio{{{of_window},kind="reference"}}': "0.893x60",
        f'cpcmon_baseline_records{{{of_window},kind="reference"}}': "5000x60",
        f'cpcmon_alert_since_timestamp_seconds{{{of_window},alert="accuracy_low"}}': "300x60",
        'cpcmon_links_info{job="cpcmon",instance="a",runbooks="https://wiki.example",dashboard="",page="https://a.example"}': "1x60",
    }
    output = rules.described(series, 10, "CpcmonAccuracyLow")
    assert 'summary="density, all records: estimated accuracy 74.2%, was 89.3%"' in output
    assert (
        "density, all: estimated accuracy 74.2%, interval 71.0% to 77.0%, by doc_ts, of 1000 records. The compared value stayed"
        " below 80.0% for as long as accuracy_low requires. Baseline: 89.3%, the 5000 records of the reference. Firing since"
        " 1970-01-01 00:05 UTC, for 5m 0s." in output
    )
    assert 'runbook_url="https://wiki.example/accuracy.md"' in output
    assert 'page_url="https://a.example/model?name=density&segment=all"' in output
    assert 'dashboard_url=""' in output


@pytest.mark.parametrize(("estimator", "shown"), [("adaptive", True), ("doc_ts", False)])
def test_a_description_has_the_field_interval_of_adaptive(rules: Rules, estimator: str, *, shown: bool) -> None:
    of_field = {
        _accuracy(f"field_{end}_").replace('estimator="doc_ts"', 'level="0.9"'): f"{value}x60"
        for end, value in (("lower", 0.6), ("upper", 0.85))
    }
    threshold = _threshold("a").replace("doc_ts", estimator)
    series = _daemon("a") | of_field | {_firing("a"): "1x60", threshold: "0.8x60"}
    output = rules.described(series, 10, "CpcmonAccuracyLow")
    assert (
        f", by {estimator}, field interval 60.0% to 85.0% (in the real shifts we tried, about nine in ten accuracies lay inside)."
        in output
    ) is shown


@pytest.mark.parametrize("alert", FIRING)
def test_texts_read_well_without_other_series(rules: Rules, alert: str) -> None:
    """A template that fails would become an error message."""
    output = rules.described(_daemon("a") | {_firing("a", FIRING[alert]): "1x60"}, 10, alert)
    assert re.search(r'description="density[^"{}<>]+\."', output), output
    assert re.search(r'summary="density[^"{}<>]+"', output), output


def test_one_bad_value_before_a_shutdown_fires_nothing(rules: Rules) -> None:
    """A replica that is removed first gives up its partitions. The bridging of failed scrapes must be shorter than `for`."""
    series = {f'cpcmon_{name}{{job="cpcmon",instance="b",source="x"}}': "1x9 0 stale _x60" for name in _GAUGES}
    assert rules.firing(_daemon("a") | series, *range(10, 45)) == [{"CpcmonWatchdog": 1}] * 35
    for expr, wait in re.findall(r"expr: (.*\[4m\].*)\n +for: (\d+)m", rules.text):
        assert int(wait) > 4, expr


def _low_together(minutes: int = 60, gone: str = "", hold: int = 30) -> dict[str, str]:
    """Return two replicas whose merged estimate is too low for some minutes; the alert waits `hold` minutes."""
    series = _daemon("a", shared=1) | _daemon("b", shared=1) | {_firing("a"): "1x120", _firing("b"): "0x120"}
    for instance, sums in {"a": 150, "b": 270}.items():
        window = f'job="cpcmon",instance="{instance}",model="density",segment="all"'
        of_model = f'job="cpcmon",instance="{instance}",model="density"'
        series |= {
            f"cpcmon_window_records{{{window}}}": "300x120",
            f"cpcmon_window_fresh{{{window}}}": f"1x{minutes}{gone}",
            f"cpcmon_window_minimum_records{{{of_model}}}": "200x120",
            f'cpcmon_estimate_records{{{window},estimator="doc_ts"}}': "300x120",
            f'cpcmon_estimate_summed{{{window},estimator="doc_ts"}}': f"{sums}x120",
            f'cpcmon_estimate_lower_summed{{{window},estimator="doc_ts"}}': f"{sums - 6}x120",
            f'cpcmon_estimate_upper_summed{{{window},estimator="doc_ts"}}': f"{sums + 6}x120",
            f'cpcmon_baseline_accuracy_ratio{{{window},kind="own"}}': f"{sums / 300}x120",
            f'cpcmon_baseline_records{{{window},kind="own"}}': f"{sums}x120",
            f'cpcmon_alert_for_seconds{{{of_model},alert="accuracy_low"}}': f"{60 * hold}x120",
            _threshold(instance): "0.8x120",
        }
    return series


def test_a_low_merged_estimate_fires_once(rules: Rules) -> None:
    """The alerts of single replicas do not."""
    series = _low_together()
    assert rules.firing(series, 20, 40) == [{"CpcmonWatchdog": 1}, {"CpcmonMergedAccuracyLow": 1, "CpcmonWatchdog": 1}]
    # A daemon of another job has links of its own.
    links = {
        f'cpcmon_links_info{{job="{job}",instance="{instance}",page="https://{job}.example"}}': "1x60"
        for job, instance in {"a_test_of_cpcmon": "c", "cpcmon": "b"}.items()
    }
    output = rules.described(series | links, 40, "CpcmonMergedAccuracyLow")
    assert 'page_url="https://cpcmon.example/model?name=density&segment=all"' in output
    # The baselines are weighted by their records: (150 × 0.5 + 270 × 0.9) / 420.
    assert 'summary="density, all records: estimated accuracy 70.0%, was 75.7%"' in output
    assert (
        "all replicas: estimated accuracy 70.0% by doc_ts, interval 68.0% to 72.0%, of 600 records. accuracy_low compares the"
        " upper, 72.0%, which stayed below its threshold 80.0% for 30m 0s. Baseline: 75.7%, its own first records, without"
        " labels. It has been so since 1970-01-01 00:0" in output
    )
    well = series | {name: "299x60" for name in series if "upper_summed" in name}
    assert rules.firing(well, 40) == [{"CpcmonWatchdog": 1}]


@pytest.mark.parametrize("hold", [0, 2, 30, 45])
def test_a_low_merged_estimate_fires_after_the_configured_time(rules: Rules, hold: int) -> None:
    """`for` of a rule holds for all alerts, so the daemon exports it for each.

    In the first minute the sums may not be recorded yet: promtool evaluates groups in any order.
    """
    minutes = [hold - 1, hold + 1] if hold else [1]
    found = [one["CpcmonMergedAccuracyLow"] for one in rules.firing(_low_together(hold=hold), *minutes)]
    assert found == ([0, 1] if hold else [1])


def test_two_alerts_of_one_model_wait_as_configured(rules: Rules) -> None:
    series = _low_together(hold=30)
    for name, values in _low_together(hold=5).items():
        if 'alert="accuracy_low"' in name:
            series[name.replace("accuracy_low", "falling").replace('kind="falling"', 'kind="accuracy_low"')] = values
    found = rules.firing(series, 4, 6, 29, 31)
    assert [one["CpcmonMergedAccuracyLow"] for one in found] == [0, 1, 1, 2]


def test_a_recovery_restarts_the_wait(rules: Rules) -> None:
    series = _low_together(hold=10)
    series |= {name: "156x8 299x2 156x110" for name in series if "upper_summed" in name and '"a"' in name}
    found = rules.firing(series, 9, 11, 19, 23)
    assert [one["CpcmonMergedAccuracyLow"] for one in found] == [0, 0, 0, 1]


def test_one_low_value_before_silence_does_not_fire(rules: Rules) -> None:
    """Values bridged for a quarter of an hour must not satisfy a short `for`."""
    series = _low_together(1, gone=" 0x110", hold=2)
    assert {one["CpcmonMergedAccuracyLow"] for one in rules.firing(series, *range(25))} == {0}


@pytest.mark.slow
def test_an_absent_merged_estimate_is_no_recovery(rules: Rules) -> None:
    """As at night, when windows become stale."""
    series = _low_together(40, gone=" 0x80")
    for found in rules.firing(series, 45, 60, 90, 110):
        assert found["CpcmonMergedAccuracyLow"] == 1
    output = rules.described(series, 90, "CpcmonMergedAccuracyLow")
    assert "estimated accuracy currently unknown by doc_ts" in output
    assert rules.firing(_low_together(10, gone=" 0x80"), 60)[0]["CpcmonMergedAccuracyLow"] == 0
    # It is back, and above the threshold.
    back = series | {name: "1x40 0x30 1x50" for name in series if "window_fresh" in name}
    back |= {name: "0.8x60 0.6x60" for name in series if "threshold_ratio" in name}
    before, after = rules.firing(back, 60, 75)
    assert (before["CpcmonMergedAccuracyLow"], after["CpcmonMergedAccuracyLow"]) == (1, 0)


@pytest.mark.slow
def test_replicas_that_are_all_down_have_not_recovered(rules: Rules) -> None:
    """Merged alerts have no `instance`, so inhibition misses them."""
    known = _low_together()
    series = {name: "1x40 0x80" if name.startswith("up") else re.sub("x.*", "x40 stale", known[name]) for name in known}
    for found in rules.firing(series, 45, 60, 110):
        assert found["CpcmonMergedAccuracyLow"] == 1
    one_is_back = series | {name: "1x40 0x40 1x40" for name in series if name.startswith("up") and '"a"' in name}
    # The bridge ends later; a new estimate counts at once.
    assert [one["CpcmonMergedAccuracyLow"] for one in rules.firing(one_is_back, 75, 90, 100)] == [1, 1, 0]
    well = {name: "300x40 stale _x43 300x40" for name in one_is_back if "_summed" in name and '"a"' in name}
    rest = {name: values + " _x43 1x40" for name, values in one_is_back.items() if "window_fresh" in name}
    rest |= {name: known[name] for name in known if "estimate_records" in name and '"a"' in name}
    rest |= {name: known[name] for name in known if "minimum" in name or "threshold" in name}
    assert rules.firing(one_is_back | rest | well, 83, 88)[1]["CpcmonMergedAccuracyLow"] == 0
    never = {name: values.replace("x40", "x10").replace("x80", "x110") for name, values in series.items()}
    assert rules.firing(never, 60)[0]["CpcmonMergedAccuracyLow"] == 0


def test_silent_fires_when_all_replicas_are_silent(rules: Rules) -> None:
    series = _daemon("a", shared=1) | _daemon("b", shared=1)
    series |= {_firing("a", "silent"): "1x60", _firing("b", "silent"): "0x20 1x40"}
    before, after = rules.firing(series, 10, 30)
    assert (before["CpcmonSegmentSilent"], after["CpcmonSegmentSilent"]) == (0, 1)


@pytest.mark.parametrize(
    ("old", "new"),
    [("job", "job"), ("== 0 or absent", "== 2 or absent"), ("cpcmon_estimate_summed", "cpcmon_estimate_sum")],
)
def test_the_shipped_tests_hold_for_the_shipped_rules_and_notice_a_change(
    promtool: Path, tmp_path: Path, old: str, new: str
) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "cpcmon.rules.yml").write_text(RULES.read_text("utf-8").replace(old, new), encoding="utf-8")
    tests = shutil.copy(RULES.parent / "tests" / "cpcmon.test.yml", tmp_path / "tests")
    ran = subprocess.run([promtool, "test", "rules", tests], capture_output=True, text=True, check=False)
    assert (ran.returncode == 0) is (old == new), ran.stdout + ran.stderr


def test_every_configured_alert_says_since_when() -> None:
    """Its severity is that of the configuration."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    configured = [
        one
        for group in groups
        for one in group["rules"]
        if "$labels.severity" in one.get("labels", {}).get("severity", "")
    ]
    assert len(configured) > 10
    assert [one["alert"] for one in configured if " since {{" not in one["annotations"]["description"]] == []
