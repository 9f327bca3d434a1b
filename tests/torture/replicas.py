"""Faults of replicas on a real broker."""

import shutil
from dataclasses import replace
from pathlib import Path

from tests.kafka.broker import Cluster
from tests.kafka.jars import NoBroker
from tests.kafka.replicas.handover import hand_over
from tests.kafka.replicas.run import PLANS, Plan, run
from tests.torture.summary import Summary

_FAULTS_PER_RUN = 25
"""The replicas are compared after so many faults; the next run has a new topic."""


def faults_of_replicas(summary: Summary, folder: Path, wanted: int) -> None:
    """Inject faults: range and cooperative assignors, with and without the state, small and large windows."""
    folder.mkdir()
    before, done, written = summary.kills, 0, 0
    try:
        with Cluster(folder / "broker") as broker:
            for plan in _plans(wanted):
                own = folder / f"run-{plan.seed}"
                own.mkdir()
                outcome = run(broker, own, plan)
                done += outcome.faults.total()
                written += outcome.messages
                summary.kills = before + done
                summary.records += outcome.messages
                summary.lost += outcome.comparison.lost
                summary.duplicated += outcome.comparison.duplicated
                summary.show(f"replicas ({plan})")
                if outcome.comparison.problems:
                    (own / "log_tail.txt").write_text(outcome.log_tail)
                    summary.problems += [f"{plan}: {problem} (see {own})" for problem in outcome.comparison.problems]
                else:
                    shutil.rmtree(own)
    except NoBroker as error:
        summary.problems.append(f"no Kafka broker: faults of replicas were NOT tested. {error}")
    except Exception as error:  # noqa: BLE001 - any exception is a finding
        summary.problems.append(f"replicas: {type(error).__name__}: {error}")
    summary.add(f"faults of replicas: {done:,}, {written:,} messages written")


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
                summary.lost += outcome.comparison.lost
                summary.duplicated += outcome.comparison.duplicated
                summary.show(f"hand-overs ({outcome.seconds:.1f} s)")
                summary.problems += [f"hand-over {number}: {one} (see {own})" for one in outcome.comparison.problems]
    except NoBroker as error:
        summary.problems.append(f"no Kafka broker: hand-overs were NOT tested. {error}")
    except Exception as error:  # noqa: BLE001 - any exception is a finding
        summary.problems.append(f"hand-overs: {type(error).__name__}: {error}")
    spread = f", assigned again after {min(seconds):.1f} to {max(seconds):.1f} s" if seconds else ""
    summary.add(f"static members killed before they rejoined: {len(seconds)}{spread}")


def _plans(wanted: int) -> list[Plan]:
    counts = [min(_FAULTS_PER_RUN, wanted - start) for start in range(0, wanted, _FAULTS_PER_RUN)]
    # Every plan at least once.
    if len(counts) < len(PLANS):
        counts = [wanted // len(PLANS) + (place < wanted % len(PLANS)) for place in range(len(PLANS))]
    return [
        replace(PLANS[place % len(PLANS)], seed=100 + place, faults=count)
        for place, count in enumerate(counts)
        if count
    ]
