"""Replicas on a real broker, killed, stopped and frozen for a given time."""

import shutil
from dataclasses import replace
from pathlib import Path

from tests.kafka.broker import Cluster
from tests.kafka.jars import NoBroker
from tests.kafka.replicas.handover import hand_over
from tests.kafka.replicas.run import PLANS, Plan, run
from tests.torture.summary import Summary

_FAULTS_A_RUN = 25
"""After this many faults the replicas are compared with the oracle; the next run starts with an empty topic."""


def faults_of_replicas(summary: Summary, folder: Path, wanted: int) -> None:
    """Inject faults: range and cooperative assignors, with and without the state disk, small and large windows."""
    folder.mkdir()
    before, done, written = summary.kills, 0, 0
    try:
        with Cluster(folder / "broker") as broker:
            for plan in _plans(wanted):
                own = folder / f"run-{plan.seed}"
                own.mkdir()
                outcome = run(broker, own, plan)
                done += outcome.faults.total()
                written += outcome.written
                summary.kills = before + done
                summary.records += outcome.written
                summary.lost += outcome.verdict.lost
                summary.twice += outcome.verdict.twice
                summary.show(f"replicas ({plan})")
                if outcome.verdict.problems:
                    (own / "last_words.txt").write_text(outcome.last_words)
                    summary.problems += [f"{plan}: {problem} (see {own})" for problem in outcome.verdict.problems]
                else:
                    shutil.rmtree(own)
    except NoBroker as error:
        summary.problems.append(f"there is no Kafka broker: faults of replicas were NOT tried. {error}")
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding, and the rest goes on
        summary.problems.append(f"replicas: {type(error).__name__}: {error}")
    summary.say(f"faults of replicas: {done:,}, {written:,} messages written meanwhile")


def hand_overs(summary: Summary, folder: Path, wanted: int) -> None:
    """Kill a static member repeatedly between a revocation and its rejoin."""
    folder.mkdir()
    seconds = list[float]()
    try:
        with Cluster(folder / "broker") as broker:
            for number in range(wanted):
                own = folder / f"run-{number}"
                own.mkdir()
                outcome = hand_over(broker, own)
                seconds.append(outcome.seconds)
                summary.kills += 1
                summary.lost += outcome.verdict.lost
                summary.twice += outcome.verdict.twice
                summary.show(f"hand-overs ({outcome.seconds:.1f} s)")
                summary.problems += [f"hand-over {number}: {one} (see {own})" for one in outcome.verdict.problems]
    except NoBroker as error:
        summary.problems.append(f"there is no Kafka broker: hand-overs were NOT tried. {error}")
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding, and the rest goes on
        summary.problems.append(f"hand-overs: {type(error).__name__}: {error}")
    spread = f", read again after {min(seconds):.1f} to {max(seconds):.1f} s" if seconds else ""
    summary.say(f"static members killed before they rejoined: {len(seconds)}{spread}")


def _plans(wanted: int) -> list[Plan]:
    counts = [min(_FAULTS_A_RUN, wanted - start) for start in range(0, wanted, _FAULTS_A_RUN)]
    # Each of the plans at least once, however few are wanted.
    if len(counts) < len(PLANS):
        counts = [wanted // len(PLANS) + (place < wanted % len(PLANS)) for place in range(len(PLANS))]
    return [
        replace(PLANS[place % len(PLANS)], seed=100 + place, faults=count)
        for place, count in enumerate(counts)
        if count
    ]
