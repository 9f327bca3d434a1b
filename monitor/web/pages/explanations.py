"""The estimators by family: what they do, and when not to trust them."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EstimatorFamily:
    """Estimators that share an idea."""

    title: str
    members: tuple[str, ...]
    does: str
    caution: str
    """When not to trust it."""


def _forms(*names: str) -> tuple[str, ...]:
    return tuple(form for name in names for form in (name, f"{name}_ts"))


FAMILIES = (
    EstimatorFamily(
        "Consensus",
        ("consensus",),
        "The lower quartile of six of the estimators below (marked ●). A low one, since estimators tend to be too high"
        " after a shift.",
        "if all six are wrong in the same way, so is the consensus: a model that errs with high confidence misleads all.",
    ),
    EstimatorFamily(
        "CPC-ACC, conformal at the reference accuracy",
        _forms("cpc_acc", "cpc_acc_anchored"),
        "Gives each record its set of plausible classes, by the reference, and averages the probability inside the set."
        " The anchored form removes the bias that this has on the reference.",
        "the plain form is biased even on its own reference; with many empty sets, look at the set sizes too.",
    ),
    EstimatorFamily(
        "CPC-AC, conformal at the window's confidence",
        _forms("cpc_ac", "cpc_ac_anchored"),
        "The same, with sets at a level that follows the model's current confidence.",
        "an overconfident model sets the level too high, above all in the raw form.",
    ),
    EstimatorFamily(
        "AC, average confidence",
        _forms("ac"),
        "The mean confidence: if it is 90%, 90% of the predictions should be correct.",
        "wrong for an overconfident model, as most networks are; temperature scaling corrects that for the reference"
        " only.",
    ),
    EstimatorFamily(
        "DOC, difference of confidences",
        _forms("doc"),
        "The reference accuracy plus the change in mean confidence.",
        "a point of confidence need not equal a point of accuracy; far from the reference it is a guess.",
    ),
    EstimatorFamily(
        "ATC-MC, thresholded confidence",
        _forms("atc_mc"),
        "The share of records whose confidence exceeds a threshold, chosen so that the reference yields its own accuracy.",
        "coarse outputs, such as votes or saturated probabilities, leave few choices for the threshold.",
    ),
    EstimatorFamily(
        "ATC-NE, thresholded entropy",
        _forms("atc_ne"),
        "The same with entropy, which also depends on how the remaining probability is spread.",
        "as for ATC-MC; with two classes the two are equivalent.",
    ),
    EstimatorFamily(
        "Calibrated confidence",
        _forms("calibrated_confidence"),
        "The mean, over records, of the reference accuracy at the same confidence.",
        "has no data below the lowest confidence in the reference, and assumes that a confidence still means the same"
        " accuracy.",
    ),
)


def form_words(name: str) -> str:
    """Return what distinguishes an estimator from the others of its family."""
    words = ["anchored"] if "_anchored" in name else []
    words.append("temperature-scaled" if name.endswith("_ts") else "raw")
    return "" if name == "consensus" else ", ".join(words)


def families_of(names: Iterable[str]) -> list[EstimatorFamily]:
    """Return the families; estimators without a family are in a last one."""
    known = {name for family in FAMILIES for name in family.members}
    others = tuple(name for name in names if name not in known)
    if not others:
        return list(FAMILIES)
    return [
        *FAMILIES,
        EstimatorFamily("Others", others, "See the documentation of this release.", "not described here."),
    ]
