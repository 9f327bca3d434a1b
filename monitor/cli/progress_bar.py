"""A progress bar for work that takes more than two seconds, on a terminal only."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from monitor.core.intervals import Progress

_PATIENCE_SECONDS = 2.0
_WIDTH = 40


@contextmanager
def progress_bar(what: str) -> Iterator[Progress]:
    """Yield a function to call with the share of work done; clear the bar at the end."""
    started = time.monotonic()
    shown = False

    def show(share: float) -> None:
        nonlocal shown
        passed = time.monotonic() - started
        if passed < _PATIENCE_SECONDS or sys.stderr is None or not sys.stderr.isatty():
            return
        shown = True
        done = round(_WIDTH * share)
        left = passed / share * (1.0 - share) if share else 0.0
        print(
            f"\r{what} [{'#' * done}{'.' * (_WIDTH - done)}] {share:4.0%}, {left:.0f} s left \033[K",
            end="",
            file=sys.stderr,
            flush=True,
        )

    try:
        yield show
    finally:
        if shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show the elapsed time from a thread, for work without known progress; clear it at the end."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    done = threading.Event()

    def show() -> None:
        started, shown, wait = time.monotonic(), False, _PATIENCE_SECONDS
        while not done.wait(wait):
            shown, wait = True, 1.0
            print(f"\r{what}, {time.monotonic() - started:.0f} s \033[K", end="", file=sys.stderr, flush=True)
        if shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    thread = threading.Thread(target=show, name="working", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
