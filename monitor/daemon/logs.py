"""The log: one line for each event, as logfmt or JSON, whatever the texts in it hold.

Names of files come from others and may hold newlines or bytes that are no text. Nothing in a value can end the line,
imitate another event, or make writing it fail.
"""

import json
import logging
import math
import re
import sys
import threading
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from types import TracebackType
from typing import Any, TextIO

from monitor.errors import UsageError


class LogFormat(StrEnum):
    """How a line looks."""

    LOGFMT = "logfmt"
    JSON = "json"


LEVELS: Mapping[str, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
"""What may be asked for. Both spellings of a warning, because Prometheus has the short one."""

_MOST = 8192
"""Characters of one value: the journal of systemd cuts lines at 48 KiB, and a cut line is two."""
_RESERVED = {"ts", "level", "msg", "logger", "error", "traceback"}
_BARE = re.compile(r"[A-Za-z0-9_.,:;/+@%#*()\[\]<>|~^!?$&-]+")
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t", '"': r"\"", "\\": r"\\"}

log = logging.getLogger("cpcmon")


def set_up(
    level: str,
    format: LogFormat | str = LogFormat.LOGFMT,  # noqa: A002 - named as the flag is
    stream: TextIO | None = None,
) -> None:
    """Send every event from now on to a stream (standard error unless told), in place of where it went before."""
    if level not in LEVELS:
        raise UsageError(f"log.level: expected {', '.join(LEVELS)}, found {level!r}")
    if format not in set(LogFormat):
        raise UsageError(f"log.format: expected {', '.join(LogFormat)}, found {format!r}")
    handler = _Handler(sys.stderr if stream is None else stream)
    handler.setFormatter(LineFormatter(LogFormat(format), tracebacks=LEVELS[level] == logging.DEBUG))
    root = logging.getLogger()
    for old in [one for one in root.handlers if isinstance(one, _Handler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    # Libraries are heard only when something is wrong; APScheduler tells of each job otherwise.
    root.setLevel(logging.WARNING)
    logging.getLogger("apscheduler").setLevel(logging.WARNING)
    log.setLevel(LEVELS[level])


def catch_strays() -> None:
    """Log what nobody caught, here or on another thread, as one line too: Python would print it over many."""
    sys.excepthook = _stray
    threading.excepthook = _stray_on_a_thread


def _stray(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
    log.error("an error that nobody expected", exc_info=(kind, error, where))


def _stray_on_a_thread(stray: threading.ExceptHookArgs) -> None:
    # A thread may end by SystemExit: that is no error.
    if stray.exc_value is not None and not isinstance(stray.exc_value, SystemExit):
        _stray(stray.exc_type, stray.exc_value, stray.exc_traceback)


class _Handler(logging.StreamHandler[TextIO]):
    """Writes lines, and is told apart from the handlers of others."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one event; a stream that is gone or full is nobody's error."""
        stream: TextIO | None = self.stream
        if stream is None:
            # There was no standard error from the start: cpcmon … 2>&-
            return
        try:
            line = self.format(record) + self.terminator
            try:
                self.stream.write(line)
            except UnicodeEncodeError:  # a stream that knows fewer characters than we do
                self.stream.write(line.encode("ascii", "backslashreplace").decode("ascii"))
            self.flush()
        except (OSError, ValueError):
            return


class LineFormatter(logging.Formatter):
    """One event as one line."""

    def __init__(self, format_: LogFormat, *, tracebacks: bool) -> None:
        super().__init__()
        self._write = _as_json if format_ is LogFormat.JSON else _as_logfmt
        self._tracebacks = tracebacks

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        pairs: dict[str, object] = {
            "ts": _stamp(record.created),
            "level": record.levelname.lower(),
            "msg": _message(record),
        }
        if record.name.partition(".")[0] != "cpcmon":
            pairs["logger"] = record.name
        fields = getattr(record, "fields", None)
        for key, value in fields.items() if isinstance(fields, Mapping) else ():
            name = re.sub(r"[^A-Za-z0-9_.-]", "_", _text(key)) or "_"
            pairs[f"{name}_" if name in _RESERVED else name] = value
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            pairs["error"] = f"{type(error).__name__}: {_text(error)}"
            if self._tracebacks:
                # The end tells what happened, so the end is what is kept.
                pairs["traceback"] = "".join(traceback.format_exception(error))[-_MOST:]
        return self._write({key: _plain(value) for key, value in pairs.items()})


def _stamp(at: float) -> str:
    moment = datetime.fromtimestamp(at, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}Z"


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - words and values that do not fit together are still an event
        return f"{_text(record.msg)} {_text(record.args)}"


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - whatever it is, it cannot say
        return f"<{type(value).__name__}>"


def _plain(value: object) -> Any:  # noqa: ANN401 - any value that JSON has
    """Return a value that both formats can hold: texts without halves of characters, and not too long."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    text = _text(value)
    if len(text) > _MOST:
        text = text[:_MOST] + "…"
    return re.sub("[\ud800-\udfff]", _undecoded, text)


def _undecoded(match: re.Match[str]) -> str:
    r"""Return a byte that was no text as \xff, which is how Python wrote it when it read the name."""
    code = ord(match.group())
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"\\u{code:04x}"


def _as_json(pairs: Mapping[str, object]) -> str:
    return json.dumps(pairs, separators=(",", ":"))


def _as_logfmt(pairs: Mapping[str, object]) -> str:
    return " ".join(f"{key}={_quoted(value)}" for key, value in pairs.items())


def _quoted(value: object) -> str:
    if not isinstance(value, str):
        return json.dumps(value)
    if _BARE.fullmatch(value):
        return value
    return '"' + "".join(_SHORT.get(char) or (char if char.isprintable() else _escaped(char)) for char in value) + '"'


def _escaped(char: str) -> str:
    return json.dumps(char)[1:-1]
