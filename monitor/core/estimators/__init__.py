"""The list of estimators. To add one, write its file and add a line to ESTIMATORS."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from monitor.core.estimators.base import Estimator
from monitor.core.estimators.confidence import (
    AverageConfidence,
    CalibratedConfidence,
    DifferenceOfConfidences,
    ThresholdedConfidence,
    ThresholdedEntropy,
)
from monitor.core.estimators.conformal import (
    AnchoredAtAccuracy,
    AnchoredAtConfidence,
    ConformalAtAccuracy,
    ConformalAtConfidence,
    EmptySets,
)

_OTHER_EMPTY_SETS = {"skip": {"empty_sets": EmptySets.SKIP}, "zero": {"empty_sets": EmptySets.ZERO}}


@dataclass(frozen=True, slots=True)
class Member:
    """An estimator by name, with its variants: field values other than the default."""

    name: str
    family: type[Estimator]
    variants: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    def forms(self) -> Iterator["Form"]:
        """Yield the member's raw and scaled forms, each with its variants."""
        for scaled in (False, True):
            for variant in (None, *self.variants):
                yield Form(self, scaled, variant)


@dataclass(frozen=True, slots=True)
class Form:
    """A member, raw or scaled, in one of its variants."""

    member: Member
    scaled: bool
    variant: str | None
    name: str = field(init=False)
    """`cpc_acc`, or `cpc_acc_ts` when scaled."""
    full_name: str = field(init=False)
    """The name with the variant, `cpc_acc_ts[skip]`."""

    def __post_init__(self) -> None:
        """Compute the names once."""
        name = self.member.name + ("_ts" if self.scaled else "")
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "full_name", name + (f"[{self.variant}]" if self.variant else ""))


ESTIMATORS: tuple[Member, ...] = (
    Member("ac", AverageConfidence),
    Member("doc", DifferenceOfConfidences, {"absolute": {"absolute": True}}),
    Member("atc_mc", ThresholdedConfidence),
    Member("atc_ne", ThresholdedEntropy),
    Member("cpc_acc", ConformalAtAccuracy, _OTHER_EMPTY_SETS),
    Member("cpc_ac", ConformalAtConfidence, _OTHER_EMPTY_SETS),
    Member("cpc_acc_anchored", AnchoredAtAccuracy),
    Member("cpc_ac_anchored", AnchoredAtConfidence),
    Member("calibrated_confidence", CalibratedConfidence),
)

__all__ = ["ESTIMATORS", "EmptySets", "Estimator", "Form", "Member"]
