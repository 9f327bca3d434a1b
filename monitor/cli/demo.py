"""`cpcmon demo`: the live demo; with `--tour`, the offline commands on generated data."""

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
from monitor.errors import Problem, UsageError
from monitor.state.state_folder import folder_problem


def tour(directory: Path) -> int:
    """Write the example data, then print and run each command."""
    try:
        write_example(directory)
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        raise UsageError(Problem(f"--directory {directory}", "a folder", folder_problem(directory, error))) from error
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
            "Estimate the accuracy at its own site, without labels:",
            f"estimate --reference {place}/density.ref --input {place}/site_a.jsonl",
        ),
        (
            "And at the new site, per 500 records:",
            f"estimate --reference {place}/density.ref --input {place}/site_b.jsonl --window 500",
        ),
        (
            "Follow a directory that receives the results of both sites. The state survives a kill.",
            f"watch {place}/inbox --reference {place}/density.ref --state {place}/state --segment-by site --once",
        ),
        (
            "The example has labels, so compare each estimator with the truth:",
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
        print(f"\nOpen {place}/site_b.html in a browser to see the last table as a plot.")
    else:
        print("\nTo plot the last table, install matplotlib: pip install 'cpcmon[plot]'")
    print(
        "To run the daemon with its web pages:\n"
        f"$ cpcmon run --config.file {place}/tour.yaml\nand open http://127.0.0.1:9877/"
    )
    return 0


_BROKER = re.compile(r"[^\s:/@,]+:[0-9]{1,5}|\[[0-9A-Fa-f:.]+\]:[0-9]{1,5}")
_ANY_PORT = "127.0.0.1:0"


def register(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.description = (
        "Run a daemon on simulated data: a breast-density model at three hospitals that differ, where one scanner is"
        " replaced and its images change, and labels of some exams come later. Writes to one directory only. Stop with Ctrl-C."
    )
    parser.epilog = "examples:\n  cpcmon demo\n  cpcmon demo --directory /tmp/example --seconds 300\n  cpcmon demo --kafka localhost:9092\n  cpcmon demo --tour"
    parser.add_argument("--directory", type=as_path, default=Path(".demo"), help="output directory (default: .demo)")
    parser.add_argument(
        "--tour", action="store_true", help="run the offline commands on example data, without a daemon"
    )
    parser.add_argument(
        "--kafka",
        metavar="HOST:PORT",
        help="send records to the topic cpcmon-demo of this broker, and labels to cpcmon-demo-labels, instead of directories",
    )
    parser.add_argument("--seconds", type=float, metavar="N", help="stop after N seconds (default: at Ctrl-C)")
    parser.add_argument(
        "--web.listen-address", dest="address", metavar="HOST:PORT",
        help=f"address to listen on (default: {DEFAULT_ADDRESS}, or another port if that is in use)",
    )  # fmt: skip
    # For tests: play the story faster, with as many more records per second.
    parser.add_argument("--speed", type=float, default=1.0, help=argparse.SUPPRESS)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the demo until stopped."""
    if options.tour:
        return tour(options.directory)
    _check(options)
    # Imported late: slow, and not needed by other commands.
    from monitor.demo.demo_folder import Folder  # noqa: PLC0415
    from monitor.demo.play import DemoOptions, play  # noqa: PLC0415

    folder = Folder(options.directory)
    place = shlex.quote(str(options.directory))
    with folder.held(), _interruptible():
        try:
            folder.empty()
            reference = folder.known_reference()
            if reference is None:
                _say(f"Making a reference from {place}/{folder.labelled.name}; later runs reuse it.")
                with progress_bar("replaying the reference") as progress:
                    reference = folder.make_reference(progress)
            demo = DemoOptions(
                options.directory, _address(options.address), options.kafka, options.seconds, speed=options.speed
            )
            play(demo, reference.calibration.accuracy, _say, coloured=sys.stdout is not None and sys.stdout.isatty())
        except KeyboardInterrupt:
            pass
        _say(
            f"The demo has stopped. Its files are in {place}/: example data, a reference, a configuration, the daemon's"
            " state and log. Delete them when you like.\n"
            "Next: cpcmon demo --tour, or your own model: cpcmon calibrate --help"
        )
    return 0


def _check(options: argparse.Namespace) -> None:
    for flag, value in (("--seconds", options.seconds), ("--speed", options.speed)):
        if value is not None and not 0.0 < value < float("inf"):
            raise UsageError(Problem(flag, "more than 0", f"{value:g}"))
    if options.kafka is not None and not _BROKER.fullmatch(options.kafka):
        raise UsageError(Problem("--kafka", "HOST:PORT", repr(options.kafka)))


def _say(text: str) -> None:
    """Print without buffering, also to a pipe."""
    print(text, flush=True)


def _address(wanted: str | None) -> str:
    """Return the given address, or the default one if it is free, or any free port."""
    if wanted is not None:
        return wanted
    host, _, port = DEFAULT_ADDRESS.rpartition(":")
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, int(port)))
        except OSError:
            _say(f"{DEFAULT_ADDRESS} is in use, so the demo listens on another port.")
            return _ANY_PORT
    return DEFAULT_ADDRESS


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt on the first stop signal and ignore later ones."""
    stop_signals = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        # Ignored under nohup: the demo outlives the terminal.
        stop_signals.append(signal.SIGHUP)

    def interrupt(*_: object) -> None:
        for number in stop_signals:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in stop_signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
