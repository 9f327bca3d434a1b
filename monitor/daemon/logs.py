"""Logging: one line per event, as logfmt or JSON.

File names may contain newlines or undecodable bytes. No value can end the line, forge another event, or make logging
fail.
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


class LogFormat(StrEnum):
    """The log formats."""

    LOGFMT = "logfmt"
    JSON = "json"


LEVELS: Mapping[str, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
"""Both spellings of a warning, because Prometheus has the short one."""

_MOST = 8192
"""Characters of one value: journald splits lines at 48 KiB."""
_RESERVED = {"ts", "level", "msg", "logger", "error", "traceback"}
_BARE = re.compile(r"[A-Za-z0-9_.,:;/+@%#*()\[\]<>|~^!?$&-]+")
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t", '"': r"\"", "\\": r"\\"}

log = logging.getLogger("cpcmon")


def set_up(
    level: str,
    format: LogFormat | str = LogFormat.LOGFMT,  # noqa: A002 - named like the flag
    stream: TextIO | None = None,
) -> None:
    """Log to a stream, standard error by default; replaces an earlier call. `level` is one of LEVELS."""
    handler = _Handler(sys.stderr if stream is None else stream)
    handler.setFormatter(LineFormatter(LogFormat(format), tracebacks=LEVELS[level] == logging.DEBUG))
    root = logging.getLogger()
    for old in [one for one in root.handlers if isinstance(one, _Handler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    # Libraries log warnings only; APScheduler would log each job.
    root.setLevel(logging.WARNING)
    logging.getLogger("apscheduler").setLevel(logging.WARNING)
    log.setLevel(LEVELS[level])


def log_unhandled() -> None:
    """Log unhandled exceptions of all threads as one line each."""
    sys.excepthook = _unhandled
    threading.excepthook = _unhandled_in_thread


def _unhandled(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
    log.error("unhandled exception", exc_info=(kind, error, where))


def _unhandled_in_thread(hook: threading.ExceptHookArgs) -> None:
    if hook.exc_value is not None and not isinstance(hook.exc_value, SystemExit):
        _unhandled(hook.exc_type, hook.exc_value, hook.exc_traceback)


class _Handler(logging.StreamHandler[TextIO]):
    """Writes lines; a type of its own, so that `set_up` can replace it."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one event; errors of the stream are ignored."""
        stream: TextIO | None = self.stream
        if stream is None:
            return  # cpcmon … 2>&-
        try:
            line = self.format(record) + self.terminator
            try:
                self.stream.write(line)
            except UnicodeEncodeError:  # a stream with another encoding
                self.stream.write(line.encode("ascii", "backslashreplace").decode("ascii"))
            self.flush()
        except (OSError, ValueError):
            return


class LineFormatter(logging.Formatter):
    """Formats one event as one line."""

    def __init__(self, format_: LogFormat, *, tracebacks: bool) -> None:
        super().__init__()
        self._write = _as_json if format_ is LogFormat.JSON else _as_logfmt
        self._tracebacks = tracebacks

    def format(self, record: logging.LogRecord) -> str:
        """Return the line without a newline."""
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
                # Keep the end: it holds the error.
                pairs["traceback"] = "".join(traceback.format_exception(error))[-_MOST:]
        return self._write({key: _plain(value) for key, value in pairs.items()})


def _stamp(at: float) -> str:
    moment = datetime.fromtimestamp(at, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}Z"


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - arguments that do not fit the format
        return f"{_text(record.msg)} {_text(record.args)}"


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - a broken __str__
        return f"<{type(value).__name__}>"


def _plain(value: object) -> Any:  # noqa: ANN401 - any JSON value
    """Return a JSON value: no lone surrogates, and not too long."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    text = _text(value)
    if len(text) > _MOST:
        text = text[:_MOST] + "…"
    return re.sub("[\ud800-\udfff]", _undecoded, text)


def _undecoded(match: re.Match[str]) -> str:
    r"""Return an undecodable byte as \xff; Python has decoded it to a lone surrogate."""
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
