"""The daemon: builds the parts, runs them, reloads and stops. The only module that knows them all."""

import gc
import logging
import os
import queue
import signal
import sys
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from http import HTTPStatus
from importlib.metadata import version
from pathlib import Path

from monitor.config.config import Config
from monitor.config.reading import ConfigWatch, read_config
from monitor.config.references import load_models
from monitor.core.report import Report
from monitor.daemon.build import Parts, References, build
from monitor.daemon.commands import execute
from monitor.daemon.daemon_status import DaemonStatus
from monitor.daemon.runner import Runner
from monitor.daemon.watchdog import Notifier
from monitor.errors import CpcmonError, StateError
from monitor.evaluation.crontab import shortest_gap_seconds
from monitor.evaluation.stored_values import NOTIFIED_KEY, AlertKey, notified_as_bytes, notified_from_bytes
from monitor.ingest.ingestion import PendingValues
from monitor.state.store import State
from monitor.telemetry import DaemonFacts, HttpFacts, Telemetry
from monitor.web.pages.routes import OPENMETRICS, probe_pages, standard_pages
from monitor.web.server.request import Packed, Pages, Response
from monitor.web.server.web_server import WebServer

log = logging.getLogger("cpcmon")

_CHECK_SECONDS = 1.0
_SWITCH_SECONDS = 0.001
"""How long a thread may compute while others wait. With the default of 5 ms, a scrape during an evaluation, which waits dozens
of times, takes several times as long."""
_RELOAD_SECONDS = 300.0
_STOPPING = "reload: expected a running daemon, found it stopping"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of `cpcmon run`."""

    config_file: Path
    listen_address: str
    web_config_file: Path | None = None
    enable_lifecycle: bool = False
    watch_config: bool = False
    probe_address: str | None = None
    """Where probes are answered without TLS and passwords; None for nowhere."""


class _Stop:
    """Stop the daemon."""


@dataclass(frozen=True, slots=True)
class _Failed:
    """Stop the daemon with an error."""

    error: BaseException


Reload = Future[str | None]
"""Reload the configuration; the result is the problem, or None."""
Command = _Stop | _Failed | Reload
"""A command to the daemon's thread."""


def read(path: Path, watch: ConfigWatch | None = None) -> tuple[Config, References]:
    """Read a configuration and load its references; raises ConfigError with every problem."""
    config = read_config(path, shortest_gap_seconds)
    if watch is not None:
        # Before loading: a reference that cannot be loaded because it is still being copied is watched, too.
        watch.watch_references(model.reference for model in config.models)
    return config, {model.name: reference for model, reference in load_models(config)}


def _notified(state: State, parts: Parts) -> tuple[set[AlertKey], set[AlertKey]]:
    """Return the alerts that were notified before the start, and those whose last message may not have been delivered."""
    fired = {alert for evaluator in parts.evaluators.values() for alert in evaluator.fired}
    stored = state.values().get(NOTIFIED_KEY)
    notified = fired if stored is None else set(notified_from_bytes(stored))
    return notified, notified ^ fired


def _answer(reloads: Sequence[Reload], problem: str | None) -> None:
    for reload in reloads:
        if not reload.done():
            reload.set_result(problem)


class Daemon:
    """One run of cpcmon. Runs on the thread that calls `run`, except for the callbacks of the web server."""

    def __init__(self, options: RunOptions) -> None:
        self._options = options
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        # First: without a handler, SIGHUP kills the process, and systemd takes that for a clean exit.
        signal.signal(signal.SIGHUP, lambda *_: self._commands.put(Future()))
        # Before reading, so that a change in between is noticed.
        self._watch = ConfigWatch(options.config_file)
        config, self._references = read(options.config_file, self._watch)
        self._status = DaemonStatus(config, references=self._references)
        self._notifier = Notifier.from_environment()
        self._telemetry = Telemetry(self._facts)
        self._last_status_line = ""
        self._unwritten: dict[str, bytes | None] = {}
        """Values that the previous runner could not write to a full disk."""
        self._server = WebServer(
            options.listen_address,
            self._pages(),
            options.web_config_file,
            hosts=lambda: self._status.config.web_hosts,
        )
        probe = options.probe_address
        self._probes = None if probe is None else WebServer(probe, probe_pages(self._status.site()), None)

    def run(self) -> None:
        """Run until stopped; raises the error that ended the run."""
        sys.setswitchinterval(_SWITCH_SECONDS)
        gc.freeze()  # modules live as long as the process: no collection has to visit them while scrapes wait
        storage = self._status.config.storage
        state = State.open(storage.path, allow_network=storage.allow_network)
        try:
            # Serve while windows are restored, which may take a while.
            self._server.start()
            try:
                if self._probes is not None:
                    self._probes.start()
                self._status.state = state
                self._status.history.restore(state.history())
                self._handle_stop_signals()
                self._serve(state)
            finally:
                if self._probes is not None:
                    self._probes.stop()
                self._server.stop()
        finally:
            state.close()

    def _serve(self, state: State) -> None:
        status = self._status
        try:
            self._begin(state, status.config, self._references)
            self._telemetry.reloaded(status.clock().now)
            status.busy = None
            self._notifier.ready()
            log.info("cpcmon %s is ready on %s", version("cpcmon"), self._server.url)
            if self._probes is not None:
                log.info("probes are answered on %s", self._probes.url)
            self._loop(state)
        finally:
            status.busy = "stopping"
            self._notifier.stopping()
            try:
                self._end()
            finally:
                _answer([command for command in self._next_commands(0.0) if isinstance(command, Future)], _STOPPING)
                status.sinks.close()
            log.info("cpcmon has stopped")

    def _loop(self, state: State) -> None:
        """Execute commands and check clocks and health in between."""
        watchdog = self._notifier.watchdog_seconds
        seconds = _CHECK_SECONDS if watchdog is None else min(_CHECK_SECONDS, watchdog / 3)
        while True:
            commands = self._next_commands(seconds)
            reloads = [command for command in commands if isinstance(command, Future)]
            try:
                for command in commands:
                    if isinstance(command, _Failed):
                        raise command.error
                # Before any reload, so that a stop does not wait for queued reloads.
                if any(isinstance(command, _Stop) for command in commands):
                    log.info("stopping on request")
                    return
                if reloads or self._config_changed():
                    _answer(reloads, self._reload(state))
            finally:
                _answer(reloads, _STOPPING)
            self._check()

    def _next_commands(self, seconds: float) -> list[Command]:
        """Return all queued commands; wait up to `seconds` for the first."""
        commands: list[Command] = []
        try:
            commands.append(self._commands.get(timeout=seconds))
            while True:
                commands.append(self._commands.get_nowait())
        except queue.Empty:
            return commands

    def _config_changed(self) -> bool:
        if not self._options.watch_config or not self._watch.changed(self._status.clock().awake):
            return False
        log.info("the configuration file or one of its references has changed")
        return True

    def _check(self) -> None:
        if self._status.runner is not None:
            self._status.runner.check_clocks()
        if not self._status.unhealthy():
            self._notifier.watchdog()
        line = self._status.line()
        if line != self._last_status_line:
            self._last_status_line = line
            self._notifier.status(line)

    # Configurations

    def _begin(self, state: State, config: Config, references: References) -> None:
        """Build and start the parts of a configuration."""
        status = self._status
        parts = build(config, references, state, self._unwritten, status.history)
        for remark in config.remarks:
            log.warning("%s", remark)
        self._telemetry.configured(list(references))
        status.sinks.configured(config, *_notified(state, parts))
        for name, model in parts.ingestion.states.common.items():
            log.info("%s: %s", name, model.windows.memory())
        runner = Runner(
            parts,
            self._telemetry,
            status.watchdog,
            publish=lambda report: self._publish(report, parts.ingestion.values),
            retract=self._retract,
            failed=lambda error: self._commands.put(_Failed(error)),
            shown=status.sinks.reports(),
            clock=status.clock,
        )
        # Before starting, so that a runner that fails to start is stopped properly.
        status.runner, status.alert_histories = runner, parts.alert_histories
        runner.start()
        status.config, status.references, self._references = config, references, references
        # After starting, so that a configuration that is rolled back does not cost a model its history.
        status.history.configured(references)

    def _publish(self, report: Report, values: PendingValues) -> None:
        self._status.sinks.publish(report)
        self._status.history.note(report, report.at)
        self._keep_notified(values)

    def _retract(self, report: Report) -> None:
        self._status.sinks.retract(report)
        # A point in the history ends the line of the chart here.
        self._status.history.note(report, self._status.clock().now)

    def _keep_notified(self, values: PendingValues) -> None:
        """Store which alerts the webhook has delivered, so that the others are sent after a crash."""
        notified = self._status.sinks.notified()
        values.store(NOTIFIED_KEY, None if notified is None else notified_as_bytes(notified))

    def _end(self) -> None:
        """Stop the runner and store its state."""
        runner = self._status.runner
        if runner is not None:
            self._keep_notified(runner.parts.ingestion.values)
            runner.stop()
            self._unwritten = runner.parts.ingestion.values.unwritten()
            self._status.runner = None

    def _reload(self, state: State) -> str | None:
        """Reload the configuration; on a problem, return it and keep the previous configuration."""
        self._notifier.reloading()
        self._watch.mark_read()
        problem = self._replace_config(state)
        self._status.busy = None
        self._notifier.ready()
        if problem is None:
            self._telemetry.reloaded(self._status.clock().now)
            log.info("configuration reloaded")
        else:
            self._telemetry.reload_failed()
            log.error("reload failed, keeping the previous configuration: %s", problem)
        return problem

    def _replace_config(self, state: State) -> str | None:
        status = self._status
        try:
            config, references = read(self._options.config_file, self._watch)
        except CpcmonError as error:
            return str(error)
        if config.storage != status.config.storage:
            here, there = str(status.config.storage.path), str(config.storage.path)
            return f"storage: expected {here!r} as at the start, found {there!r}: restart cpcmon to move it"
        previous = status.config, self._references
        status.busy = "reloading"
        self._end()
        try:
            self._begin(state, config, references)
        except StateError:
            raise
        except CpcmonError as error:
            self._end()
            self._begin(state, *previous)
            return str(error)
        return None

    # Callbacks of the web server, on its threads

    def _pages(self) -> Pages:
        status = self._status
        return standard_pages(
            status.site(),
            metrics=self._metrics,
            reload=self._request_reload if self._options.enable_lifecycle else None,
            command=self._execute if self._options.enable_lifecycle else None,
            status=status.document,
        )

    def _metrics(self, content_type: str) -> Response:
        page = self._status.sinks.metrics()
        start = Packed(tuple(one.packed for one in page.texts), page.size, page.crc)
        # The part of the reports has gauges only, which both formats write alike.
        return Response(self._telemetry.page(openmetrics=content_type == OPENMETRICS), start=start)

    def _facts(self) -> DaemonFacts:
        counts = self._server.counts()
        closed = {str(why): count for why, count in counts.closed.items()}
        return self._status.facts(HttpFacts(counts.open, counts.requests, closed, self._server.web_config_ok))

    def _execute(self, body: bytes) -> tuple[HTTPStatus, str]:
        return execute(body, self._status.runner if self._status.busy is None else None)

    def _request_reload(self) -> str | None:
        reload: Reload = Future()
        self._commands.put(reload)
        try:
            return reload.result(timeout=_RELOAD_SECONDS)
        except FutureTimeout:
            return f"reload: expected it to finish within {_RELOAD_SECONDS:.0f} seconds, found it still running"

    def _handle_stop_signals(self) -> None:
        requested = False

        def stop(*_: object) -> None:
            nonlocal requested
            if requested:
                os._exit(1)  # the second signal exits at once; committed data is safe
            requested = True
            self._commands.put(_Stop())

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
