"""Consensus and disagreement: what six estimators say together."""

import statistics
from collections.abc import Mapping

CONSENSUS = "consensus"

VOICES = (
    "atc_mc_ts",
    "atc_ne_ts",
    "doc_ts",
    "cpc_acc_anchored_ts",
    "cpc_ac_anchored_ts",
    "calibrated_confidence",
)
"""The estimators that are heard. Each returns the reference accuracy on the reference itself."""


def consensus(accuracies: Mapping[str, float]) -> float:
    """Return the lower quartile of the voices: under shift they all tend to be too high.

    Shares the blindness of its voices: where all are misled by confident mistakes, so is the consensus.
    """
    return statistics.quantiles([accuracies[voice] for voice in VOICES], n=4, method="inclusive")[0]


def disagreement(accuracies: Mapping[str, float]) -> float:
    """Return the highest minus the lowest voice. When it is large, no number deserves trust."""
    heard = [accuracies[voice] for voice in VOICES]
    return max(heard) - min(heard)
