"""The log: one line per event, whatever the values contain."""

import io
import json
import logging
import os
import re
import sys
import threading
from collections.abc import Iterator

import pytest

from monitor.daemon import logs
from monitor.daemon.logs import LogFormat

log = logging.getLogger("cpcmon")

UNUSUAL = [
    pytest.param("a\nts=2026-11-16T13:00:00.000Z level=error msg=forged", id="newline"),
    pytest.param("a\r\nb", id="carriage return"),
    pytest.param("a\x00b\x1b[31mred\x7f\x85", id="control characters"),
    pytest.param("a\u2028b\u2029c\u000bd\u000ce", id="other line separators"),
    pytest.param("\u202egpj.evil", id="right-to-left override"),
    pytest.param(os.fsdecode(b"bad\xff\xfe.jsonl"), id="undecodable bytes"),
    pytest.param("\ud83d lone surrogate", id="lone surrogate"),
    pytest.param('say "no" level=error \\', id="quotes, equals signs and backslashes"),
    pytest.param("", id="empty"),
    pytest.param("Zürich 病院", id="non-ASCII letters"),
]


@pytest.fixture(autouse=True)
def _restored_logging() -> Iterator[None]:
    """Restore the logging setup."""
    root, scheduler = logging.getLogger(), logging.getLogger("apscheduler")
    before = (list(root.handlers), root.level, log.level, scheduler.level, sys.excepthook, threading.excepthook)
    yield
    root.handlers, root.level, log.level, scheduler.level, sys.excepthook, threading.excepthook = before
    for logger in (root, log, scheduler):
        logger.setLevel(logger.level)  # clears the cached levels


def set_up(level: str = "info", format_: str = "logfmt") -> io.StringIO:
    """Set up logging and return its stream."""
    stream = io.StringIO()
    logging.getLogger().handlers = []  # pytest's handlers fail on undecodable bytes
    logs.set_up(level, format_, stream)
    return stream


def log_error(error: Exception, *words: str, **fields: object) -> None:
    """Raise, catch and log."""
    try:
        raise error
    except type(error):
        log.exception(*words, extra={"fields": fields})


def test_an_event_is_a_line_of_time_level_message_and_fields() -> None:
    stream = set_up()
    log.info("files were read", extra={"fields": {"model": "density", "records": 5000, "share": 0.5, "first": True}})
    stamp, _, rest = stream.getvalue().partition(" ")
    assert re.fullmatch(r"ts=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", stamp)
    assert rest == 'level=info msg="files were read" model=density records=5000 share=0.5 first=true\n'


def test_json_has_the_same_keys() -> None:
    """Numbers stay numbers; values that JSON does not have become strings."""
    stream = set_up(format_="json")
    log.warning("message", extra={"fields": {"model": "density", "records": 3, "value": float("nan"), "at": None}})
    line = json.loads(stream.getvalue())
    assert list(line) == ["ts", "level", "msg", "model", "records", "value", "at"]
    assert (line["level"], line["records"], line["value"], line["at"]) == ("warning", 3, "nan", None)


def test_the_time_is_that_of_the_event_in_utc() -> None:
    """To the millisecond."""
    record = logging.makeLogRecord({"created": 1794834000.1239, "msg": "x", "name": "cpcmon", "levelname": "INFO"})
    line = logs.LineFormatter(LogFormat.LOGFMT, tracebacks=False).format(record)
    assert line == "ts=2026-11-16T13:00:00.123Z level=info msg=x"


@pytest.mark.parametrize("format_", list(LogFormat))
@pytest.mark.parametrize("value", UNUSUAL)
def test_a35_no_value_splits_a_line(format_: LogFormat, value: str) -> None:
    """In the message, a field, a field name or an exception: one printable line."""
    stream = set_up("debug", format_)
    log_error(ValueError(value), "file %s", value, file=value, **{f"k{value}": 1})
    written = stream.getvalue()
    assert written.endswith("\n")
    assert written[:-1].isprintable()
    assert written.encode("utf-8").decode("utf-8") == written
    if format_ is LogFormat.JSON:
        assert json.loads(written)["level"] == "error"
    else:
        outside_quotes = re.sub(r'"(?:[^"\\]|\\.)*"', '""', written)
        assert re.findall(r"\w+(?==)", outside_quotes)[:3] == ["ts", "level", "msg"]
        assert outside_quotes.count("level=") == 1


@pytest.mark.parametrize("value", UNUSUAL)
def test_both_formats_have_the_same_values(value: str) -> None:
    values = []
    for format_ in LogFormat:
        stream = set_up(format_=format_)
        log.info("x", extra={"fields": {"file": value}})
        written = stream.getvalue().rstrip("\n")
        if format_ is LogFormat.JSON:
            values.append(json.loads(written)["file"])
        else:
            printed = written.partition(" file=")[2]
            values.append(json.loads(printed) if printed.startswith('"') else printed)
    assert values[0] == values[1]
    readable = value.encode("utf-8", "backslashreplace").decode()
    assert values[0] == readable.replace(r"\udc", r"\x")


def test_a34_an_undecodable_name_is_escaped() -> None:
    stream = set_up()
    log.info("skipped", extra={"fields": {"file": os.fsdecode(b"bad\xff.jsonl")}})
    assert r'file="bad\\xff.jsonl"' in stream.getvalue()


def test_tracebacks_are_logged_at_level_debug_only() -> None:
    lines = {}
    for level in ("info", "debug"):
        stream = set_up(level, "json")
        log_error(OSError(28, "No space left on device"), "could not write")
        lines[level] = json.loads(stream.getvalue())
    assert lines["info"]["error"] == "OSError: [Errno 28] No space left on device"
    assert "traceback" not in lines["info"]
    assert "test_logs.py" in lines["debug"]["traceback"]


def test_values_that_cannot_be_formatted_do_not_fail() -> None:

    class Unprintable:
        def __str__(self) -> str:
            raise RuntimeError

    stream = set_up()
    log.info("a %s", Unprintable(), extra={"fields": {"what": Unprintable(), "level": "mine"}})
    log.info("%d of %d", "many")  # noqa: PLE1206 - meant
    first, second = stream.getvalue().splitlines()
    assert "what=<Unprintable>" in first
    assert "level=info" in first
    assert "level_=mine" in first
    assert 'msg="%d of %d' in second


def test_a_very_long_value_is_cut() -> None:
    """Shorter than journald's limit of 48 KiB."""
    stream = set_up("debug", "json")
    log_error(ValueError("x" * 10**6), "y" * 10**6)
    assert len(stream.getvalue()) < 48 * 1024


def test_a_stream_with_another_encoding_gets_escapes() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    logs.set_up("info", "logfmt", stream)
    log.info("Zürich")
    assert b'msg="Z\\xfcrich"\n' in raw.getvalue()


def test_a_closed_standard_error_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with `2>&-`."""
    set_up()
    monkeypatch.setattr(sys, "stderr", None)
    logs.set_up("info", "logfmt", sys.stderr)
    log.info("ignored")


def test_a_closed_stream_is_ignored() -> None:
    stream = set_up()
    stream.close()
    log.info("x")


def test_the_level_applies_to_cpcmon_and_libraries_log_warnings_only() -> None:
    stream = set_up("debug")
    log.debug("ours")
    logging.getLogger("apscheduler.executors.default").info("ran a job")
    logging.getLogger("apscheduler.scheduler").warning("missed a job")
    first, second = stream.getvalue().splitlines()
    assert "level=debug msg=ours" in first
    assert 'level=warning msg="missed a job" logger=apscheduler.scheduler' in second
    stream = set_up("error")
    log.warning("ours")
    assert stream.getvalue() == ""


def test_a_second_set_up_replaces_the_first() -> None:
    first = set_up()
    second = set_up()
    log.info("once")
    assert first.getvalue() == ""
    assert second.getvalue().count("once") == 1


def test_an_unhandled_exception_is_one_line() -> None:
    """On any thread."""
    stream = set_up()
    logs.log_unhandled()

    def fail() -> None:
        raise ValueError("a\nb")

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    leaving = threading.Thread(target=sys.exit)
    leaving.start()
    leaving.join()
    sys.excepthook(KeyError, KeyError("c\nd"), None)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert r'error="ValueError: a\nb"' in lines[0]
    assert "error=" in lines[1]
