"""The settings of a source of type `kafka`, its secret files, and its memory use."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from monitor.config.reading import read_config
from monitor.core.recent_ids import bytes_at_most
from monitor.errors import ConfigError
from monitor.sources.kafka.kafka_options import (
    Assignor,
    Isolation,
    KafkaOptions,
    Mechanism,
    SaslOptions,
    Start,
    TlsOptions,
)
from tests.config.conftest import BASE, Write
from tests.conftest import Ran
from tests.web.certificates import Authority

EVERYTHING = """\
storage: {path: state}
sources:
  - name: stream
    type: kafka
    brokers: ["kafka-1:9093", "[::1]:9093"]
    group: cpcmon
    pattern: "predictions-.*"
    instance_id: cpcmon-0
    since: 24h
    isolation: read_uncommitted
    assignor: range
    session_timeout: 10s
    max_poll_records: 500
    fetch_max: 1MiB
    partition_fetch: 64KiB
    max_message: 32KiB
    stall_after: 1m
    commit_every: 5s
    client_rack: rack-1
    dead_letters: {topic: rejected, payload: true}
    tls: {ca: authority.crt, cert: client.crt, key: client.key, check_hostname: false}
    sasl: {mechanism: SCRAM-SHA-512, user: cpcmon, password_file: secret}
    models: [density]
    store_raw: true
    fields: {time_unit: ms}
models:
  - name: density
"""
KAFKA = BASE.replace(
    "type: directory, path: inbox}", "type: kafka, brokers: ['kafka:9092'], group: cpcmon, topics: [predictions]}"
)


def _with(settings: str) -> str:
    return KAFKA.replace("topics: [predictions]", f"topics: [predictions], {settings}")


def _error_of(file: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        read_config(file)
    return str(caught.value)


def test_every_setting_arrives(write: Write) -> None:
    """Those of the connection and those of the records; paths are relative to the file."""
    file = write(base=EVERYTHING)
    folder = file.parent
    Authority(folder, "authority").signed("client")
    (folder / "secret").write_text("ZZPATIENT\n")
    config = read_config(file)
    (source,) = config.sources
    assert source.options == KafkaOptions(
        brokers=("kafka-1:9093", "[::1]:9093"),
        group="cpcmon",
        pattern="predictions-.*",
        instance_id="cpcmon-0",
        start=Start.SINCE,
        since_seconds=86400.0,
        isolation=Isolation.READ_UNCOMMITTED,
        assignor=Assignor.RANGE,
        session_timeout_seconds=10.0,
        max_poll_records=500,
        fetch_max_bytes=1 << 20,
        partition_fetch_bytes=64 << 10,
        max_message_bytes=32 << 10,
        tls=TlsOptions(folder / "authority.crt", folder / "client.crt", folder / "client.key", check_hostname=False),
        sasl=SaslOptions(Mechanism.SCRAM_SHA_512, "cpcmon", folder / "secret"),
        client_rack="rack-1",
        stall_after_seconds=60.0,
        commit_seconds=5.0,
        dead_letter_topic="rejected",
        dead_letter_payload=True,
    )
    assert (source.models, source.store_raw, source.fields.time_unit) == (("density",), True, "ms")
    assert "ZZPATIENT" not in repr(config)


@pytest.mark.parametrize(
    ("settings", "start", "since"),
    [
        ("start: latest", Start.LATEST, None),
        ("start: earliest", Start.EARLIEST, None),
        ("since: 7d", Start.SINCE, 604_800.0),
    ],
)
def test_a_start_is_a_word_or_a_time(write: Write, settings: str, start: Start, since: float | None) -> None:
    (source,) = read_config(write(base=_with(settings))).sources
    assert isinstance(source.options, KafkaOptions)
    assert (source.options.start, source.options.since_seconds) == (start, since)


@pytest.mark.parametrize(
    ("settings", "tls"),
    [
        ("store_raw: false", None),
        ("tls: {}", TlsOptions()),
        ("tls: {check_hostname: false}", TlsOptions(check_hostname=False)),
        ("tls: {enabled: true}", TlsOptions()),
        ("tls: {enabled: false, ca: absent}", None),
    ],
)
def test_any_tls_setting_enables_tls_unless_disabled(write: Write, settings: str, tls: TlsOptions | None) -> None:
    """A certificate that somebody wrote down must not end in an open connection."""
    (source,) = read_config(write(base=_with(settings))).sources
    assert isinstance(source.options, KafkaOptions)
    assert source.options.tls == tls


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "a file with one line, the password, found an empty file"),
        (b" \n", "a file with one line, the password, found an empty file"),
        (b"ZZPATIENT\nZZPATIENT\n", "a file with one line, the password, found several lines"),
        (b"ZZPATIENT\xff", "a file with a password, found a file that is not UTF-8"),
        (b"ZZPATIENT" * 10_000, "a file of at most 64 KiB, found a larger one"),
        (None, "a file with a password, found No such file or directory"),
    ],
    ids=["empty", "blank", "two lines", "not UTF-8", "large", "absent"],
)
def test_a_file_of_a_secret_that_cannot_be_used_is_an_error_and_not_shown(
    write: Write, content: bytes | None, found: str
) -> None:
    file = write(base=_with("sasl: {mechanism: PLAIN, user: cpcmon, password_file: ZZPATIENT}"))
    if content is not None:
        (file.parent / "ZZPATIENT").write_bytes(content)
    reported = _error_of(file)
    assert reported.splitlines()[0] == f"{file}:3: sources[0].sasl.password_file: expected {found}"
    assert "ZZPATIENT" not in reported


def test_a_pipe_in_place_of_a_secret_is_rejected_and_not_waited_for(write: Write) -> None:
    file = write(base=_with("tls: {cert: pipe, key: pipe, password_file: pipe}"))
    os.mkfifo(file.parent / "pipe")
    reported = _error_of(file).splitlines()
    assert len(reported) == 4
    assert all(line.endswith("found a pipe or a device") for line in reported[:3])


def test_a_certificate_and_the_key_of_another_are_distinguished(write: Write) -> None:
    file = write(base=_with("tls: {ca: authority.crt, cert: one.crt, key: other.key}"))
    authority = Authority(file.parent, "authority")
    authority.signed("one")
    authority.signed("other")
    expected = "a PEM certificate with its key and the password of the key"
    assert f"{file}:3: sources[0].tls.cert: expected {expected}, found no certificate" in _error_of(file)
    file.write_text(file.read_text().replace("other.key", "one.key"))
    assert read_config(file).sources[0].name == "results"


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
def test_a_secret_that_is_sent_in_the_open_gives_a_warning(write: Write, mechanism: str) -> None:
    who = "token_file: secret" if mechanism == "OAUTHBEARER" else "user: cpcmon, password_file: secret"
    open_ = f"sasl: {{mechanism: {mechanism}, {who}}}"
    for settings, remarks in ((open_, 1), (f"{open_}, tls: {{}}", 0)):
        file = write("    window: {age: 7d}\n", _with(settings))
        (file.parent / "secret").write_text("ZZPATIENT")
        found = read_config(file).remarks
        assert [remark.startswith(f"sources[0].sasl: {mechanism} without tls sends") for remark in found] == [
            True
        ] * remarks


@pytest.mark.parametrize(
    ("window", "source", "remarks"),
    [
        ("{}", "", 1),
        ("{records: 300}", "", 1),
        ("{records: 300, age: 7d}", "", 0),
        ("{age: 7d}", "", 0),
        ("{}", "models: [other], ", 0),
    ],
)
def test_a_window_without_an_age_gives_a_warning_where_records_come_in_partitions(
    write: Write, window: str, source: str, remarks: int
) -> None:
    """A partition that falls silent would keep its last records for ever."""
    base = KAFKA.replace("sources:\n", "sources:\n  - {name: files, type: directory, path: inbox}\n")
    base = base.replace("type: kafka, ", f"type: kafka, {source}")
    file = write(f"    window: {window}\n  - name: other\n    window: {{age: 7d}}\n", base)
    found = read_config(file).remarks
    assert [remark.partition(": ")[0] for remark in found] == ["models[0].window"] * remarks


def test_check_config_says_what_one_partition_costs(cpcmon: Callable[..., Ran], write: Write) -> None:
    """And for how many there is room, since nobody knows how many this process will hold."""
    file = write("    window: {records: 5000, age: 7d}\n", KAFKA)
    ran = cpcmon("check-config", file)
    lines = ran.out.splitlines()
    assert (ran.code, ran.err) == (0, "")
    place = lines.index("source results: kafka kafka:9092, topics predictions, as group cpcmon")
    words = lines[place + 1].split()
    windows, room = float(words[6]), int(words[-1].replace(",", ""))
    assert lines[place + 1] == (
        f"  each partition that this process holds: {windows} MB of windows and {bytes_at_most(1_000_000) / 1e6:.1f} MB of ids at most;"
        f" limits.window_bytes has room for {room:,}"
    )
    assert room == pytest.approx(536.9 / windows, rel=0.1)
    assert lines[place + 2].startswith(f"all windows (counting one partition): {windows} MB at most, of 536.9 MB")
    assert not [line for line in lines if line.startswith("remark")]


def test_check_config_doubts_a_number_of_records_that_looks_like_a_total(
    cpcmon: Callable[..., Ran], write: Write
) -> None:
    """Where there is room for a few partitions only."""
    ran = cpcmon("check-config", write("    window: {records: 2000000, age: 7d}\n", KAFKA))
    (remark,) = [line for line in ran.out.splitlines() if line.startswith("remark: ")]
    assert remark.startswith(
        "remark: models[0].window.records: the latest 2,000,000 of each partition are held, and 512"
    )
    assert remark.endswith("if it is meant for all of them together, divide it by their number")


def test_check_config_knows_a_source_none_of_whose_models_has_a_reference(
    cpcmon: Callable[..., Ran], write: Write
) -> None:
    ran = cpcmon("check-config", write("    window: {age: 7d}\n", KAFKA.replace("    reference: density.ref\n", "")))
    assert ran.code == 0
    assert "  no windows yet: none of its models has a reference\n" in ran.out


def test_a_secret_is_never_said_by_check_config(cpcmon: Callable[..., Ran], write: Write) -> None:
    file = write(base=_with("sasl: {mechanism: PLAIN, user: cpcmon, password_file: secret}"))
    (file.parent / "secret").write_text("ZZPATIENT")
    ran = cpcmon("check-config", file)
    assert ran.code == 0
    assert "remark: sources[0].sasl: PLAIN without tls sends the password unencrypted\n" in ran.out
    assert "ZZPATIENT" not in ran.out + ran.err


def test_the_instance_id_may_be_in_a_file(write: Write) -> None:
    """As Kubernetes writes the name of a pod: without a newline, or with one."""
    file = write(base=_with("instance_id_file: pod/name"))
    (file.parent / "pod").mkdir()
    for text in ("cpcmon-2", "cpcmon-2\n"):
        (file.parent / "pod" / "name").write_text(text)
        (source,) = read_config(file).sources
        assert isinstance(source.options, KafkaOptions)
        assert source.options.instance_id == "cpcmon-2"


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "expected a file with one line, the name, found an empty file"),
        (b"\xff\xfe", "expected a file with a name, found a file that is not UTF-8"),
        (b"pod 1", "expected up to 249 letters, digits, dots, _ and -, found 'pod 1'"),
    ],
)
def test_a_file_without_a_fitting_name_is_an_error(write: Write, content: bytes, found: str) -> None:
    file = write(base=_with("instance_id_file: name"))
    (file.parent / "name").write_bytes(content)
    assert f"sources[0].instance_id_file: {found}" in _error_of(file)


def test_two_sources_with_the_same_instance_id_file_are_rejected(write: Write) -> None:
    first = "{name: a, type: kafka, brokers: ['k:1'], group: g, topics: [one], instance_id_file: name}"
    second = first.replace("name: a", "name: b").replace("[one]", "[two]")
    file = write(base=f"storage: {{path: s}}\nsources:\n  - {first}\n  - {second}\nmodels:\n  - name: density\n")
    (file.parent / "name").write_text("pod")
    assert "sources[1].instance_id_file: expected an instance_id that is unique in the group" in _error_of(file)
