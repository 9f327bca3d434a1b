"""A configuration that is right becomes what it says."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from monitor.config.config import Cron, Every, Heartbeat, HttpTarget
from monitor.config.reading import read_config
from monitor.core.alerts import AlertRule, AlertType, On, Severity
from monitor.core.baselines.comparison import BaselineMode, BaselineOptions
from monitor.core.change import Detector, Direction
from monitor.core.segments import Segmentation
from monitor.core.window import Bounds
from monitor.errors import ConfigError
from monitor.evaluation.crontab import shortest_gap_seconds
from monitor.records.record_schema import TimeUnit
from monitor.sources.directory.directory_options import DirectoryOptions, OnFinish
from tests.config.conftest import BASE, Write

SHAPE = """\
storage: {path: state}
sources:
  - name: results
    type: directory
    path: inbox
    pattern: "*.jsonl"
    on_finish: archive
    archive: /data/done
    fields: {probs: prediction.scores, segments: {site: meta.hospital}, time_unit: ms}
models:
  - name: density
    version: "2.1"
    reference: references/density.ref
    window: {records: 5000, age: 7d}
    segment_by: [site, [site, scanner]]
    evaluate: {cron: "*/5 * * * *"}
    minimum_records: 200
    alerts:
      - {name: accuracy_low, estimator: adaptive, below: 0.80, on: upper, for: 30m, severity: critical}
      - {name: silent, after: 2h, severity: warning}
"""

DEFAULT_RULES = (
    AlertRule("accuracy_drop", AlertType.CHANGE, Severity.CRITICAL, for_seconds=0.0),
    AlertRule("output_drift", AlertType.OUTPUT_DRIFT),
    AlertRule("baseline_gap", AlertType.BASELINE_GAP, Severity.CRITICAL, drop=0.1, for_seconds=600.0),
)
"""Alerts that a model has without listing them."""
CHANGE = replace(DEFAULT_RULES[0], name="a")


def test_every_part_of_a_configuration_arrives(tmp_path: Path) -> None:
    """As objects that the rest of cpcmon takes; paths are relative to the file."""
    file = tmp_path / "config.yaml"
    file.write_text(SHAPE)
    config = read_config(file)
    (source,), (model,) = config.sources, config.models
    assert config.storage.path == tmp_path / "state"
    assert isinstance(source.options, DirectoryOptions)
    assert source.options.path == tmp_path / "inbox"
    assert (source.options.pattern, source.options.on_finish) == ("*.jsonl", OnFinish.ARCHIVE)
    assert source.options.archive == Path("/data/done")
    assert source.fields.probs == "prediction.scores"
    assert (source.fields.segments, source.fields.time_unit) == ({"site": "meta.hospital"}, TimeUnit.MILLISECONDS)
    assert model.reference == tmp_path / "references" / "density.ref"
    assert (model.version, model.minimum_records, model.evaluate) == ("2.1", 200, Cron("*/5 * * * *"))
    assert model.bounds == Bounds(5000, 7 * 86400.0)
    assert model.segmentation == Segmentation((("site",), ("site", "scanner")), 200, 30 * 86400.0)
    assert model.alerts == (
        AlertRule("accuracy_low", below=0.8, severity=Severity.CRITICAL),
        AlertRule("silent", AlertType.SILENT, for_seconds=0.0, after_seconds=7200.0),
        *DEFAULT_RULES,
    )


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("{name: a, drop: 0.05}", AlertRule("a", drop=0.05, on=On.UPPER, for_seconds=1800.0)),
        ("{name: a, above: 0.99}", AlertRule("a", above=0.99, on=On.LOWER)),
        ("{name: a, above: 0.99, on: value, for: 0s}", AlertRule("a", above=0.99, on=On.VALUE, for_seconds=0.0)),
        ("{name: a, below: 0.8, on: field_upper}", AlertRule("a", below=0.8, on=On.FIELD_UPPER)),
        ("{name: a, below: 0.8, estimator: atc_mc_ts}", AlertRule("a", below=0.8, estimator="atc_mc_ts")),
        ("{name: a, type: disagreement}", AlertRule("a", AlertType.DISAGREEMENT, new_records=1.0)),
        (
            "{name: a, type: disagreement, above: 0.2}",
            AlertRule("a", AlertType.DISAGREEMENT, above=0.2, new_records=1.0),
        ),
        ("{name: a, type: output_drift}", AlertRule("a", AlertType.OUTPUT_DRIFT)),
        (
            "{name: a, type: baseline_gap, segments: ['site=*']}",
            replace(DEFAULT_RULES[2], name="a", segments=("site=*",)),
        ),
        ("{name: a, after: 90s}", AlertRule("a", AlertType.SILENT, for_seconds=0.0, after_seconds=90.0)),
        ("{name: a, type: degraded_input}", AlertRule("a", AlertType.DEGRADED_INPUT, for_seconds=600.0)),
        ("{name: a, type: change}", CHANGE),
        (
            (
                "{name: a, type: change, tolerance: 0.03, false_alarms: 2 per year, direction: up, group_by: exam,"
                " hysteresis: 0, maintenance: [{from: 1970-01-02, to: 1970-01-03},"
                " {from: 1971-01-01, to: '1971-01-01T02:00:00+01:00'}]}"
            ),
            replace(
                CHANGE,
                tolerance=0.03,
                false_alarm_seconds=182.5 * 86400.0,
                direction=Direction.UP,
                group_by="exam",
                hysteresis=0.0,
                maintenance=((86400.0, 172_800.0), (31_536_000.0, 31_539_600.0)),
            ),
        ),
        ("{name: a, below: 0.8, segments: [all]}", AlertRule("a", below=0.8, segments=("all",))),
        ("{name: a, below: 0.8, segments: ['site=*']}", AlertRule("a", below=0.8, segments=("site=*",))),
        (
            "{name: a, below: 0.8, hysteresis: 0, new_records: 1}",
            AlertRule("a", below=0.8, hysteresis=0.0, new_records=1.0),
        ),
    ],
)
def test_an_alert_has_the_defaults_of_its_type(write: Write, text: str, rule: AlertRule) -> None:
    """What is not written follows from what is."""
    config = read_config(write(f"    segment_by: [site]\n    default_alerts: []\n    alerts: [{text}]\n"))
    assert config.models[0].alerts == (rule,)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("alerts: [{name: silent, after: 2h}]", ["silent", "accuracy_drop", "output_drift", "baseline_gap"]),
        ("alerts: [{name: mine, type: output_drift, severity: info}]", ["mine", "accuracy_drop", "baseline_gap"]),
        (
            "alerts: [{name: baseline_gap, type: change, direction: up}, {name: accuracy_drop, below: 0.8}]",
            ["baseline_gap", "accuracy_drop", "output_drift", "baseline_gap_by_default"],
        ),
        (
            "alerts: [{name: accuracy_drop, below: 0.8}]",
            ["accuracy_drop", "accuracy_drop_by_default", "output_drift", "baseline_gap"],
        ),
        ("default_alerts: [baseline_gap]", ["baseline_gap"]),
        ("default_alerts: []", []),
    ],
)
def test_a_model_has_the_default_alerts_of_types_that_it_does_not_list(
    write: Write, text: str, names: list[str]
) -> None:
    assert [rule.name for rule in read_config(write(f"    {text}\n")).models[0].alerts] == names


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1 per 90d", 90 * 86400.0),
        ("2 per year", 182.5 * 86400.0),
        ("0.5 per week", 14 * 86400.0),
        ("1 per 12w", 84 * 86400.0),
        ("3 per day", 28_800.0),
        ("1  per  month", 30 * 86400.0),
    ],
)
def test_false_alarms_are_a_number_per_duration(write: Write, text: str, seconds: float) -> None:
    """Shown as the time for one, which reads the same."""
    alert = f"    alerts: [{{name: a, type: change, false_alarms: {text}}}]\n"
    config = read_config(write(alert))
    assert config.models[0].change_rules[0].false_alarm_seconds == seconds
    (shown,) = (one.value for one in config.settings if one.path.endswith("false_alarms"))
    assert read_config(write(alert.replace(text, shown))).models[0].change_rules == config.models[0].change_rules


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("for: 5m", "alerts[1].for: expected no for for an alert of type change: it fires at once, found one"),
        ("drop: 0.05", "expected no drop for an alert of type change, found one"),
        ("estimator: adaptive", "expected no estimator for an alert of type change, found one"),
        ("new_records: 1", "expected no new_records for an alert of type change, found one"),
        ("tolerance: 2", "tolerance: expected a number from 0.001 to 0.5, found 2"),
        ("false_alarms: 1 in 90d", "from 1 per 1h to 1 per 3660d, such as 1 per 90d or 2 per year, found '1 in 90d'"),
        ("false_alarms: 0 per 90d", "found '0 per 90d'"),
        ("false_alarms: 100 per day", "found '100 per day'"),
        ("maintenance: [{from: 2026-01-31}]", 'from one to a later one, found {from: "2026-01-31"}'),
        ("maintenance: [{from: 2026-01-31, to: 5}]", "maintenance[0].to: expected a date or time such as 2026-01-31"),
        (
            "maintenance: [{from: 2026-01-31, to: 2026-01-30}]",
            'from one to a later one, found {from: "2026-01-31", to: "2026-01-30"}',
        ),
        (
            "direction: down",
            "one alert of type change for each direction of a model, found down again, after alert first: remove one of them",
        ),
        ("direction: up", "group_by: expected the same group_by as alert first, exam, found none"),
    ],
)
def test_a_change_alert_that_cannot_be_is_a_problem(write: Write, text: str, problem: str) -> None:
    given = text if text.startswith("direction") else f"group_by: exam, direction: up, {text}"
    with pytest.raises(ConfigError) as caught:
        read_config(
            write(f"    alerts: [{{name: first, type: change, group_by: exam}}, {{name: a, type: change, {given}}}]\n")
        )
    assert problem in str(caught.value)
    assert str(caught.value).endswith(": 1 problem")


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("", 90 * 1440.0),
        ("    segment_by: [site]\n", 201 * 90 * 1440.0),
        ('    segment_by: [site]\n    evaluate: {cron: "*/5 8-17 * * *"}\n', 201 * 90 * 288.0),
        ("    evaluate: {every: 1h}\n    segment_by: [site]\n    segments: {limit: 9}\n", 10 * 90 * 24.0),
    ],
)
def test_the_evidence_to_alarm_at_follows_from_the_schedule_and_the_windows(
    write: Write, text: str, budget: float
) -> None:
    """One window for a rule on the whole model; detectors are in the order of the rules."""
    alerts = "{name: a, type: change, direction: up}, {name: b, type: change, segments: [all], tolerance: 0.1}"
    (model,) = read_config(write(f"{text}    alerts: [{alerts}]\n"), shortest_gap_seconds).models
    everywhere, whole = model.change_rules
    assert model.evidence_budget(everywhere) == pytest.approx(budget)
    assert model.evidence_budget(whole) == pytest.approx(budget / model.most_windows)
    assert model.detectors == (Detector(Direction.UP), Detector(Direction.DOWN, 0.1))
    assert model.group_by is None


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("", BaselineOptions()),
        ("baseline: reference", BaselineOptions(BaselineMode.REFERENCE)),
        ("baseline: own\n    baseline_records: 1200", BaselineOptions(BaselineMode.OWN, 1200)),
        ("baseline_period: {from: 1970-01-02, to: 1970-01-03}", BaselineOptions(period=(86400.0, 172_800.0))),
        (
            'baseline_period: {from: "1970-01-01T01:00:00+01:00", to: 1970-01-01T00:00:01Z}',
            BaselineOptions(period=(0.0, 1.0)),
        ),
    ],
)
def test_the_baseline_is_what_is_written(write: Write, text: str, options: BaselineOptions) -> None:
    """Times without a zone are in UTC."""
    assert read_config(write(f"    {text}\n")).models[0].baseline == options


def test_the_gap_is_that_of_every_alert_on_it(write: Write) -> None:
    config = read_config(write("    baseline_gap: 0.2\n    alerts: [{name: a, type: baseline_gap}]\n"))
    assert [rule.drop for rule in config.models[0].alerts] == [0.2, None, None]


@pytest.mark.parametrize(
    "text",
    [
        "baseline: labelled",
        "baseline_records: 0",
        "baseline_gap: 1.5",
        "default_alerts: [silent]",
        "baseline_period: {from: 2026-01-31}",
        "baseline_period: {from: 2026-01-31, to: 2026-01-30}",
        "baseline_period: {from: yesterday, to: 2026-01-30}",
        "baseline_period: {from: 2026-01-31, to: 2026-02-31}",
        "alerts: [{name: a, type: baseline_gap, drop: 0.1}]",
    ],
)
def test_a_baseline_that_cannot_be_is_a_problem(write: Write, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_config(write(f"    {text}\n"))
    assert str(caught.value).endswith(": 1 problem")


@pytest.mark.parametrize(
    ("window", "bounds"),
    [
        ("{}", Bounds(5000)),
        ("{records: 300}", Bounds(300)),
        ("{age: 7d}", Bounds(None, 604_800.0)),
        ("{age: 7d, most_records: 1000}", Bounds(None, 604_800.0, most_records=1000)),
        ("{records: 300, age: 7d, tolerance: 0s}", Bounds(300, 604_800.0, 0.0)),
    ],
)
def test_a_window_is_bounded_by_what_is_written(write: Write, window: str, bounds: Bounds) -> None:
    """An age alone takes the place of the usual number of records."""
    assert read_config(write(f"    window: {window}\n")).models[0].bounds == bounds


def test_a_section_whose_lines_are_all_commented_out_has_its_defaults(write: Write) -> None:
    """As in a copy of the example."""
    config = read_config(write("    window:\n    evaluate:\ningest:\nlimits:\n"))
    assert config.models[0].bounds == Bounds(5000)
    assert config.models[0].evaluate == Every(60.0)


def test_a_model_may_wait_for_its_reference(write: Write) -> None:
    """Leaving it out is allowed, and so is writing nothing."""
    base = BASE.replace("    reference: density.ref\n", "    reference:\n    version: null\n")
    assert read_config(write("", base)).models[0].reference is None


def test_addresses_come_from_files(write: Write) -> None:
    """Stripped of what editors add at the end."""
    file = write("notify:\n  webhook: {url_file: hook, timeout: 5s}\n  heartbeat: {url_file: beat, allow_http: true}\n")
    (file.parent / "hook").write_text("https://example.org/hook\n")
    (file.parent / "beat").write_text("  http://example.org/beat \n\n")
    config = read_config(file)
    assert config.webhook == HttpTarget("https://example.org/hook", 5.0)
    assert config.heartbeat == Heartbeat(HttpTarget("http://example.org/beat", allow_http=True))
    assert config.remarks == ()


def test_a_crontab_line_is_checked_by_the_scheduler(write: Write) -> None:
    """The sentence holds what the judge says."""
    file = write('    evaluate: {cron: "0 0 30 2 *"}\n')
    assert read_config(file).models[0].evaluate == Cron("0 0 30 2 *")
    with pytest.raises(ConfigError, match=r":7: models\[0\].evaluate.cron: .* '0 0 30 2 \*': it never comes true"):
        read_config(file, shortest_gap_seconds)


def test_the_digest_differs_between_files(write: Write) -> None:
    """And knows the same one again."""
    one, other = read_config(write()), read_config(write("# a comment\n"))
    assert one.digest == read_config(write()).digest != other.digest


def test_the_line_of_a_setting_is_known_afterwards(write: Write) -> None:
    """For what is not written, that of the group around it."""
    config = read_config(write("    window:\n      records: 300\n"))
    assert config.line_of("models[0].window.records") == 8
    assert config.line_of("models[0].window.age") == 7
    assert config.line_of("models[0].evaluate.every") == 5
    assert config.line_of("limits.window_bytes") == 1


@pytest.mark.parametrize("name", ["absent.yaml", ".", "config.yaml/below", "a\0b"])
def test_a_file_that_cannot_be_opened_is_a_config_error(write: Write, name: str) -> None:
    """Exit code 2, not 1: trying again would not help."""
    write()
    file = Path(os.fspath(write().parent) + "/" + name)
    with pytest.raises(ConfigError, match="expected a file of settings, found "):
        read_config(file)


def test_a_file_that_windows_wrote_is_read(write: Write) -> None:
    """Byte-order mark, carriage returns and all."""
    file = write()
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    assert read_config(file).models[0].name == "density"


def test_home_and_environment_variables_are_filled_in_forevery_path(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As systemd gives $STATE_DIRECTORY and $CREDENTIALS_DIRECTORY; what they hold may be relative or not."""
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/cpcmon")
    monkeypatch.setenv("WHERE", str(tmp_path))
    (tmp_path / "url").write_text("https://a.example/x\n")
    config = read_config(
        write(
            "notify: {webhook: {url_file: $WHERE/url}}\n",
            BASE.replace("path: state", "path: $STATE_DIRECTORY/windows")
            .replace("path: inbox", "path: ~/inbox")
            .replace("density.ref", "${STATE_DIRECTORY}/density-$WHERE.ref"),
        )
    )
    assert config.storage.path == Path("/var/lib/cpcmon/windows")
    assert isinstance(config.sources[0].options, DirectoryOptions)
    assert config.sources[0].options.path == Path("/home/somebody/inbox")
    assert config.models[0].reference == Path(f"/var/lib/cpcmon/density-{tmp_path}.ref")
    assert config.webhook is not None
    assert config.webhook.url == "https://a.example/x"


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("$NONE_SUCH/state", "'$NONE_SUCH/state': the environment variable NONE_SUCH is not set"),
        ("${EMPTY}", "'${EMPTY}': the environment variable EMPTY is not set"),
        ("~none_such/state", "'~none_such/state': no home directory is known for ~none_such"),
    ],
)
def test_what_cannot_be_filled_in_is_an_error(
    written: str, found: str, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rather than a folder of that name; in a path that is kept secret, nothing of it is shown."""
    monkeypatch.setenv("EMPTY", "")
    with pytest.raises(ConfigError) as rejected:
        read_config(
            write("notify: {webhook: {url_file: $NONE_SUCH/url}}\n", BASE.replace("path: state", f"path: '{written}'"))
        )
    reported = str(rejected.value).splitlines()
    assert reported[0].endswith(f":1: storage.path: expected the path of a directory, found {found}")
    assert reported[1].endswith("a URL, found an unknown home directory or environment variable")
