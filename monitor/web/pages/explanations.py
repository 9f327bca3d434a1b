"""What each number on the pages means and when not to trust it; estimators by family."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Shown(StrEnum):
    """A kind of number on the pages."""

    ESTIMATE = "estimate"
    INTERVAL = "interval"
    REFERENCE_ACCURACY = "reference_accuracy"
    DROP = "drop"
    REALISED = "realised"
    LOWEST = "lowest"
    THRESHOLD = "threshold"
    COMPARED = "compared"
    DISAGREEMENT = "disagreement"
    CHANCE_DISAGREEMENT = "chance_disagreement"
    SET_SIZE = "set_size"
    EMPTY_SETS = "empty_sets"
    CLASS_SHARE = "class_share"
    RECORDS = "records"
    LAST_RECORD = "last_record"
    EVALUATED = "evaluated"
    STATE_SINCE = "state_since"
    ALERT_SINCE = "alert_since"
    REJECTED = "rejected"
    REFERENCE_RECORDS = "reference_records"
    REFERENCE_INTERVAL = "reference_interval"
    TEMPERATURE = "temperature"
    CONFIDENCE = "confidence"
    CALIBRATION_ERROR = "calibration_error"
    RELIABILITY = "reliability"
    CLASS_RECORDS = "class_records"


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a number means, and when not to trust it."""

    means: str
    caution: str


MEANINGS = {
    Shown.ESTIMATE: Meaning(
        "The share of correct predictions among the records of the window, as far as the model's confidence shows it.",
        "it cannot see mistakes that the model makes with high confidence; only labels can.",
    ),
    Shown.INTERVAL: Meaning(
        "The range of the accuracy if only chance separates these records from the reference.",
        "it covers chance, not change: after a shift the true accuracy can lie outside.",
    ),
    Shown.REFERENCE_ACCURACY: Meaning(
        "The accuracy on the labelled records from before deployment.",
        "it says nothing about patients and devices that the reference does not contain.",
    ),
    Shown.DROP: Meaning(
        "The reference accuracy minus the estimate, in percentage points.",
        "a drop smaller than half the interval may be chance.",
    ),
    Shown.REALISED: Meaning(
        "The accuracy according to labels that came later. It overrides every estimate.",
        "with few records it is coarse, and labelled records may differ from the others.",
    ),
    Shown.LOWEST: Meaning(
        "The lowest estimate in the time span that a point covers.",
        "the lowest of many estimates is partly low by chance.",
    ),
    Shown.THRESHOLD: Meaning(
        "The limit of an alert, which fires when the compared value stays beyond it for as long as the rule requires.",
        "a value on the right side of the threshold does not prove that all is well.",
    ),
    Shown.COMPARED: Meaning(
        "The value compared with the threshold: often an end of the interval, not the estimate itself.",
        "a held alert has none now and keeps its phase.",
    ),
    Shown.DISAGREEMENT: Meaning(
        "The difference between the highest and the lowest of the six members of the consensus.",
        "agreement proves little, since the members share a blind spot; disagreement means that no single estimate can be trusted.",
    ),
    Shown.CHANCE_DISAGREEMENT: Meaning(
        "The disagreement that chance alone explains in windows of this size.",
        "at the default level of 95%, one window in twenty exceeds it by chance.",
    ),
    Shown.SET_SIZE: Meaning(
        "The mean number of plausible classes per record; well over one means that the model is uncertain.",
        "it depends on each estimator's threshold: compare it with its own past, not with another estimator.",
    ),
    Shown.EMPTY_SETS: Meaning(
        "The share of records without any plausible class: none reaches the threshold that the reference set.",
        "some are normal; a rise is the warning.",
    ),
    Shown.CLASS_SHARE: Meaning(
        "How often each class is predicted now, and how often it was on the reference.",
        "other patients change it as well as a failing model: it shows where to look, not what is wrong.",
    ),
    Shown.RECORDS: Meaning(
        "The number of records in the window.",
        "fewer records make every interval wider.",
    ),
    Shown.LAST_RECORD: Meaning(
        "The time of the newest record.",
        "it comes from the sender's clock, which may be wrong.",
    ),
    Shown.EVALUATED: Meaning(
        "When these numbers were computed.",
        "if it is long ago, cpcmon has a problem and the numbers are out of date.",
    ),
    Shown.STATE_SINCE: Meaning(
        "Since when the window has been in its state: evaluated, or not evaluated for the given reason.",
        "a restart of cpcmon may reset it.",
    ),
    Shown.ALERT_SINCE: Meaning(
        "When the alert entered its phase.",
        "the cause began earlier: a window changes only as new records replace old ones.",
    ),
    Shown.REJECTED: Meaning(
        "The share of the latest records that could not be used.",
        "if it is high, the remaining records may not be representative.",
    ),
    Shown.REFERENCE_RECORDS: Meaning(
        "The number of labelled records that the reference was made from.",
        "many records of one hospital do not represent another.",
    ),
    Shown.REFERENCE_INTERVAL: Meaning(
        "The range of the accuracy on data of which the reference is a random sample.",
        "it does not cover how the reference was selected.",
    ),
    Shown.TEMPERATURE: Meaning(
        "How much the model's probabilities are flattened (above 1) or sharpened (below 1) to match the accuracy.",
        "it is one number for all classes; where the fit reached its bound, prefer the raw estimators.",
    ),
    Shown.CONFIDENCE: Meaning(
        "The model's mean confidence before scaling.",
        "confidence is not accuracy: compare it with the accuracy on the reference.",
    ),
    Shown.CALIBRATION_ERROR: Meaning(
        "The mean difference between confidence and accuracy, in percentage points.",
        "on the reference itself the scaled value looks slightly too good, since the scaling was fitted there.",
    ),
    Shown.RELIABILITY: Meaning(
        "The accuracy of records with about the same confidence; on the diagonal the two are equal.",
        "bins with few records are noisy; the bars below the diagram show the number of records.",
    ),
    Shown.CLASS_RECORDS: Meaning(
        "Records, correct predictions and predictions of each class in the reference.",
        "a class with a handful of records allows no conclusion, and a shift towards it cannot be estimated.",
    ),
}


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
