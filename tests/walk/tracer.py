"""Runs `cpcmon` and writes which of its functions a record passes: `python -m tests.walk.tracer run …`.

Tracing starts with SIGUSR1. The functions go to the file that WALK names, at the end of the process.
"""

import json
import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

import monitor
from monitor.cli import main

PACKAGE = str(Path(monitor.__file__).parent) + os.sep
STAGES = {
    "ingest": ("ingest/ingestion.py", "tick"),
    "evaluate": ("evaluation/evaluator.py", "evaluate"),
    "publish": ("sinks/manager.py", "publish"),
    "scrape": ("sinks/manager.py", "metrics"),
}
"""The functions that a record passes are those that these call, directly or not."""


class Tracer:
    """Notes the functions under each stage, in the order of their first call."""

    def __init__(self) -> None:
        self.on = False
        self.runs: dict[str, list[list[str]]] = {stage: [] for stage in STAGES}
        self._inside = threading.local()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Note one call; a profile function of `sys.setprofile`."""
        if not self.on or event not in {"call", "return"} or not frame.f_code.co_filename.startswith(PACKAGE):
            return
        inside = self._inside
        name = frame.f_code.co_filename[len(PACKAGE) :]
        called = frame.f_code.co_qualname.partition(".<locals>")[0]
        stage = next((one for one, at in STAGES.items() if at == (name, frame.f_code.co_name)), None)
        if stage is not None and event == "call":
            inside.frame, inside.functions = frame, {}
        functions = getattr(inside, "functions", None)
        if functions is None:
            return
        if event == "call" and not called.startswith("<"):
            functions.setdefault(f"{name}:{called}")
        elif event == "return" and inside.frame is frame and stage is not None:
            self.runs[stage].append(list(functions))
            inside.functions = None


def trace() -> int:
    """Run the command under the tracer."""
    tracer = Tracer()

    def start(*_: object) -> None:
        tracer.on = True

    signal.signal(signal.SIGUSR1, start)
    threading.setprofile(tracer)
    sys.setprofile(tracer)
    code = main(sys.argv[1:])
    tracer.on = False
    Path(os.environ["WALK"]).write_text(json.dumps(tracer.runs), encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(trace())
