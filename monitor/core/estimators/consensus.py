"""Consensus and disagreement of six estimators."""

import statistics
from collections.abc import Mapping

CONSENSUS = "consensus"

MEMBERS = (
    "atc_mc_ts",
    "atc_ne_ts",
    "doc_ts",
    "cpc_acc_anchored_ts",
    "cpc_ac_anchored_ts",
    "calibrated_confidence",
)
"""The members. Each returns the reference accuracy on the reference itself."""


def consensus(accuracies: Mapping[str, float]) -> float:
    """Return the lower quartile of the members: under shift they all tend to be too high.

    Like its members, it does not detect confident errors.
    """
    return statistics.quantiles([accuracies[member] for member in MEMBERS], n=4, method="inclusive")[0]


def disagreement(accuracies: Mapping[str, float]) -> float:
    """Return the highest minus the lowest member. If it is large, no estimate is reliable."""
    values = [accuracies[member] for member in MEMBERS]
    return max(values) - min(values)
