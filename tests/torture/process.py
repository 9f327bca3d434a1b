"""`cpcmon watch` with a detector of changes and a source of labels, which it does not have: kills are to spare neither."""

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

from monitor.cli import main, watch
from monitor.config.config import Config, LabelOptions, ModelConfig, SourceConfig
from monitor.core.alerts import AlertRule, AlertType
from monitor.records.record_schema import Carries
from monitor.sources.base import Lag, SourceStatus

LABELS = LabelOptions(horizon_seconds=1e9)
"""The written records are years old."""


def _with_labels(storage: Any, sources: tuple[SourceConfig, ...], models: tuple[ModelConfig, ...]) -> Config:
    """Return a configuration with a source of labels in the directory beside the watched one."""
    (inbox,) = sources
    options: Any = inbox.options
    labels = SourceConfig("labels", replace(options, path=options.path.parent / "labels"), carries=Carries.LABELS)
    return Config(storage, (inbox, labels), models)


def _status(self: Any) -> SourceStatus:
    """Return the status of the records, with the lag of both sources."""
    inbox, labels = self._view.sources()
    lag = Lag(files=inbox.lag.files + labels.lag.files, bytes=inbox.lag.bytes + labels.lag.bytes)
    status: SourceStatus = replace(inbox, lag=lag)
    return status


def run(arguments: Sequence[str]) -> int:
    """Run a command."""
    model = partial(ModelConfig, alerts=(AlertRule("drop", AlertType.CHANGE),), labels=LABELS)
    with ExitStack() as stack:
        for place, name, new in (
            (watch, "ModelConfig", model),
            (watch, "Config", _with_labels),
            (watch._Watch, "_status", _status),  # noqa: SLF001
        ):
            stack.enter_context(patch.object(place, name, new))
        return main(list(arguments))


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
