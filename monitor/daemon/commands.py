"""Commands to a running daemon: JSON, read strictly, executed between evaluations. No client input is echoed or logged."""

import logging
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated

import msgspec

from monitor.core.baselines.comparison import BaselineAction
from monitor.daemon.runner import Runner
from monitor.errors import UnknownName, UsageError
from monitor.evaluation.evaluator import LONGEST_MAINTENANCE, Evaluator

log = logging.getLogger("cpcmon")

_EXAMPLE = '{"command": "baseline", "model": "density", "segment": "site=A", "action": "reset"}'
_NOT_A_COMMAND = f"command: expected JSON such as {_EXAMPLE}, found something else"
_STORED = "done, and stored"
_NOT_STORED = "done, but not on disk yet, so a crash could undo it: see /-/ready for why the state cannot be written"
_TOO_LATE = "not done within a minute: it may still be; list the baselines to see"
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


AnyCommand = BaselineCommand | MaintenanceCommand
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
        stored = runner.change(command.model, command.change())
    except UnknownName as error:
        return HTTPStatus.NOT_FOUND, str(error)
    except UsageError as error:
        return HTTPStatus.CONFLICT, str(error)
    except TimeoutError:
        return HTTPStatus.SERVICE_UNAVAILABLE, _TOO_LATE
    return (HTTPStatus.OK, _STORED) if stored else (HTTPStatus.SERVICE_UNAVAILABLE, _NOT_STORED)
