"""Group D of the scenarios, as far as they concern the configuration: hostile files, values that YAML bends, secrets."""

import os
import re
import threading
from pathlib import Path

import pytest

from monitor.config.reading import read_config
from monitor.config.references import load_models
from monitor.errors import ConfigError
from tests.config.conftest import BASE, Write
from tests.effort import calls_of

CANARY = "ZZPATIENT"
_BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))


def _error_of(file: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        read_config(file)
    return str(caught.value)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(BASE + _BOMB, r":7: a0: expected no anchor", id="alias bomb"),
        pytest.param(BASE + "links: *anything\n", r":7: links: expected no alias", id="alias"),
        pytest.param("storage: !!python/name:os.system {path: state}\n", r":1: storage: expected no tag", id="tag"),
        pytest.param(BASE + "storage: {path: b}\n", r":7: expected each key once", id="duplicate key"),
        pytest.param(BASE + "colour: red\n", r":7: expected one of", id="unknown key"),
        pytest.param(BASE + "# filler\n" * 1_200_000, r":116\d{3}: expected a file of at most 1 MiB", id="10 MB"),
        pytest.param("[" * 1_000_000, r":1: expected at most 50 levels", id="nested a million deep"),
        pytest.param("{a: " * 200_000, r":1: expected at most 50 levels", id="nested in settings"),
        pytest.param("a: \x00\n", r":1: expected text, found a control character", id="zero byte"),
        pytest.param(BASE + "a: \x1b[31m\n", r":7: expected text, found a control character", id="escape sequence"),
    ],
)
def test_d9_a_hostile_file_is_rejected_at_once_with_a_line(tmp_path: Path, content: str, expected: str) -> None:
    """With little work, and without unfolding anything."""
    file = tmp_path / "config.yaml"
    file.write_text(content, encoding="utf-8")
    reported = list[str]()
    calls_of(lambda: reported.append(_error_of(file)), most=10_000)
    assert re.search(re.escape(str(file)) + expected, reported[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    "content",
    [
        pytest.param("models: [" + "{}, " * 15_000 + "]\n", id="models"),
        pytest.param("models: [{alerts: [" + "{}, " * 15_000 + "]}]\n", id="alerts"),
        pytest.param("models: [" + "a, " * 120_000 + "]\n", id="too many values"),
        pytest.param("".join(f"k{n}: 1\n" for n in range(9_000)), id="unknown keys"),
    ],
)
def test_d9_a_file_of_nothing_but_errors_is_cheap(tmp_path: Path, content: str) -> None:
    """Thousands of them are reported in a hundred sentences, with some work for each byte and no more."""
    file = tmp_path / "config.yaml"
    file.write_text(content, encoding="utf-8")
    reported = list[str]()
    calls_of(lambda: reported.extend(_error_of(file).splitlines()), most=20 * len(content))
    assert 0 < len(reported) <= 102


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_d9_a_file_in_another_encoding_is_rejected(tmp_path: Path, encoding: str) -> None:
    """It names the line."""
    file = tmp_path / "config.yaml"
    file.write_bytes((BASE + "links: {page: Århus}\n").encode(encoding))
    assert re.search(r"config.yaml:[17]: expected UTF-8, found the byte 0x", _error_of(file))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("    any_version: no", "true or false, found 'no': write false"),
        ("    any_version: on", "true or false, found 'on': write true"),
        ("    any_version: True", "true or false, found 'True': write true"),
        ("    minimum_records: 010", "found 010: write it without leading zeros"),
        ("    minimum_records: 0o10", "found '0o10'"),
        ("    minimum_records: 1e3", "found '1e3': write 1000"),
        ("    minimum_records: 1_000", "found '1_000': write 1000"),
        ("    minimum_records: 12:30", "found '12:30'"),
        ("    minimum_records: +300", "found '+300': write 300"),
        ("    minimum_records: true", "found 'true'"),
        ("    stale_after: 12:30", "found '12:30'"),
        ("    stale_after: 7200", "found 7200: write 7200s for seconds"),
        ("    stale_after: -5m", "found '-5m'"),
        ("    version: 2.10", 'found 2.10: write it in quotes, "2.10"'),
        ("    version: 1e3", """found '1e3': write it in quotes, "1e3\""""),
        ("    version: false", """found 'false': write it in quotes, "false\""""),
        ("    version: .inf", """found '.inf': write it in quotes, ".inf\""""),
    ],
)
def test_d10_no_value_is_taken_for_another_one(write: Write, line: str, expected: str) -> None:
    """It is a mistake, and the sentence says what to write."""
    message = _error_of(write(line + "\n"))
    assert expected in message
    assert message.splitlines()[0].startswith(f"{write(line)}:7: models[0].{line.strip().partition(':')[0]}: expected ")


@pytest.mark.parametrize("text", ["no", "12:30", "2026-01-31", '"010"', "'2.10'", "v2.1", "0x", "1.2.3"])
def test_d10_a_text_is_what_is_written(write: Write, text: str) -> None:
    """Where a text is asked for, YAML's own idea of it plays no part."""
    config = read_config(write(f"    version: {text}\n"))
    assert config.models[0].version == text.strip("\"'")


@pytest.mark.parametrize("section", ["webhook", "heartbeat"])
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(f"url: {CANARY}", id="no scheme"),
        pytest.param(f"url: http://{CANARY}.example.org/", id="http"),
        pytest.param(f"url: ftp://{CANARY}.example.org/", id="another scheme"),
        pytest.param(f"url: 'https://user:{CANARY}@[::1'", id="broken host"),
        pytest.param(f"url: https://a:{CANARY}/", id="broken port"),
        pytest.param(f"url: 'https://a/ {CANARY}'", id="space"),
        pytest.param(f'url: "https://a/\\n{CANARY}"', id="newline"),
        pytest.param(f"url: [{CANARY}]", id="list"),
        pytest.param(f"url: {{a: {CANARY}}}", id="group"),
        pytest.param(f"url: https://a/{CANARY}, url_file: secret", id="both"),
        pytest.param(f"url: https://a/{CANARY}, timeout: 5", id="a mistake beside it"),
        pytest.param("url_file: secret", id="no address in the file"),
        pytest.param("url_file: lines", id="lines in the file"),
        pytest.param("url_file: large", id="a large file"),
        pytest.param("url_file: bytes", id="no text in the file"),
        pytest.param(f"url_file: {CANARY}", id="pasted as the name of the file"),
        pytest.param(f"url_file: https://a/{CANARY}", id="address as the name of the file"),
        pytest.param(f'url_file: "{CANARY}\\n"', id="pasted with its newline"),
        pytest.param(f"url_file: [{CANARY}]", id="list of files"),
    ],
)
def test_d2_a_secret_is_in_no_message(write: Write, section: str, settings: str) -> None:
    """Whatever is wrong with it, or beside it."""
    file = write(f"notify:\n  {section}: {{{settings}}}\n")
    (file.parent / "secret").write_text(f"{CANARY}\n")
    (file.parent / "lines").write_text(f"https://a/{CANARY}\nhttps://a/{CANARY}\n")
    (file.parent / "large").write_text(f"https://a/{CANARY}" * 10_000)
    (file.parent / "bytes").write_bytes(b"https://a/\xff" + CANARY.encode())
    message = _error_of(file)
    assert f"notify.{section}" in message
    assert CANARY not in message


@pytest.mark.parametrize("section", ["webhook", "heartbeat"])
def test_d2_a_secret_one_level_too_high_is_in_no_message(write: Write, section: str) -> None:
    """It is easily pasted there."""
    assert CANARY not in _error_of(write(f"notify:\n  {section}: https://a/{CANARY}\n"))
    assert CANARY not in _error_of(write(f"notify: https://a/{CANARY}\n"))


def test_d2_a_secret_is_not_in_what_is_shown_of_a_configuration(write: Write) -> None:
    """Neither in its representation nor in its remarks."""
    file = write(f"notify:\n  webhook: {{url: https://a/{CANARY}}}\n  heartbeat: {{url_file: secret}}\n")
    (file.parent / "secret").write_text(f" https://b/{CANARY}\n")
    config = read_config(file)
    assert config.webhook is not None
    assert config.heartbeat is not None
    assert (config.webhook.url, config.heartbeat.target.url) == (f"https://a/{CANARY}", f"https://b/{CANARY}")
    assert CANARY not in repr(config)
    assert len(config.remarks) == 1


@pytest.mark.parametrize(
    ("piped", "expected"),
    [
        pytest.param("config.yaml", "config.yaml: expected a file of settings, found a pipe or a device", id="itself"),
        pytest.param("secret", "notify.webhook.url_file: expected a file with a URL, found a pipe", id="url"),
        pytest.param("density.ref", "models[0].reference: expected a reference file, found a pipe", id="reference"),
    ],
)
def test_a_pipe_is_rejected_and_does_not_block(write: Write, piped: str, expected: str) -> None:
    """At a reload it would be the daemon that waits, and could no longer be stopped."""
    file = write("notify:\n  webhook: {url_file: secret}\n")
    (file.parent / "secret").write_text("https://hook.example/")
    (file.parent / piped).unlink()
    os.mkfifo(file.parent / piped)
    reported: list[str] = []

    def read() -> None:
        try:
            load_models(read_config(file))
        except ConfigError as error:
            reported.append(str(error))

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    reading.join(20.0)
    assert expected in "".join(reported)


GOOD_ADDRESSES = (
    "https://hook_1.example/a",
    "https://[2001:db8::1]/a",
    "https://u:p@hook.example/a",
    "HTTPS://hook.example",
    "https://hook.example?a=b",
)
BAD_ADDRESSES = (
    *(
        "https://hook.example/a#b",
        "https://hook.example:0/a",
        "https://ho%6fk.example/a",
        "https://hook.example:port/a",
    ),
    *(
        "https://[fe80::1%25eth0]/a",
        "https:///a",
        "//hook.example/a",
        "hook.example/a",
        "file:///etc/a",
        "https://[::1/",
    ),
    *(
        "ftp://hook.example/a",
        "http://hook.example/a",
        "https://hook.example:99999/a",
        "https://hook.example/a\r\nX: 1",
    ),
    *("https://hook.example/a b", "https://hook.example/ä", "https://*/"),
)


@pytest.mark.parametrize("address", GOOD_ADDRESSES + BAD_ADDRESSES)
def test_an_address_that_could_not_be_called_is_an_error_with_a_line(write: Write, address: str) -> None:
    """It is reported with the other errors, under its setting, and never shown."""
    file = write("notify:\n  webhook:\n    url_file: secret\n", BASE.replace("density\n", "density\n    colour: red\n"))
    (file.parent / "secret").write_text(address, encoding="utf-8")
    message = _error_of(file)
    assert (f"{file}:10: notify.webhook.url_file: expected " in message) == (address not in GOOD_ADDRESSES)
    assert f"{file}:6: models[0]: expected " in message
    assert address not in message
