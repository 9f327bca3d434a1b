"""The configuration as it is in force: every setting, as a file would write it, and no secret."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.config.config import Config
from monitor.config.reading import read_config
from monitor.settings.kinds import (
    HIDDEN,
    Duration,
    ListOf,
    MapOf,
    Number,
    Secret,
    SecretPath,
    Setting,
    SettingKind,
    Text,
)
from monitor.settings.section import DeclaredSetting
from monitor.settings.yaml_text import Scalar, YamlMap, compose
from tests.config.conftest import BASE, Write
from tests.config.settings import EXAMPLE, declared, declared_by_path
from tests.conftest import Ran

MARK = "ZZSECRET"
SECRETS = f"""\
storage: {{path: state}}
sources:
  - name: stream
    type: kafka
    brokers: [kafka:9092]
    group: cpcmon
    topics: [predictions]
    tls: {{key: "{MARK}-key", password_file: "{MARK}-password", enabled: false}}
    sasl: {{mechanism: PLAIN, user: "{MARK}-user", password_file: "{MARK}-kafka"}}
  - name: other
    type: kafka
    brokers: [other:9092]
    group: cpcmon
    topics: [predictions]
    sasl: {{mechanism: OAUTHBEARER, token_file: "{MARK}-token"}}
models:
  - name: density
    reference: density.ref
    window: {{age: 7d}}
notify:
  webhook: {{url: "https://a.example/{MARK}"}}
  heartbeat: {{url_file: "{MARK}-address"}}
"""
"""A mark in every setting that is a secret; url and url_file may not stand beside each other, so they change places."""


def _is_secret(kind: SettingKind[object]) -> bool:
    return isinstance(kind, Secret | SecretPath) or (isinstance(kind, ListOf | MapOf) and _is_secret(kind.kind))


def _by_path(config: Config) -> dict[str, Setting]:
    found = {one.path: one for one in config.settings}
    assert len(found) == len(config.settings)
    return found


@pytest.fixture(params=["webhook", "heartbeat"])
def secretive(request: pytest.FixtureRequest, write: Write) -> Path:
    """A configuration whose every secret holds the mark, and the files that it names; the url is written in one place."""
    swapped = SECRETS.replace("webhook", "?").replace("heartbeat", "webhook").replace("?", "heartbeat")
    file = write(base=SECRETS if request.param == "webhook" else swapped)
    for name in ("kafka", "token", "password", "key"):
        (file.parent / f"{MARK}-{name}").write_text(f"{MARK}\n")
    (file.parent / f"{MARK}-address").write_text(f"https://a.example/{MARK}\n")
    return file


def test_every_setting_of_the_example_is_listed_in_its_order() -> None:
    """With the line where it stands; what the example leaves out and has no default is not in force."""
    config = read_config(EXAMPLE)
    lines = [one.line for one in config.settings if one.line is not None]
    assert lines == sorted(lines)
    known = {
        path
        for path, one in declared_by_path().items()
        if one.default is not None and not path.startswith(("notify.", "models[0].labels.", "models[0].audit."))
    }
    assert set(_by_path(config)) >= known


def test_each_value_is_written_as_a_file_would(tmp_path: Path) -> None:
    """Read again as its kind, it is what holds: the line of the file gives the same."""
    file = tmp_path / "config.yaml"
    file.write_text(EXAMPLE.read_text(encoding="utf-8"), encoding="utf-8")
    wrong = []
    before, kinds = _by_path(read_config(file)), declared_by_path(file)
    for path, one in before.items():
        node = _only(one.value)
        if kinds[path].kind.show(kinds[path].kind.read(node)) != one.value:
            wrong.append(path)
        if one.line is None and kinds[path].kind.read(node) != kinds[path].default:
            wrong.append(path)
    assert wrong == []


def _only(value: str) -> Scalar | YamlMap:
    tree = compose(f"value: {value}\n".encode(), [])
    assert isinstance(tree, YamlMap)
    return tree.entries["value"].node  # type: ignore[return-value]


@given(st.text(st.characters(exclude_categories=["C", "Z"]) | st.just(" "), min_size=1, max_size=20))
def test_any_text_is_shown_so_that_it_is_read_again(text: str) -> None:
    """Quotes, backslashes, and words that YAML takes for something else."""
    assert Text().read(_only(Text().show(text))) == text


@pytest.mark.parametrize(
    "text", ["true", "null", "~", "2.1", "1e3", "a\\d+", 'a "b"', "it's", "'\"\\", "#", "a: b", "*"]
)
def test_texts_that_look_like_something_else_are_quoted(text: str) -> None:
    """The same, for the ones that matter."""
    assert Text().read(_only(Text().show(text))) == text


@given(st.floats(0.0, 1.0))
def test_no_digit_of_a_number_is_lost(value: float) -> None:
    """Below 1e-6, too; numbers that take more than 40 digits to write cannot stand in a file."""
    text = Number().show(value)
    if len(text) <= 40:
        assert Number().read(_only(text)) == value
    assert "e" not in text


def test_a_duration_keeps_its_fractions() -> None:
    """Ten microseconds and a bit."""
    assert Duration(0.0, 60.0).show(0.0000105) == "0.0000105s"


def test_a_default_has_no_line(write: Write) -> None:
    """And a setting of the file has its own."""
    found = _by_path(read_config(write("    minimum_records: 50\n")))
    assert found["models[0].minimum_records"] == Setting("models[0].minimum_records", "50", 7)
    assert found["models[0].window.records"] == Setting("models[0].window.records", "5000", None)
    assert found["sources[0].path"] == Setting("sources[0].path", "inbox", 3)
    assert found["limits.segments"] == Setting("limits.segments", "2000", None)


def test_defaults_follow_what_the_group_says(write: Write) -> None:
    """Within a group the order is the file's, and what it does not say comes after."""
    more = "    minimum_records: 50\nlinks: {page: 'https://a.example'}\nlimits: {segments: 3000}\n"
    paths = [one.path for one in read_config(write(more)).settings]
    model = [path for path in paths if path.startswith("models[0].") and path.count(".") == 1]
    assert model[:3] == ["models[0].name", "models[0].reference", "models[0].minimum_records"]
    tops = list(dict.fromkeys(re.match(r"\w+", path).group() for path in paths))  # type: ignore[union-attr]
    assert tops == ["storage", "sources", "models", "links", "limits", "ingest", "metrics", "web"]


@pytest.mark.parametrize("group", ["tls", "sasl", "dead_letters", "webhook", "heartbeat"])
def test_optional_groups_that_are_absent_are_not_listed(write: Write, group: str) -> None:
    """Where nobody is posted to, there is no timeout."""
    base = BASE.replace("type: directory, path: inbox", 'type: kafka, brokers: ["k:1"], group: g, topics: [t]')
    assert base != BASE
    assert f".{group}." not in " ".join(_by_path(read_config(write("    window: {age: 1d}\n", base))))


def test_what_something_else_replaces_is_not_effective(write: Write) -> None:
    """`every` beside a crontab line, `start` beside `since`, `records` beside an age."""
    base = BASE.replace(
        "type: directory, path: inbox", 'type: kafka, brokers: ["k:1"], group: g, topics: [t], since: 1h'
    )
    found = _by_path(read_config(write('    evaluate: {cron: "* * * * *"}\n    window: {age: 1d}\n', base)))
    assert found["models[0].evaluate.cron"].value == '"* * * * *"'
    assert not {"models[0].evaluate.every", "sources[0].start", "models[0].window.records"} & set(found)


def test_a_setting_without_a_value_is_not_effective(write: Write) -> None:
    """Neither where the file is silent nor where it says nothing."""
    assert "models[0].version" not in _by_path(read_config(write("    version:\n")))


def test_every_secret_is_hidden(secretive: Path) -> None:
    """Of all that are there: each kind of secret that the code knows is in the file, and listed without its value."""
    config = read_config(secretive)
    found, kinds = _by_path(config), declared_by_path(secretive)
    secrets = {path: one for path, one in kinds.items() if _is_secret(one.kind)}
    listed = {path for path in secrets if path in found}
    assert {found[path].value for path in listed} == {HIDDEN}
    assert MARK not in repr(config.settings)
    names = {re.sub(r"\[\d+\]", "[]", path) for path in listed}
    missing = {path.replace("[kafka]", "[]") for path, some in declared().items() if _secrets_of(some)} - names
    url, file = ("webhook", "heartbeat") if "notify.webhook.url" in listed else ("heartbeat", "webhook")
    assert missing == {f"notify.{url}.url_file", f"notify.{file}.url"}, "the mark stands in all others"


def _secrets_of(some: list[DeclaredSetting]) -> bool:
    return any(_is_secret(one.kind) for one in some)


def test_what_sounds_like_a_secret_is_of_the_kind(secretive: Path) -> None:
    """So that a new setting is not forgotten: it is hidden by its kind, or its name says that it holds none."""
    sounds = re.compile(r"password|token|secret|credential|(^|[._])key|(^|\.)url|user|login")
    wrong = [
        path for path, one in declared_by_path(secretive).items() if sounds.search(path) and not _is_secret(one.kind)
    ]
    assert wrong == []


@pytest.mark.parametrize("kind", [Secret("x"), ListOf(Secret("x"), "some"), MapOf(Secret("x"), Text(), "some")])
def test_secrets_are_hidden_everywhere(kind: SettingKind[object]) -> None:
    """In a list, or under names, too."""
    value: object = {"a": MARK} if isinstance(kind, MapOf) else (MARK,) if isinstance(kind, ListOf) else MARK
    assert HIDDEN in kind.show(value)
    assert MARK not in kind.show(value)


def test_settings_are_no_part_of_what_a_configuration_is(write: Write) -> None:
    """Two that differ in their defaults' being written down work alike."""
    plain, wordy = read_config(write()), read_config(write("    minimum_records: 200\n"))
    assert plain.settings != wordy.settings
    assert plain.models == wordy.models
    assert "Setting(" not in repr(plain)


def test_check_config_shows_the_list(cpcmon: Callable[..., Ran], write: Write) -> None:
    """Every setting with its line, or as a default, below one another; then what it always says."""
    file = write("    minimum_records: 50\n")
    shown, plain = cpcmon("check-config", "--show", file), cpcmon("check-config", file)
    lines = shown.out.removesuffix(plain.out).splitlines()
    settings = read_config(file).settings
    assert (shown.code, len(lines)) == (0, len(settings))
    for line, one in zip(lines, settings, strict=True):
        where = "default" if one.line is None else f"line {one.line}"
        assert re.fullmatch(re.escape(f"{one.path}: {one.value}") + " {2,}" + where, line)
    assert len({re.search(r"(line \d+|default)$", line).start() for line in lines}) == 1  # type: ignore[union-attr]


def test_check_config_shows_no_secret(cpcmon: Callable[..., Ran], secretive: Path) -> None:
    """In all that it prints."""
    ran = cpcmon("check-config", "--show", secretive)
    assert ran.code == 0
    assert ran.out.count(f": {HIDDEN} ") == SECRETS.count(MARK)
    assert MARK not in ran.out + ran.err
