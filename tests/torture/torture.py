"""`make torture`: kills, damaged states, random histories, faults of replicas, and fuzzing.

Prints a summary, and exits with 1 if any record was lost or duplicated.
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

_KILLS_PER_SITE = 25
"""Each site is compared and deleted after so many kills: large windows make starts slow."""


def random_kills(summary: Summary, folder: Path, wanted: int, *, rotate: bool) -> None:
    """Kill at random instants, several sites in parallel."""
    jobs = [
        (number, min(_KILLS_PER_SITE, wanted - number * _KILLS_PER_SITE))
        for number in range((wanted + _KILLS_PER_SITE - 1) // _KILLS_PER_SITE)
    ]

    def run_site(number: int, kills: int) -> None:
        site = Site(folder / f"random{number}", 500 if number % 2 else 1_000_000)
        before = kills_before = 0

        def progress(tally: Tally) -> None:
            nonlocal before, kills_before
            summary.kills += tally.kills - kills_before
            kills_before = tally.kills
            summary.records += site.write_log.written - before
            before = site.write_log.written
            summary.show("random kills")

        tally = kill_at_random(site, kills=kills, seed=1000 + number, rotate=rotate, progress=progress)
        summary.lost += tally.comparison.lost
        summary.duplicated += tally.comparison.duplicated
        _keep_or_remove(summary, f"random kills, site {number}", tally.comparison.problems, site)

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for done in [pool.submit(run_site, *job) for job in jobs]:
            try:
                done.result()
            except Exception as error:  # noqa: BLE001 - the others continue
                summary.problems.append(f"random kills: {type(error).__name__}: {error}")
    summary.add(f"random kills: {summary.kills:,}, {summary.records:,} records written")


def kills_at_calls(summary: Summary, folder: Path, most: int | None) -> None:
    """Kill at every system call on the state and the inbox."""
    if shutil.which("strace") is None:
        summary.problems.append("strace is not installed: kills at system calls were NOT tested")
        return
    points = killed = 0
    for first in (True, False):
        scene = Scene(folder / f"calls{int(first)}", first)
        for call, number, was_killed, comparison in sweep(scene, CALLS, most):
            points += 1
            killed += was_killed
            summary.kills += was_killed
            summary.lost += comparison.lost
            summary.duplicated += comparison.duplicated
            summary.problems += [f"{call} {number}, first={first}: {problem}" for problem in comparison.problems]
            summary.show(f"kills at system calls ({call} {number})")
    summary.add(f"kills at system calls: {killed:,} at {points:,} points")


def damaged_states(summary: Summary, folder: Path, many: int) -> None:
    """Damage a state in every way; no damage may go undetected or prevent a start."""
    folder.mkdir()
    outcomes: Counter[Outcome] = Counter()
    for damage, outcome, why in tried(make(folder), seed=2, many=many):
        outcomes[outcome] += 1
        if outcome not in {Outcome.HARMLESS, Outcome.NOTICED}:
            summary.problems.append(f"damaged state: {damage.kind}, {damage.where}: {outcome}: {why}")
    shutil.rmtree(folder)
    counted = ", ".join(f"{outcomes[one]:,} {one}" for one in Outcome)
    summary.add(f"damaged states: {outcomes.total():,}: {counted}")


def long_histories(summary: Summary, examples: int) -> None:
    """Run more and longer random histories than `make test`."""
    environment = {**os.environ, "TORTURE_EXAMPLES": str(examples), "TORTURE_STEPS": "50"}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "tests/torture/test_b_machine.py::TestB22"]
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        summary.problems.append(f"histories: {ran.stdout[-4000:]}")
    outcome = "failed" if ran.returncode else "no differences"
    summary.add(f"random histories: {examples:,} of up to 50 steps, {outcome}")


def fuzzing(summary: Summary, seconds: int) -> None:
    """Fuzz the decoder."""
    if importlib.util.find_spec("atheris") is None:
        summary.add("ATHERIS IS NOT INSTALLED (pip install 'cpcmon[torture]'): mutating valid files at random instead")
        try:
            tried = fuzz_at_random(seconds)
        except Exception as error:  # noqa: BLE001 - any exception is a finding
            summary.problems.append(f"fuzzing: {type(error).__name__}: {error}: {getattr(error, '__notes__', '')}")
        else:
            summary.add(f"fuzzing: {tried:,} files")
        return
    command = [sys.executable, "-m", "tests.torture.fuzz", str(seconds)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace", check=False)
    if ran.returncode != 0:
        summary.problems.append(f"fuzzing: {(ran.stdout + ran.stderr)[-4000:]}")
    last = [line for line in ran.stderr.splitlines() if line.startswith(("Done", "#"))][-1:]
    summary.add(f"fuzzing with atheris for {seconds} s: {' '.join(last)}")


def _keep_or_remove(summary: Summary, what: str, problems: list[str], site: Site) -> None:
    """Delete the files of a site unless there are problems."""
    if problems:
        summary.problems += [f"{what}: {problem} (see {site.folder})" for problem in problems]
    else:
        shutil.rmtree(site.folder)


def _print(summary: Summary) -> None:
    print("\nsummary")  # noqa: T201
    for line in summary.lines:
        print(f"  {line}")  # noqa: T201
    print(f"  total: {summary.kills:,} kills, {summary.lost} lost, {summary.duplicated} duplicated")  # noqa: T201
    for problem in summary.problems:
        print(f"  PROBLEM {problem}")  # noqa: T201


def main() -> int:
    """Run all parts, or the requested ones."""
    parser = argparse.ArgumentParser(prog="make torture", description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="kills at random instants (default: 1000)")
    parser.add_argument("--without-rotation", action="store_true", help="do not rotate files")
    parser.add_argument("--points", type=int, help="points per system call (default: all)")
    parser.add_argument("--damages", type=int, default=20, help="damaged states per kind (default: 20)")
    parser.add_argument("--examples", type=int, default=1000, help="random histories (default: 1000)")
    parser.add_argument("--faults", type=int, default=200, help="faults of Kafka replicas (default: 200)")
    parser.add_argument("--hand-overs", type=int, default=10, help="Kafka members killed before a rejoin (default: 10)")
    parser.add_argument("--fuzz-seconds", type=int, default=180, help="how long to fuzz (default: 180)")
    options = parser.parse_args()
    # Otherwise runs of cpcmon within this process would add log handlers.
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
    return 1 if summary.problems or summary.lost or summary.duplicated else 0


if __name__ == "__main__":
    sys.exit(main())
