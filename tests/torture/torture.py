"""`make torture`: a thousand kills, every system call, damaged states, long random histories, replicas under faults, fuzzing.

Everything that `make test` does of this in a minute or two, for as long as asked. Ends with a summary, and with exit
code 1 on any loss.
"""

import argparse
import importlib.util
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.state.damage import Outcome, make, tried
from tests.torture.fuzz import fuzz_at_random
from tests.torture.harness import ROOT, Site
from tests.torture.kills import Tally, kill_at_random
from tests.torture.replicas import faults_of_replicas, hand_overs
from tests.torture.summary import Summary
from tests.torture.syscalls import CALLS, Scene, sweep

_KILLS_A_SITE = 25
"""After this many kills the site is compared with the oracle and dropped: large windows make each start slow."""


def random_kills(summary: Summary, folder: Path, wanted: int, *, rotate: bool) -> None:
    """Kill at random instants, two sites at a time."""
    jobs = [
        (number, min(_KILLS_A_SITE, wanted - number * _KILLS_A_SITE))
        for number in range((wanted + _KILLS_A_SITE - 1) // _KILLS_A_SITE)
    ]

    def one(number: int, kills: int) -> None:
        site = Site(folder / f"random{number}", 500 if number % 2 else 1_000_000)
        before = kills_before = 0

        def told(tally: Tally) -> None:
            nonlocal before, kills_before
            summary.kills += tally.kills - kills_before
            kills_before = tally.kills
            summary.records += site.book.written - before
            before = site.book.written
            summary.show("random kills")

        tally = kill_at_random(site, kills=kills, seed=1000 + number, rotate=rotate, told=told)
        summary.lost += tally.verdict.lost
        summary.twice += tally.verdict.twice
        _keep_or_remove(summary, f"random kills, site {number}", tally.verdict.problems, site)

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for done in [pool.submit(one, *job) for job in jobs]:
            try:
                done.result()
            except Exception as error:  # noqa: BLE001 - the others go on
                summary.problems.append(f"random kills: {type(error).__name__}: {error}")
    summary.say(f"random kills: {summary.kills:,}, {summary.records:,} records written meanwhile")


def kills_at_calls(summary: Summary, folder: Path, most: int | None) -> None:
    """Kill at every system call that concerns state and inbox."""
    if shutil.which("strace") is None:
        summary.problems.append("strace is absent: kills at system calls were NOT tried")
        return
    points = killed = 0
    for first in (True, False):
        scene = Scene(folder / f"calls{int(first)}", first)
        for call, number, was_killed, verdict in sweep(scene, CALLS, most):
            points += 1
            killed += was_killed
            summary.kills += was_killed
            summary.lost += verdict.lost
            summary.twice += verdict.twice
            summary.problems += [f"{call} {number}, first={first}: {problem}" for problem in verdict.problems]
            summary.show(f"kills at system calls ({call} {number})")
    summary.say(f"kills at system calls: {killed:,} at {points:,} points")


def damaged_states(summary: Summary, folder: Path, many: int) -> None:
    """Damage a state in every way; none may silently change a number or prevent a start."""
    folder.mkdir()
    outcomes: Counter[Outcome] = Counter()
    for damage, outcome, why in tried(make(folder), seed=2, many=many):
        outcomes[outcome] += 1
        if outcome not in {Outcome.HARMLESS, Outcome.NOTICED}:
            summary.problems.append(f"damaged state: {damage.kind}, {damage.where}: {outcome}: {why}")
    shutil.rmtree(folder)
    counted = ", ".join(f"{outcomes[one]:,} {one}" for one in Outcome)
    summary.say(f"damaged states: {outcomes.total():,}: {counted}")


def long_histories(summary: Summary, examples: int) -> None:
    """Run more and longer random histories than `make test`."""
    environment = {**os.environ, "TORTURE_EXAMPLES": str(examples), "TORTURE_STEPS": "50"}
    words = [sys.executable, "-m", "pytest", "-q", "-n", "0", "tests/torture/test_b_machine.py::TestB22"]
    ran = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        summary.problems.append(f"histories: {ran.stdout[-4000:]}")
    outcome = "failed" if ran.returncode else "all as the oracle says"
    summary.say(f"random histories: {examples:,} of up to 50 steps, {outcome}")


def fuzzing(summary: Summary, seconds: int) -> None:
    """Fuzz the decoder."""
    if importlib.util.find_spec("atheris") is None:
        summary.say("ATHERIS IS NOT INSTALLED (pip install 'cpcmon[torture]'): changing good files at random instead")
        try:
            tried = fuzz_at_random(seconds)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            summary.problems.append(f"fuzzing: {type(error).__name__}: {error}: {getattr(error, '__notes__', '')}")
        else:
            summary.say(f"fuzzing: {tried:,} files")
        return
    words = [sys.executable, "-m", "tests.torture.fuzz", str(seconds)]
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, errors="replace", check=False)
    if ran.returncode != 0:
        summary.problems.append(f"fuzzing: {(ran.stdout + ran.stderr)[-4000:]}")
    last = [line for line in ran.stderr.splitlines() if line.startswith(("Done", "#"))][-1:]
    summary.say(f"fuzzing with atheris for {seconds} s: {' '.join(last)}")


def _keep_or_remove(summary: Summary, what: str, problems: list[str], site: Site) -> None:
    """Delete the files of a site unless something is wrong."""
    if problems:
        summary.problems += [f"{what}: {problem} (see {site.folder})" for problem in problems]
    else:
        shutil.rmtree(site.folder)


def _print(summary: Summary) -> None:
    print("\nsummary")  # noqa: T201
    for line in summary.lines:
        print(f"  {line}")  # noqa: T201
    print(f"  in all {summary.kills:,} kills, {summary.lost} lost, {summary.twice} twice")  # noqa: T201
    for problem in summary.problems:
        print(f"  PROBLEM {problem}")  # noqa: T201


def main() -> int:
    """Run all parts, or the requested ones."""
    parser = argparse.ArgumentParser(prog="make torture", description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="kills at random instants (default: 1000)")
    parser.add_argument("--without-rotation", action="store_true", help="let the writer rotate no file")
    parser.add_argument("--points", type=int, help="points for each system call (default: all)")
    parser.add_argument("--damages", type=int, default=20, help="damaged states of each kind (default: 20)")
    parser.add_argument("--examples", type=int, default=1000, help="random histories (default: 1000)")
    parser.add_argument("--faults", type=int, default=200, help="faults of Kafka replicas (default: 200)")
    parser.add_argument("--hand-overs", type=int, default=10, help="Kafka members killed before a rejoin (default: 10)")
    parser.add_argument("--fuzz-seconds", type=int, default=180, help="how long to fuzz (default: 180)")
    options = parser.parse_args()
    # Runs of our own process in this one would else set up logging to a stream of their own.
    logging.getLogger().addHandler(logging.NullHandler())
    folder = Path(tempfile.mkdtemp(prefix="torture-"))
    summary = Summary()
    if options.kills:
        random_kills(summary, folder, options.kills, rotate=not options.without_rotation)
    if options.points != 0:
        kills_at_calls(summary, folder, options.points)
    if options.damages:
        damaged_states(summary, folder / "damages", options.damages)
    if options.examples:
        long_histories(summary, options.examples)
    if options.faults:
        faults_of_replicas(summary, folder / "replicas", options.faults)
    if options.hand_overs:
        hand_overs(summary, folder / "hand-overs", options.hand_overs)
    if options.fuzz_seconds:
        fuzzing(summary, options.fuzz_seconds)
    _print(summary)
    if not summary.problems:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if summary.problems or summary.lost or summary.twice else 0


if __name__ == "__main__":
    sys.exit(main())
