"""`cpcmon demo`: the live story; with `--tour` the commands on a generated example."""

import argparse
import contextlib
import re
import shlex
import signal
import socket
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from monitor.cli import main
from monitor.cli.parser import as_path
from monitor.cli.progress_bar import progress_bar
from monitor.cli.run import DEFAULT_ADDRESS
from monitor.demo.example_data import CLASSES, write_example
from monitor.errors import UsageError
from monitor.state.state_folder import no_folder


def tour(directory: Path) -> int:
    """Write the example and run each command, showing it first."""
    try:
        write_example(directory)
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        raise UsageError(f"--directory {directory}: expected a folder, found {no_folder(directory, error)}") from error
    place = shlex.quote(str(directory))
    plots = find_spec("matplotlib") is not None
    print(
        f"A generated example is in {place}/: a breast-density classifier, its labelled validation set, and unlabelled\n"
        "outputs from its own site (a) and from a new one (b) with another scanner and an older population."
    )
    steps = (
        (
            "Make a reference from the labelled set:",
            (
                f"calibrate --input {place}/validation_labelled.jsonl --model density --model-version 2.1"
                f" --classes {','.join(CLASSES)} --output {place}/density.ref"
            ),
        ),
        (
            "How accurate is the model at its own site? No labels are used.",
            f"estimate --reference {place}/density.ref --input {place}/site_a.jsonl",
        ),
        (
            "And at the new site, for each 500 records:",
            f"estimate --reference {place}/density.ref --input {place}/site_b.jsonl --window 500",
        ),
        (
            "Follow a folder into which results of both sites are dropped. What was read survives a kill.",
            f"watch {place}/inbox --reference {place}/density.ref --state {place}/state --segment-by site --once",
        ),
        (
            "The example knows its labels, so see how far off each estimator was:",
            (
                f"evaluate --source {place}/validation_labelled.jsonl --target {place}/site_b_labelled.jsonl"
                f" --classes {','.join(CLASSES)}" + (f" --plot {place}/site_b.html" if plots else "")
            ),
        ),
    )
    for what, command in steps:
        print(f"\n{what}\n$ cpcmon {command}\n")
        if code := main(shlex.split(command)):
            return code
    if plots:
        print(f"\nOpen {place}/site_b.html in a browser to see the last table drawn.")
    else:
        print("\nThe last table can be drawn too, where matplotlib is there: pip install 'cpcmon[plot]'")
    print(
        "For the daemon, with a page to look at:\n"
        f"$ cpcmon run --config.file {place}/tour.yaml\nand open http://127.0.0.1:9877/"
    )
    return 0


_BROKER = re.compile(r"[^\s:/@,]+:[0-9]{1,5}|\[[0-9A-Fa-f:.]+\]:[0-9]{1,5}")
_ANY_PORT = "127.0.0.1:0"


def register(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.description = (
        "Start a daemon on a story: a breast-density model at three hospitals, until a scanner is replaced and"
        " its images change. Everything is in one folder, and Ctrl-C ends it."
    )
    parser.epilog = "examples:\n  cpcmon demo\n  cpcmon demo --directory /tmp/example --seconds 300\n  cpcmon demo --kafka localhost:9092\n  cpcmon demo --tour"
    parser.add_argument("--directory", type=as_path, default=Path(".demo"), help="where to write (default: .demo)")
    parser.add_argument("--tour", action="store_true", help="show the offline commands on an example, without a daemon")
    parser.add_argument(
        "--kafka", metavar="HOST:PORT", help="feed the topic cpcmon-demo of this broker, not a directory"
    )
    parser.add_argument("--seconds", type=float, metavar="N", help="end after so many seconds (default: at Ctrl-C)")
    parser.add_argument(
        "--web.listen-address", dest="address", metavar="HOST:PORT",
        help=f"where to serve (default: {DEFAULT_ADDRESS}, or another port where that is taken)",
    )  # fmt: skip
    # For tests: the story in less time, with as many more records a second.
    parser.add_argument("--speed", type=float, default=1.0, help=argparse.SUPPRESS)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Play until told to stop."""
    if options.tour:
        return tour(options.directory)
    _check(options)
    # Only here, because other commands need none of it and it is slow to import.
    from monitor.demo.demo_folder import Folder  # noqa: PLC0415
    from monitor.demo.play import Wishes, play  # noqa: PLC0415

    folder = Folder(options.directory)
    place = shlex.quote(str(options.directory))
    with folder.held(), _interruptible():
        try:
            folder.empty()
            reference = folder.known_reference()
            if reference is None:
                _say(f"Making a reference of {place}/validation_labelled.jsonl; the next time it is there.")
                with progress_bar("replaying the reference") as progress:
                    reference = folder.make_reference(progress)
            wishes = Wishes(
                options.directory, _address(options.address), options.kafka, options.seconds, speed=options.speed
            )
            play(wishes, reference.calibration.accuracy, _say, coloured=sys.stdout is not None and sys.stdout.isatty())
        except KeyboardInterrupt:
            pass
        _say(
            f"The demo has ended, and nothing of it runs on. All that it wrote is in {place}/: files of an example, a reference,"
            " a configuration, the daemon's state and log; delete it when you like.\n"
            "Next: cpcmon demo --tour, or your own model: cpcmon calibrate --help"
        )
    return 0


def _check(options: argparse.Namespace) -> None:
    for flag, value in (("--seconds", options.seconds), ("--speed", options.speed)):
        if value is not None and not 0.0 < value < float("inf"):
            raise UsageError(f"{flag}: expected more than 0, found {value:g}")
    if options.kafka is not None and not _BROKER.fullmatch(options.kafka):
        raise UsageError(f"--kafka: expected HOST:PORT, found {options.kafka!r}")


def _say(text: str) -> None:
    """Tell at once, also where the output is a pipe."""
    print(text, flush=True)


def _address(wanted: str | None) -> str:
    """Return where to serve: as told, or where one expects it, or on any port that is free."""
    if wanted is not None:
        return wanted
    host, _, port = DEFAULT_ADDRESS.rpartition(":")
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, int(port)))
        except OSError:
            _say(f"{DEFAULT_ADDRESS} is taken by another program, so the page gets another port.")
            return _ANY_PORT
    return DEFAULT_ADDRESS


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let the first signal that asks for an end interrupt what is done, and no other disturb the end."""
    asking = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        # Where it is ignored, as under nohup, somebody wants the demo to outlive the terminal.
        asking.append(signal.SIGHUP)

    def interrupt(*_: object) -> None:
        for number in asking:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in asking}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
