"""Coverage of audited accuracy on the shifted targets of real sets.

Of each target, 2% to 20% of the records are labelled, chosen by the keyed hashes of their ids, with a fresh key each of 500
times. The 95% interval should contain the accuracy of the whole target in at least 92%, on every set with 50 or more labels,
also where the estimate without labels is far off. Its width is compared with that of the labels alone. Needs
../shared/real_sets.
"""

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.coverage import REAL_SETS, labelled
from monitor.core.calibration import calibrate
from monitor.core.change import MEMBERS
from monitor.core.estimate import HEADLINE, Estimate
from monitor.core.labels.audit import AuditSums, audited, prediction_powered
from monitor.core.scores import label_outputs
from monitor.core.totals import Gauge, member_values
from monitor.records.id_hash import hash_ids

SHARES = (0.02, 0.05, 0.1, 0.2)
REPETITIONS = 500
LOWEST, FEWEST_LABELS = 0.92, 50


class Row(NamedTuple):
    """What is found of a target, with one share labelled."""

    name: str
    accuracy: float
    headline: float
    share: float
    labels: float
    """The mean over the repetitions, as all below."""
    covered: float
    width: float
    alone: float
    """The width of the interval of the labels alone."""


def audits(path: Path, repetitions: int = REPETITIONS, seed: int = 0, shares: Sequence[float] = SHARES) -> list[Row]:
    """Audit the target of a set so many times; with a larger share, the records of a smaller one are among the audited."""
    (source, labels), (target, truth) = labelled(path, "source"), labelled(path, "target")
    calibration = calibrate(label_outputs(source, labels))
    headline = calibration.estimate(target).estimators[HEADLINE]
    assert isinstance(headline, Estimate)  # noqa: S101 - targets are large enough
    confidence = member_values(Gauge(calibration), target)[MEMBERS.index("calibrated_confidence")]
    right = calibration.decision.decided(target) == truth
    accuracy, random = float(right.mean()), np.random.default_rng(seed)
    ids = [f"record-{i}" for i in range(len(right))]
    hashes = [hash_ids(ids, random.bytes(16)) for _ in range(repetitions)]
    found = []
    for share in shares:
        sums = _sums([np.flatnonzero(audited(one, share)) for one in hashes], right, confidence)
        _, lower, upper, _ = (column[sums.labels > 0] for column in prediction_powered(sums))
        nothing = np.zeros(repetitions)
        alone = prediction_powered(
            replace(sums, confidence=nothing, confidence_squared=nothing, confidence_right=nothing)
        )
        held = (lower - 1e-12 <= accuracy) & (accuracy <= upper + 1e-12)
        means = held, upper - lower, (alone.upper - alone.lower)[sums.labels > 0]
        found.append(
            Row(
                path.stem,
                accuracy,
                headline.accuracy,
                share,
                float(sums.labels.mean()),
                *(float(one.mean()) for one in means),
            )
        )
    return found


def _sums(samples: Sequence[NDArray[np.intp]], right: NDArray[np.bool_], confidence: NDArray[np.float64]) -> AuditSums:
    """Return the sums of repetitions, as of windows."""
    rows = np.array(
        [
            (right[one].sum(), confidence[one].sum(), (confidence[one] ** 2).sum(), right[one] @ confidence[one])
            for one in samples
        ]
    )
    return AuditSums(
        labels=np.array([len(one) for one in samples]),
        right=rows[:, 0].astype(np.int64),
        confidence=rows[:, 1],
        confidence_squared=rows[:, 2],
        confidence_right=rows[:, 3],
        records=np.full(len(samples), len(right)),
        all_confidence=np.full(len(samples), confidence.sum()),
    )


def main() -> int:
    """Print the table; return 1 if a set misses the target."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.audit", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shares", type=float, nargs="+", default=SHARES)
    parser.add_argument("--sets", nargs="+", help="names of sets; all by default")
    asked = parser.parse_args()
    paths = [path for path in sorted(REAL_SETS.glob("*.npz")) if not asked.sets or path.stem in asked.sets]
    if not paths:
        print("audit: ../shared/real_sets is absent, so there is nothing to measure on")
        return 0
    with ProcessPoolExecutor() as pool:
        futures = [pool.submit(audits, path, asked.repetitions, asked.seed, asked.shares) for path in paths]
        found = [one.result() for one in futures]
    print(f"| set | accuracy | estimate off by | {' | '.join(f'{share:.0%} labelled' for share in asked.shares)} |")
    print(f"|---|--:|--:|{'--:|' * len(asked.shares)}")
    for rows in found:
        name, accuracy, headline = rows[0][:3]
        cells = " | ".join(map(_cell, rows))
        print(f"| {name} | {accuracy:.1%} | {100 * abs(headline - accuracy):.1f} | {cells} |")
    rows = [one for some in found for one in some]
    enough = [one for one in rows if one.labels >= FEWEST_LABELS]
    if not enough:
        return 0
    least = min(enough, key=lambda one: one.covered)
    narrower = [1.0 - one.width / one.alone for one in enough]
    print(
        f"\n{len(enough)} rows with {FEWEST_LABELS} or more labels; smallest coverage {least.covered:.1%}: {least.name}, {least.share:.0%}"
    )
    print(f"narrower than labels alone: {min(narrower):.0%} to {max(narrower):.0%}, mean {np.mean(narrower):.0%}")
    return 0 if least.covered >= LOWEST else 1


def _cell(row: Row) -> str:
    """Return coverage, and the width in points beside that of the labels alone; in brackets with few labels."""
    found = f"{row.covered:.1%}, {100 * row.width:.1f} / {100 * row.alone:.1f}"
    return found if row.labels >= FEWEST_LABELS else f"({found})"


if __name__ == "__main__":
    sys.exit(main())
