"""What each number on the pages means and when not to trust it; the estimators by family."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Shown(StrEnum):
    """A number that is shown."""

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
    """Two sentences on a number."""

    means: str
    doubt: str
    """When not to trust it; it goes on after a colon."""


MEANINGS = {
    Shown.ESTIMATE: Meaning(
        "The share of right answers among the records of the window, as far as the model's own sureness tells.",
        "it cannot see mistakes that the model makes with confidence; only labels can.",
    ),
    Shown.INTERVAL: Meaning(
        "Where the accuracy lies if nothing but chance separates these records from the reference.",
        "it speaks of chance, not of change: after a shift the truth can lie outside.",
    ),
    Shown.REFERENCE_ACCURACY: Meaning(
        "What share the model got right where the truth was known, before deployment.",
        "it says nothing of patients and devices that the reference did not hold.",
    ),
    Shown.DROP: Meaning(
        "How far the estimate lies under the reference accuracy, in points of a hundred.",
        "a drop smaller than half the interval may be chance.",
    ),
    Shown.REALISED: Meaning(
        "What share turned out right, by labels that came later; it decides over every estimate.",
        "of few records it is coarse, and those that get labels may not be like the others.",
    ),
    Shown.LOWEST: Meaning(
        "The lowest estimate within the stretch of time that a point stands for.",
        "the lowest of many is low by chance too.",
    ),
    Shown.THRESHOLD: Meaning(
        "Where an alert begins to count; it fires when it stays there for as long as its rule says.",
        "being on the right side of it does not mean that all is well, only that it was not crossed.",
    ),
    Shown.COMPARED: Meaning(
        "The number that was compared with the threshold: often an end of the interval, not the estimate itself.",
        "of a held alert there is none now, and the alert stays as it was.",
    ),
    Shown.DISAGREEMENT: Meaning(
        "How far the highest and the lowest of the six estimators behind the consensus are apart.",
        "that they agree proves little, since they share their blind spot; that they differ means that no single number"
        " deserves trust.",
    ),
    Shown.CHANCE_DISAGREEMENT: Meaning(
        "What disagreement stays under when only chance is at work, in windows of this size.",
        "at the usual level of 95%, one window in twenty exceeds it by chance.",
    ),
    Shown.SET_SIZE: Meaning(
        "How many classes are plausible for a record on average; well over one means that the model wavers.",
        "it depends on the threshold of each estimator: compare it with its own past, not with another's.",
    ),
    Shown.EMPTY_SETS: Meaning(
        "The share of records of which no class reaches the mark that the reference set: the model is unsure of all of them.",
        "some are normal; it is a rise that warns.",
    ),
    Shown.CLASS_SHARE: Meaning(
        "How often each class is predicted now, and how often it was on the reference.",
        "a change may come from other patients as well as from a model that errs: it shows where to look, not what is wrong.",
    ),
    Shown.RECORDS: Meaning(
        "How many records the window holds now.",
        "fewer make every interval wider.",
    ),
    Shown.LAST_RECORD: Meaning(
        "When the newest record was made.",
        "by the clock of whoever made it, which may be wrong.",
    ),
    Shown.EVALUATED: Meaning(
        "When these numbers were computed.",
        "if it lies far back, cpcmon itself has a problem, and the numbers are of the past.",
    ),
    Shown.STATE_SINCE: Meaning(
        "Since when the window has been as it is: judged, or not, and why.",
        "a restart of cpcmon may begin it anew.",
    ),
    Shown.ALERT_SINCE: Meaning(
        "When the alert came into its phase.",
        "what caused it began earlier: a window changes only as new records replace the old.",
    ),
    Shown.REJECTED: Meaning(
        "What share of the latest records could not be used.",
        "if it is high, those that are left may be of another kind, and the estimate speaks for them alone.",
    ),
    Shown.REFERENCE_RECORDS: Meaning(
        "How many labelled records the reference was made from.",
        "many records of one hospital do not speak for another.",
    ),
    Shown.REFERENCE_INTERVAL: Meaning(
        "Where the accuracy lies, by chance alone, on data of which the reference is a sample.",
        "it does not cover how the reference was chosen.",
    ),
    Shown.TEMPERATURE: Meaning(
        "By how much the model's probabilities are flattened (over 1) or sharpened (under 1) to fit what was right.",
        "one number for all classes; where the fit ran to its end, prefer the raw estimators.",
    ),
    Shown.CONFIDENCE: Meaning(
        "How sure the model is on average, before scaling.",
        "sureness is no accuracy: compare it with the share that was right.",
    ),
    Shown.CALIBRATION_ERROR: Meaning(
        "How far confidence and the share of right answers are apart, on average, in points.",
        "on the reference itself it looks a little too good, since the scaling was fitted there.",
    ),
    Shown.RELIABILITY: Meaning(
        "Of records with about this confidence, what share was right; on the diagonal the model means what it says.",
        "bins with few records jump about; their bars under the diagram show how many there are.",
    ),
    Shown.CLASS_RECORDS: Meaning(
        "How many records of each class the reference holds, how many were right, and how often it was predicted.",
        "of a class with a handful of records nothing can be said, and a shift towards it cannot be judged.",
    ),
}


@dataclass(frozen=True, slots=True)
class EstimatorFamily:
    """Estimators that share an idea."""

    title: str
    members: tuple[str, ...]
    does: str
    doubt: str
    """When not to trust it; it goes on after a colon."""


def _forms(*names: str) -> tuple[str, ...]:
    return tuple(form for name in names for form in (name, f"{name}_ts"))


FAMILIES = (
    EstimatorFamily(
        "Consensus",
        ("consensus",),
        "Listens to six of the estimators below (marked ●) and takes a low one among them, their lower quartile, since"
        " under change they tend to promise too much.",
        "where all six are misled in the same way, so is it: a model that errs with confidence misleads them all.",
    ),
    EstimatorFamily(
        "CPC-ACC, conformal at the reference accuracy",
        _forms("cpc_acc", "cpc_acc_anchored"),
        "Gives each record the set of classes that are plausible by the reference, and averages the probability inside it;"
        " the anchored form counts only how far that moved from the reference.",
        "the plain form is off even on its own reference; with many empty sets read it beside the set sizes.",
    ),
    EstimatorFamily(
        "CPC-AC, conformal at the window's confidence",
        _forms("cpc_ac", "cpc_ac_anchored"),
        "The same with sets cut at a level that follows how sure the model is now.",
        "an overconfident model sets its own level too high, above all in the form that is not scaled.",
    ),
    EstimatorFamily(
        "AC, average confidence",
        _forms("ac"),
        "Takes the model at its word: if it says 90% on average, 90% should be right.",
        "wrong from the start for a model that is overconfident, as most networks are; the scaled form mends that for the"
        " reference only.",
    ),
    EstimatorFamily(
        "DOC, difference of confidences",
        _forms("doc"),
        "Starts at the reference accuracy and adds the change in average confidence.",
        "a point of confidence lost need not be a point of accuracy lost; far from the reference it is a guess.",
    ),
    EstimatorFamily(
        "ATC-MC, thresholded confidence",
        _forms("atc_mc"),
        "Counts the records whose confidence passes a mark that was set where the reference gives back its own accuracy.",
        "coarse outputs, such as votes or saturated probabilities, leave few places to set the mark.",
    ),
    EstimatorFamily(
        "ATC-NE, thresholded entropy",
        _forms("atc_ne"),
        "The same with entropy, which also looks at how the rest of the probability is spread.",
        "as for ATC-MC; with two classes it sees nothing that ATC-MC does not.",
    ),
    EstimatorFamily(
        "Calibrated confidence",
        _forms("calibrated_confidence"),
        "Looks up, for each record, what share was right at that confidence on the reference, and averages.",
        "knows nothing of records less sure than any in the reference, and assumes that the same confidence still means"
        " the same.",
    ),
)


def form_words(name: str) -> str:
    """Return what distinguishes a member from the others of its family."""
    told = ["anchored"] if "_anchored" in name else []
    told.append("temperature-scaled" if name.endswith("_ts") else "raw")
    return "" if name == "consensus" else ", ".join(told)


def families_of(names: Iterable[str]) -> list[EstimatorFamily]:
    """Return the families, and in a last one those estimators that belong to none yet."""
    known = {name for family in FAMILIES for name in family.members}
    others = tuple(name for name in names if name not in known)
    if not others:
        return list(FAMILIES)
    return [
        *FAMILIES,
        EstimatorFamily("Others", others, "See the documentation of this release.", "until you have read it."),
    ]
