"""Commands to a running daemon: JSON, read strictly, executed between evaluations. No client input is echoed or logged."""

import json
import logging
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated

import msgspec
import numpy as np

from monitor.core.baselines.comparison import BaselineAction
from monitor.daemon.runner import Runner
from monitor.errors import StateError, UnknownName, UsageError
from monitor.evaluation.evaluator import LONGEST_MAINTENANCE, Evaluator

log = logging.getLogger("cpcmon")

_EXAMPLE = '{"command": "baseline", "model": "density", "segment": "site=A", "action": "reset"}'
_NOT_A_COMMAND = f"command: expected JSON such as {_EXAMPLE}, found something else"
_STORED = "done, and stored"
_NOT_STORED = "done, but not on disk yet, so a crash could undo it: see /-/ready for why the state cannot be written"
_TOO_LATE = "not done within a minute: it may still be; look again later"
_BUSY = "not done: cpcmon is starting, reloading or stopping; try again"


class BaselineCommand(msgspec.Struct, tag_field="command", tag="baseline", forbid_unknown_fields=True, frozen=True):
    """Resets or confirms the own baseline of a segment, which is named as on the page of the model."""

    model: str
    segment: str
    action: BaselineAction

    def change(self) -> Callable[[Evaluator], None]:
        """Return what changes the model."""
        return lambda one: one.change_baseline(self.segment, self.action)


class MaintenanceCommand(
    msgspec.Struct, tag_field="command", tag="maintenance", forbid_unknown_fields=True, frozen=True
):
    """Holds the evidence of a change for some time from now on; 0 seconds end it."""

    model: str
    seconds: Annotated[float, msgspec.Meta(ge=0.0, le=LONGEST_MAINTENANCE)]
    segment: str | None = None
    """None for all windows of the model."""

    def change(self) -> Callable[[Evaluator], None]:
        """Return what changes the model."""
        until = time.time() + self.seconds if self.seconds > 0.0 else 0.0
        return lambda one: one.hold_changes(until, self.segment)


class ForgetCommand(msgspec.Struct, tag_field="command", tag="forget", forbid_unknown_fields=True, frozen=True):
    """Deletes what is stored of some ids. They come as keyed hashes, never as themselves."""

    hashes: Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{16})+$")]
    """16 hexadecimal digits each, little-endian."""
    model: str | None = None
    """None for all models."""


AnyCommand = BaselineCommand | MaintenanceCommand | ForgetCommand
"""The union of all commands, told apart by `command`."""


def execute(body: bytes, runner: Runner | None) -> tuple[HTTPStatus, str]:
    """Execute a command; return the status and a sentence for the client. Blocks until the change is on disk."""
    try:
        command = msgspec.json.decode(body, type=AnyCommand)
    except (msgspec.DecodeError, ValueError, RecursionError):
        status, sentence = HTTPStatus.BAD_REQUEST, _NOT_A_COMMAND
    else:
        status, sentence = _executed(command, runner)
    log.info("command: %s", sentence)
    return status, sentence


def _executed(command: AnyCommand, runner: Runner | None) -> tuple[HTTPStatus, str]:
    if runner is None:
        return HTTPStatus.SERVICE_UNAVAILABLE, _BUSY
    try:
        if isinstance(command, ForgetCommand):
            hashes = np.frombuffer(bytes.fromhex(command.hashes), dtype="<u8").astype(np.uint64)
            return HTTPStatus.OK, json.dumps(runner.forget(hashes, command.model)._asdict())
        stored = runner.change(command.model, command.change())
    except UsageError as error:
        return HTTPStatus.NOT_FOUND if isinstance(error, UnknownName) else HTTPStatus.CONFLICT, str(error)
    except StateError as error:
        return HTTPStatus.SERVICE_UNAVAILABLE, f"not done: {error}"
    except TimeoutError:
        return HTTPStatus.SERVICE_UNAVAILABLE, _TOO_LATE
    return (HTTPStatus.OK, _STORED) if stored else (HTTPStatus.SERVICE_UNAVAILABLE, _NOT_STORED)
