"""The rules over all replicas of a shared model, by the real promtool."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from monitor.core.alerts import AlertRule, AlertType, On
from monitor.core.estimators.ensemble import MEMBERS, combine
from monitor.core.intervals import field_intervals
from tests.rules.rule_tests import Rules
from tests.sinks import reports

Series = dict[str, str]
LOW = AlertRule("accuracy_low", below=0.8, on=On.VALUE, for_seconds=300.0, hysteresis=0.02)
ALERT = "CpcmonAccuracyLow"
WATCHED = {f'up{{job="cpcmon",instance="{name}"}}': "1x240" for name in "abc"} | {
    f'cpcmon_last_evaluation_timestamp_seconds{{job="cpcmon",instance="{name}",model="{model}"}}': "0+60x240"
    for name in "abc"
    for model in ("density", "triage")
}


def _of(instance: str, more: str = "", segment: str = "all") -> str:
    return f'job="cpcmon",instance="{instance}",model="density",segment="{segment}"{more}'


def share(
    instance: str, records: str, estimates: dict[str, str], *, fresh: str = "1x240", minimum: str = "200x240"
) -> Series:
    """Return the series of a replica; estimates are sums over its records."""
    shown = {
        f"cpcmon_window_records{{{_of(instance)}}}": records,
        f"cpcmon_window_fresh{{{_of(instance)}}}": fresh,
        f'cpcmon_window_minimum_records{{job="cpcmon",instance="{instance}",model="density"}}': minimum,
        f'cpcmon_alert_firing{{{_of(instance)},alert="accuracy_low",severity="critical"}}': "0x240",
    }
    for name, sums in estimates.items():
        estimator = _of(instance, f',estimator="{name}"')
        shown[f"cpcmon_estimate_summed{{{estimator}}}"] = sums
        shown[f"cpcmon_estimate_records{{{estimator}}}"] = records
    return shown


def bounds(instance: str, lower: str, upper: str, estimator: str) -> Series:
    """Return the bounds of a replica, times its records."""
    of = _of(instance, f',estimator="{estimator}"')
    return {f"cpcmon_estimate_lower_summed{{{of}}}": lower, f"cpcmon_estimate_upper_summed{{{of}}}": upper}


@pytest.fixture
def rules(promtool: Path, tmp_path: Path) -> Rules:
    """The rules of a shared model with one accuracy alert."""
    config = reports.shared_config()
    density = replace(config.models[0], alerts=(replace(LOW, estimator="ac"),))
    return Rules(promtool, tmp_path, replace(config, models=(density, *config.models[1:])))


def merged(rules: Rules, series: Series, minute: float = 3, record: str = "estimated_accuracy_ratio") -> list[float]:
    """Return the values of a recorded series."""
    return list(rules.values(series, minute, f"cpcmon:{record}").values())


def firing(rules: Rules, series: Series, *minutes: float) -> list[int]:
    """Return how often the accuracy alert fires at some minutes."""
    found: list[Counter[str]] = rules.firing(WATCHED | series, *minutes)
    return [one[ALERT] for one in found]


def test_promtool_lint_finds_nothing(promtool: Path, tmp_path: Path) -> None:
    """In the rules of a configuration with an alert of each kind."""
    assert Rules(promtool, tmp_path, reports.shared_config()).check() == ""


def test_replicas_are_weighted_by_their_records(rules: Rules) -> None:
    series = share("a", "300x9", {"ac": "270x9"}) | share("b", "100x9", {"ac": "50x9"})
    assert merged(rules, series) == [pytest.approx(0.8)]
    assert merged(rules, series, record="window_records") == [400.0]


def test_replicas_with_too_few_records_have_an_estimate_together(rules: Rules) -> None:
    """From `minimum_records` on."""
    shares = [share(name, "70x9", {"ac": "63x9"}) for name in "abc"]
    assert merged(rules, shares[0] | shares[1]) == []
    assert merged(rules, shares[0] | shares[1] | shares[2]) == [pytest.approx(0.9)]


def test_the_merged_estimate_is_clipped_after_the_sum(rules: Rules) -> None:
    beyond = share("a", "200x9", {"doc": "220x9"})
    assert merged(rules, beyond) == [1.0]
    assert merged(rules, beyond | share("b", "200x9", {"doc": "140x9"})) == [pytest.approx(0.9)]


def test_a_replica_without_recent_records_counts_while_another_has_some(rules: Rules) -> None:
    """The assignment of partitions must not matter. Without any recent records there is no estimate."""
    old = share("a", "300x9", {"ac": "270x9"}, fresh="0x9")
    assert merged(rules, old) == []
    assert merged(rules, old | share("b", "100x9", {"ac": "50x9"})) == [pytest.approx(0.8)]


def test_models_of_different_jobs_are_not_added(rules: Rules) -> None:
    series = share("a", "300x9", {"ac": "270x9"})
    elsewhere = {name.replace('job="cpcmon"', 'job="cpcmon-east"'): shape for name, shape in series.items()}
    assert merged(rules, series | elsewhere) == [pytest.approx(0.9)] * 2


def test_the_merged_consensus_is_that_of_the_merged_members(rules: Rules) -> None:
    """With the interpolation of the daemon. Without one of its members there is none."""
    first = dict(zip(MEMBERS, (180, 150, 190, 120, 170, 160), strict=True))
    second = dict(zip(MEMBERS, (60, 90, 20, 80, 70, 10), strict=True))
    series = share("a", "200x9", {name: f"{value}x9" for name, value in first.items()})
    series |= share("b", "100x9", {name: f"{value}x9" for name, value in second.items()})
    spread = [(first[member] + second[member]) / 300 for member in MEMBERS]
    expected = combine(np.array(spread)[:, None])[0][0]
    query = 'cpcmon:estimated_accuracy_ratio{estimator="consensus"}'
    assert list(rules.values(series, 3, query).values()) == [pytest.approx(expected, rel=1e-12)]
    (disagreement,) = merged(rules, series, record="estimator_disagreement_ratio")
    assert disagreement == pytest.approx(max(spread) - min(spread))
    silent = {name: shape for name, shape in series.items() if "doc_ts" not in name}
    assert rules.values(silent, 3, query) == {}


def test_bounds_are_weighted_by_records_and_include_the_estimate(rules: Rules) -> None:
    series = share("a", "300x9", {"ac": "270x9"}) | share("b", "100x9", {"ac": "50x9"})
    around = bounds("a", "255x9", "280x9", "ac") | bounds("b", "45x9", "60x9", "ac")
    assert merged(rules, series | around, record="estimated_accuracy_lower_ratio") == [pytest.approx(0.75)]
    assert merged(rules, series | around, record="estimated_accuracy_upper_ratio") == [pytest.approx(0.85)]
    wrong = bounds("a", "290x9", "250x9", "ac") | bounds("b", "90x9", "40x9", "ac")
    for side in ("lower", "upper"):
        assert merged(rules, series | wrong, record=f"estimated_accuracy_{side}_ratio") == [pytest.approx(0.8)]


def of_members(instance: str, records: int, values: dict[str, float]) -> Series:
    """Return a replica with these estimates of the members and of `adaptive`."""
    return share(instance, f"{records}x60", {name: f"{records * value:g}x60" for name, value in values.items()})


def test_the_field_interval_of_the_whole_is_that_of_the_daemon(rules: Rules) -> None:
    first = dict(zip((*MEMBERS, "adaptive"), (0.9, 0.75, 0.95, 0.6, 0.85, 0.8, 0.75), strict=True))
    second = {name: value - 0.125 for name, value in first.items()}
    series = of_members("a", 200, first) | of_members("b", 200, second)
    series |= {
        f'cpcmon_reference_accuracy_ratio{{job="cpcmon",instance="{one}",model="density"}}': "0.9x60" for one in "ab"
    }
    spread = np.array([(first[name] + second[name]) / 2 for name in MEMBERS])
    expected = field_intervals(np.array([0.6875]), 0.9, np.array([spread.max() - spread.min()]))[:, :, 0]
    for end, of_end in zip(("lower", "upper"), expected.T, strict=True):
        found = rules.values(series, 3, f"cpcmon:estimated_accuracy_field_{end}_ratio")
        assert [found[label] for label in sorted(found)] == [pytest.approx(one, rel=1e-9) for one in of_end]


# Alerts


@pytest.mark.parametrize("estimator", ["adaptive", "consensus"])
def test_the_headline_of_the_whole_fires_with_an_old_reference_too(rules: Rules, estimator: str) -> None:
    """Such a reference has no `adaptive`: its daemons compare the consensus."""
    low = replace(rules, config=replace(rules.config, models=(replace(rules.config.models[0], alerts=(LOW,)),)))
    values = dict.fromkeys(MEMBERS, 0.7) if estimator == "consensus" else {"adaptive": 0.7}
    assert firing(low, of_members("a", 300, values), 20) == [1]


def test_the_field_interval_of_the_whole_fires(rules: Rules) -> None:
    rule = replace(LOW, on=On.FIELD_UPPER)
    low = replace(rules, config=replace(rules.config, models=(replace(rules.config.models[0], alerts=(rule,)),)))
    series = of_members("a", 300, dict.fromkeys((*MEMBERS, "adaptive"), 0.7))
    series |= {'cpcmon_reference_accuracy_ratio{job="cpcmon",instance="a",model="density"}': "0.7x20 0.9x40"}
    # 0.7 and 0.84 times 0.10 are under 0.8, and with a visible shift of 0.2 they are not.
    assert firing(low, series, 15, 50) == [1, 0]


def test_a_low_merged_estimate_fires_once(rules: Rules) -> None:
    """After its `for`."""
    series = share("a", "300x60", {"ac": "225x60"}) | share("b", "300x60", {"ac": "231x60"})
    assert firing(rules, series, 3, 7, 30) == [0, 1, 1]


def test_one_low_replica_of_a_good_whole_does_not_fire(rules: Rules) -> None:
    """Its own alert fires, for a tenth of the records."""
    series = share("a", "900x60", {"ac": "810x60"}) | share("b", "100x60", {"ac": "50x60"})
    series[f'cpcmon_alert_firing{{{_of("b")},alert="accuracy_low",severity="critical"}}'] = "1x60"
    assert firing(rules, series, 20) == [0]


@pytest.mark.parametrize(
    ("then", "fires"),
    [
        pytest.param("243x60", 1, id="within the hysteresis"),
        pytest.param("249x60", 0, id="recovered"),
        pytest.param("stale _x60", 1, id="no estimate"),
    ],
)
def test_it_resolves_only_beyond_the_hysteresis(rules: Rules, then: str, fires: int) -> None:
    """0.81 is within the hysteresis of 0.8, 0.83 beyond it. Without an estimate it keeps firing."""
    series = share("a", "300x90", {"ac": f"225x20 {then}"})
    assert firing(rules, series, 15, 60) == [1, fires]


def test_an_estimate_within_the_hysteresis_does_not_fire(rules: Rules) -> None:
    assert firing(rules, share("a", "300x60", {"ac": "243x60"}), 30) == [0]


def test_an_alert_on_a_window_that_no_replica_has_resolves(rules: Rules) -> None:
    series = {name: f"{shape.split('x')[0]}x20 stale" for name, shape in share("a", "300x", {"ac": "225x"}).items()}
    assert firing(rules, series, 15, 30, 60) == [1, 1, 0]


def test_a_drop_is_compared_with_the_exported_threshold(rules: Rules) -> None:
    drop = AlertRule("accuracy_low", drop=0.05, estimator="ac", on=On.VALUE, for_seconds=300.0, hysteresis=0.02)
    density = replace(rules.config.models[0], alerts=(drop,))
    dropping = replace(rules, config=replace(rules.config, models=(density,)))
    series = share("a", "300x90", {"ac": "225x20 243x20 249x60"})
    threshold = f'{_of("a")},alert="accuracy_low",estimator="ac",severity="warning"'
    series[f"cpcmon_accuracy_threshold_ratio{{{threshold}}}"] = "0.8x90"
    assert firing(dropping, series, 15, 35, 70) == [1, 1, 0]


def test_thresholds_of_own_baselines_are_weighted_by_their_records(rules: Rules) -> None:
    """The third replica collects its baseline, and has no threshold yet. A kind that changed is no second baseline."""
    series: Series = {}
    for name, threshold, records in (("a", "0.8x9", "3000x9"), ("b", "0.6x9", "1000x9"), ("c", "_x9", "200x9")):
        of = _of(name, ',alert="accuracy_low",estimator="ac",severity="warning"')
        series[f"cpcmon_accuracy_threshold_ratio{{{of}}}"] = threshold
        series[f'cpcmon_baseline_records{{{_of(name)},kind="own"}}'] = records
    assert merged(rules, series, record="accuracy_threshold_ratio") == [pytest.approx(0.75)]
    series[f'cpcmon_baseline_records{{{_of("a")},kind="labelled"}}'] = "1000x9"
    assert merged(rules, series, record="accuracy_threshold_ratio") == [pytest.approx(0.75)]
    old = {name: shape for name, shape in series.items() if "baseline" not in name}
    assert merged(rules, old, record="accuracy_threshold_ratio") == [0.8]


@pytest.mark.parametrize(("apart", "fires"), [(0.02, 0), (0.029, 0), (0.031, 1)])
def test_disagreement_is_compared_with_one_and_a_half_times_the_chance_disagreement(
    rules: Rules, apart: float, fires: int
) -> None:
    """As in the daemon."""
    density = replace(
        rules.config.models[0], alerts=(AlertRule("apart", kind=AlertType.DISAGREEMENT, for_seconds=300.0),)
    )
    judging = replace(rules, config=replace(rules.config, models=(density,)))
    members = dict.fromkeys(MEMBERS, "270x60") | {MEMBERS[0]: f"{270 - 300 * apart:g}x60"}
    series = share("a", "300x60", members) | {
        f"cpcmon_estimator_chance_disagreement_ratio{{{_of('a')}}}": "0.02x60",
        f'cpcmon_alert_firing{{{_of("a")},alert="apart",severity="warning"}}': "0x60",
    }
    (found,) = judging.firing(WATCHED | series, 20)
    assert found["CpcmonApart"] == fires


def changes(instance: str, evidence: str, firing: str = "1x60") -> Series:
    """Return the series of a replica with a budget of a million."""
    of = _of(instance, ',direction="down"')
    return {
        f"cpcmon_change_evidence{{{of}}}": evidence,
        f"cpcmon_change_evidence_threshold{{{of}}}": f"6x{evidence.rsplit('x', maxsplit=1)[-1]}",
        f'cpcmon_alert_firing{{{_of(instance)},alert="dropped",severity="critical"}}': firing,
    }


@pytest.fixture
def change_rules(rules: Rules) -> Rules:
    """The rules of a shared model with an alert of type change."""
    density = replace(rules.config.models[0], alerts=(AlertRule("dropped", AlertType.CHANGE, for_seconds=0.0),))
    return replace(rules, config=replace(rules.config, models=(density, *rules.config.models[1:])))


@pytest.mark.parametrize(
    ("evidence", "fires"),
    [
        # log10 of 3 is 0.477.
        pytest.param("6.47x60", 0, id="enough for one replica"),
        pytest.param("6.48x60", 1, id="enough for all"),
    ],
)
def test_the_largest_evidence_of_a_replica_is_compared_with_the_budget_of_all(
    change_rules: Rules, evidence: str, fires: int
) -> None:
    """As many times the budget as there are replicas with evidence; at once."""
    quiet = changes("b", "-30x60", "0x60") | changes("c", "2x60", "0x60")
    for found in change_rules.firing(WATCHED | quiet | changes("a", evidence), 2, 40):
        assert found["CpcmonDropped"] == fires
    (alone,) = change_rules.firing(WATCHED | changes("a", evidence), 40)
    assert alone["CpcmonDropped"] == 1


def test_a_change_of_the_whole_ends_with_that_of_the_last_replica(change_rules: Rules) -> None:
    """Evidence of a change that is over becomes less. Replicas that are all down have not recovered."""
    series = changes("a", "9x10 3x50", "1x30 0x30") | changes("b", "7x10 1x50", "1x20 0x40")
    assert [found["CpcmonDropped"] for found in change_rules.firing(WATCHED | series, 9, 25, 35)] == [1, 1, 0]
    gone = {name: re.sub("x.*", "x20 stale", values) for name, values in (WATCHED | changes("a", "9x20")).items()}
    down = {name: "1x20 0x200" for name in WATCHED if name.startswith("up")}
    assert [found["CpcmonDropped"] for found in change_rules.firing(gone | down, 15, 38, 120)] == [1, 1, 1]
    one_is_up = down | {'up{job="cpcmon",instance="b"}': "1x240"}
    assert [found["CpcmonDropped"] for found in change_rules.firing(gone | one_is_up, 15, 38)] == [1, 0]


def test_a_change_of_the_whole_began_where_a_replica_has_the_most_evidence(change_rules: Rules) -> None:
    series = changes("a", "7x60") | changes("b", "9x60") | changes("c", "1x60", "0x60")
    for name, start, records in (("a", 600, 70), ("b", 1200, 90), ("c", 1800, 5)):
        of = _of(name, ',direction="down"')
        series[f"cpcmon_change_started_timestamp_seconds{{{of}}}"] = f"{start}x60"
        series[f"cpcmon_change_records_since_start{{{of}}}"] = f"{records}x60"
        series[f'cpcmon_alert_since_timestamp_seconds{{{_of(name)},alert="dropped"}}'] = f"{start + 300}x60"
    output = change_rules.described(WATCHED | series, 30, "CpcmonDropped")
    assert (
        "density, all, all replicas: the accuracy has dropped: evidence 10^9.0, budget 10^6.5. It began about 1970-01-01"
        " 00:20 UTC, 90 records ago." in output
    )
    assert "Firing in a replica since 1970-01-01 00:15 UTC, for 15m 0s." in output


def test_silent_fires_when_all_replicas_are_silent(rules: Rules) -> None:
    silent = AlertRule("silent", kind=AlertType.SILENT, after_seconds=3600.0)
    density = replace(rules.config.models[0], alerts=(silent,))
    hearing = replace(rules, config=replace(rules.config, models=(density,)))
    series = {
        f'cpcmon_alert_firing{{{_of(name)},alert="silent",severity="warning"}}': shape
        for name, shape in {"a": "1x60", "b": "1x60", "c": "0x20 1x40"}.items()
    }
    before, after = hearing.firing(WATCHED | series, 10, 30)
    assert (before["CpcmonSilent"], after["CpcmonSilent"]) == (0, 1)


@pytest.mark.slow
def test_replicas_that_are_all_down_have_not_recovered(rules: Rules) -> None:
    """Merged alerts have no `instance`, so inhibition misses them. One replica that is up resolves the alert."""
    known = WATCHED | share("a", "300x240", {"ac": "225x240"})
    series = {name: re.sub("x.*", "x40 stale", values) for name, values in known.items()}
    down = {name: "1x40 0x200" for name in known if name.startswith("up")}
    for found in rules.firing(series | down, 50, 60, 120):
        assert found[ALERT] == 1
    one_is_up = down | {'up{job="cpcmon",instance="b"}': "1x240"}
    assert [found[ALERT] for found in rules.firing(series | one_is_up, 50, 60)] == [1, 0]
    again = dict.fromkeys(down, "1x40 0x60 1x100")
    assert [found[ALERT] for found in rules.firing(series | again, 110, 120)] == [1, 0]
    assert rules.check() == ""


def test_the_description_has_the_numbers_of_all_replicas(rules: Rules) -> None:
    series = share("a", "300x60", {"ac": "225x60"}) | bounds("a", "210x60", "240x60", "ac")
    output = rules.described(WATCHED | series, 20, ALERT)
    assert (
        "all replicas: estimated accuracy 75.0% by ac, interval 70.0% to 80.0%, of 300 records. The estimate stayed below"
        in output
    )
    assert "below 80.0% for 5m. It has been so since 1970-01-01 00:0" in output
    assert "accuracy.md" in output


def test_a_replica_with_too_few_records_fires_nothing_while_all_have_enough(rules: Rules) -> None:
    small = share("a", "70x90", {"ac": "63x90"})
    small[f"cpcmon_estimate_valid{{{_of('a')}}}"] = "0x90"
    (alone,) = rules.firing(WATCHED | small, 45)
    (together,) = rules.firing(WATCHED | small | share("b", "300x90", {"ac": "270x90"}), 45)
    assert alone == {"CpcmonMergedInvalid": 1, "CpcmonWatchdog": 1}
    assert together == {"CpcmonWatchdog": 1}
