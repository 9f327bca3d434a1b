"""Worker threads for blocking work of the server.

Not `ThreadPoolExecutor`, which joins its threads at exit: a page that hangs would keep cpcmon from stopping.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Job:
    """Work, and the future that waits for its result."""

    work: Callable[[], Any]
    future: "asyncio.Future[Any]"
    loop: asyncio.AbstractEventLoop


class Workers:
    """Daemon threads with one queue."""

    def __init__(self, name: str, count: int) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True) for number in range(count)
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop the threads after the queued work, without waiting."""
        for _ in self._threads:
            self._jobs.put(None)

    async def run(self, work: Callable[[], T]) -> T:
        """Run work on a thread; returns its result or raises its exception. Cancelling drops queued work."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._jobs.put(_Job(work, future, loop))
        return await future

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if job.future.cancelled():
                continue
            try:
                result, error = job.work(), None
            except BaseException as raised:  # noqa: BLE001  passed to the caller
                result, error = None, raised
            try:
                job.loop.call_soon_threadsafe(_settle, job.future, result, error)
            except RuntimeError:
                # The event loop has stopped.
                return


def _settle(future: "asyncio.Future[Any]", result: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error if isinstance(error, Exception) else RuntimeError(type(error).__name__))
