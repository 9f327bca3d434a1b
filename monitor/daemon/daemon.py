"""The daemon: builds the parts, starts them, stops them in order, reloads. The only file that knows them all."""

import logging
import os
import queue
import signal
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TookTooLong
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from monitor.config.config import Config
from monitor.config.config_watch import ConfigWatch
from monitor.config.reading import read_config
from monitor.config.references import load_models
from monitor.core.report import ModelReport
from monitor.daemon.build import Parts, References, build
from monitor.daemon.daemon_status import DaemonStatus
from monitor.daemon.runner import Runner
from monitor.daemon.watchdog import Notifier
from monitor.errors import CpcmonError, StateError
from monitor.evaluation.alert_state import TOLD, Told, told_as_bytes, told_from_bytes
from monitor.evaluation.schedule import cron_problem
from monitor.ingest.ingestion import Ingestion
from monitor.sinks.http_sender import check_targets
from monitor.state.store import State
from monitor.telemetry import DaemonFacts, HttpFacts, Telemetry
from monitor.web.pages.routes import standard_pages
from monitor.web.server.request import Pages
from monitor.web.server.web_server import WebServer

log = logging.getLogger("cpcmon")

_LOOK_SECONDS = 1.0
_RELOAD_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the command line says."""

    config_file: Path
    listen_address: str
    web_config_file: Path | None = None
    enable_lifecycle: bool = False
    watch_config: bool = False


class _Stop:
    """Asks the daemon's thread to end."""


@dataclass(frozen=True, slots=True)
class _Failed:
    """Tells the daemon's thread that it cannot go on."""

    error: BaseException


Wish = _Stop | _Failed | Future[str | None]
"""What the daemon's thread is asked to do; a future asks for a reload, and gets what was wrong."""


def read(path: Path, watch: ConfigWatch | None = None) -> tuple[Config, References]:
    """Read a configuration and open its references; raises ConfigError with every mistake."""
    config = read_config(path, cron_problem=cron_problem)
    if watch is not None:
        # Before they are opened, and even if they cannot be: one that is still being copied is taken once it is there.
        watch.watch_references(model.reference for model in config.models)
    check_targets(config)
    return config, {model.name: reference for model, reference in load_models(config)}


def _told(state: State, assembly: Parts) -> list[Told]:
    """Return the alerts of which people were told before the start."""
    kept = state.kept().get(TOLD)
    if kept is not None:
        return told_from_bytes(kept)
    return [one for judge in assembly.evaluators.values() for one in judge.told]


_STOPPING = "reload: expected cpcmon to go on, found it stopping"


def _answer(reloads: Sequence[Future[str | None]], problem: str | None) -> None:
    """Tell what was wrong to those who asked for a reload and were not told yet."""
    for wish in reloads:
        if not wish.done():
            wish.set_result(problem)


class Daemon:
    """One run of cpcmon. Everything here happens on the thread that calls `run`, but for what the web server asks."""

    def __init__(self, options: RunOptions) -> None:
        self._options = options
        self._wishes: queue.SimpleQueue[Wish] = queue.SimpleQueue()
        # First of all: to whom does not listen, the signal is the end, and systemd takes that end for a wanted one.
        signal.signal(signal.SIGHUP, lambda *_: self._wishes.put(Future()))
        # Before it is read: what changes in between is then noticed.
        self._watch = ConfigWatch(options.config_file)
        config, self._references = read(options.config_file, self._watch)
        self._standing = DaemonStatus(config, references=self._references)
        self._notifier = Notifier.from_environment()
        self._telemetry = Telemetry(self._facts)
        self._said = ""
        self._unwritten: dict[str, bytes | None] = {}
        """What the last work wanted to be kept, while the disk was full: the next one goes on from it."""
        self._server = WebServer(
            options.listen_address,
            self._pages(),
            options.web_config_file,
            hosts=lambda: self._standing.config.web_hosts,
        )

    def run(self) -> None:
        """Work until told to stop. Raises what ended it, when that was not a wish."""
        storage = self._standing.config.storage
        state = State.open(storage.path, allow_network=storage.allow_network)
        try:
            # Before the windows are rebuilt, which may take a while: whoever asks is told so.
            self._server.start()
            try:
                self._standing.state = state
                self._standing.history.restore(state.history())
                self._stop_when_told()
                self._serve(state)
            finally:
                self._server.stop()
        finally:
            state.close()

    def _serve(self, state: State) -> None:
        standing = self._standing
        try:
            self._begin(state, standing.config, self._references)
            self._telemetry.reloaded(self._standing.clock().now)
            standing.busy = None
            self._notifier.ready()
            log.info("cpcmon %s is ready on %s", version("cpcmon"), self._server.url)
            self._wait(state)
        finally:
            standing.busy = "stopping"
            self._notifier.stopping()
            try:
                self._end()
            finally:
                self._refuse_wishes()
                standing.outward.close()
            log.info("cpcmon has stopped")

    def _wait(self, state: State) -> None:
        """Do what is asked for, and look at the clocks in between."""
        watchdog = self._notifier.watchdog_seconds
        look = _LOOK_SECONDS if watchdog is None else min(_LOOK_SECONDS, watchdog / 3)
        while True:
            wishes = self._wished(look)
            reloads = [wish for wish in wishes if isinstance(wish, Future)]
            try:
                for wish in wishes:
                    if isinstance(wish, _Failed):
                        raise wish.error
                # Before any reload: whoever asks to stop must not wait for a thousand of them.
                if any(isinstance(wish, _Stop) for wish in wishes):
                    log.info("asked to stop")
                    return
                if reloads or self._changed():
                    # One for all: they ask for the file as it is now.
                    _answer(reloads, self._reload(state))
            finally:
                _answer(reloads, _STOPPING)
            self._look()

    def _wished(self, seconds: float) -> list[Wish]:
        """Return all that is asked for by now; wait so long for something to be."""
        wishes: list[Wish] = []
        try:
            wishes.append(self._wishes.get(timeout=seconds))
            while True:
                wishes.append(self._wishes.get_nowait())
        except queue.Empty:
            return wishes

    def _changed(self) -> bool:
        if not self._options.watch_config or not self._watch.changed(self._standing.clock().awake):
            return False
        log.info("the configuration file, or a reference that it names, has changed")
        return True

    def _look(self) -> None:
        if self._standing.work is not None:
            self._standing.work.look_at_the_clocks()
        if not self._standing.unhealthy():
            self._notifier.watchdog()
        sentence = self._standing.sentence()
        if sentence != self._said:
            self._said = sentence
            self._notifier.status(sentence)

    # Configurations

    def _begin(self, state: State, config: Config, references: References) -> None:
        """Put a configuration to work."""
        standing = self._standing
        assembly = build(config, references, state, self._unwritten, standing.history)
        for remark in config.remarks:
            log.warning("%s", remark)
        self._telemetry.configured(list(references))
        standing.outward.configured(config, _told(state, assembly))
        for name, model in assembly.ingestion.models.items():
            log.info("%s: %s", name, model.windows.memory())
        work = Runner(
            assembly,
            self._telemetry,
            standing.progress,
            publish=lambda report: self._publish(report, assembly.ingestion),
            retract=self._retract,
            failed=lambda error: self._wishes.put(_Failed(error)),
            shown=standing.outward.reports(),
            clock=standing.clock,
        )
        # Known before it is started: should that fail half way, it is still stopped in order.
        standing.work = work
        work.start()
        standing.config, standing.references, self._references = config, references, references
        # Not before it works: a configuration that is taken back must not have cost a model its history.
        standing.history.configured(references)

    def _publish(self, report: ModelReport, ingestion: Ingestion) -> None:
        self._standing.outward.publish(report)
        self._standing.history.note(report, report.at)
        self._keep_told(ingestion)

    def _retract(self, report: ModelReport) -> None:
        self._standing.outward.retract(report)
        # Its numbers end here, and not where the line would be drawn to by the next ones.
        self._standing.history.note(report, self._standing.clock().now)

    def _keep_told(self, ingestion: Ingestion) -> None:
        """Write down what the webhook has delivered: a message that waits when we are killed is sent after the start."""
        told = self._standing.outward.told()
        ingestion.keep(TOLD, None if told is None else told_as_bytes(told))

    def _end(self) -> None:
        """Let what is at work finish, and write it down."""
        if self._standing.work is not None:
            self._keep_told(self._standing.work.ingestion)
            self._standing.work.stop()
            self._unwritten = self._standing.work.ingestion.unwritten()
            self._standing.work = None

    def _reload(self, state: State) -> str | None:
        """Take over the configuration file as it is now; return what is wrong with it, and go on as before."""
        self._notifier.reloading()
        self._watch.mark_read()
        problem = self._take_over(state)
        self._standing.busy = None
        self._notifier.ready()
        if problem is None:
            self._telemetry.reloaded(self._standing.clock().now)
            log.info("the configuration was taken over")
        else:
            self._telemetry.reload_failed()
            log.error("reload failed, keeping the previous configuration: %s", problem)
        return problem

    def _take_over(self, state: State) -> str | None:
        standing = self._standing
        try:
            config, references = read(self._options.config_file, self._watch)
        except CpcmonError as error:
            return str(error)
        if config.storage != standing.config.storage:
            here, there = str(standing.config.storage.path), str(config.storage.path)
            return f"storage: expected {here!r} as at the start, found {there!r}: restart cpcmon to move it"
        before = standing.config, self._references
        standing.busy = "reloading"
        self._end()
        try:
            self._begin(state, config, references)
        except StateError:
            raise
        except CpcmonError as error:
            self._end()
            self._begin(state, *before)
            return str(error)
        return None

    # What the web server asks, on its own threads

    def _pages(self) -> Pages:
        standing = self._standing
        return standard_pages(
            standing.site(),
            metrics=lambda: standing.outward.metrics() + self._telemetry.page(),
            reload=self._ask_for_reload if self._options.enable_lifecycle else None,
            status=standing.document,
        )

    def _facts(self) -> DaemonFacts:
        counts = self._server.counts()
        closed = {str(why): count for why, count in counts.closed.items()}
        return self._standing.facts(HttpFacts(counts.open, counts.requests, closed, self._server.web_config_ok))

    def _ask_for_reload(self) -> str | None:
        wish: Future[str | None] = Future()
        self._wishes.put(wish)
        try:
            return wish.result(timeout=_RELOAD_SECONDS)
        except TookTooLong:
            return f"reload: expected an end within {_RELOAD_SECONDS:.0f} seconds, found it still under way"

    def _refuse_wishes(self) -> None:
        """Answer those who still wait for a reload."""
        _answer([wish for wish in self._wished(0.0) if isinstance(wish, Future)], _STOPPING)

    # Signals

    def _stop_when_told(self) -> None:
        asked = False

        def stop(*_: object) -> None:
            nonlocal asked
            if asked:
                os._exit(1)  # asked twice: at once. What is committed is safe, whatever the instant
            asked = True
            self._wishes.put(_Stop())

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
