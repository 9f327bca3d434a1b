"""The estimators as people should meet them: by family, with what each does and when not to trust it."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Family:
    """Estimators that share an idea."""

    title: str
    members: tuple[str, ...]
    does: str
    doubt: str
    """When not to trust it; it goes on after a colon."""


def _forms(*names: str) -> tuple[str, ...]:
    return tuple(form for name in names for form in (name, f"{name}_ts"))


FAMILIES = (
    Family(
        "Consensus",
        ("consensus",),
        "Listens to six of the estimators below (marked ●) and takes a low one among them, their lower quartile, since"
        " under change they tend to promise too much.",
        "where all six are misled in the same way, so is it: a model that errs with confidence misleads them all.",
    ),
    Family(
        "CPC-ACC, conformal at the reference accuracy",
        _forms("cpc_acc", "cpc_acc_anchored"),
        "Gives each record the set of classes that are plausible by the reference, and averages the probability inside it;"
        " the anchored form counts only how far that moved from the reference.",
        "the plain form is off even on its own reference; with many empty sets read it beside the set sizes.",
    ),
    Family(
        "CPC-AC, conformal at the window's confidence",
        _forms("cpc_ac", "cpc_ac_anchored"),
        "The same with sets cut at a level that follows how sure the model is now.",
        "an overconfident model sets its own level too high, above all in the form that is not scaled.",
    ),
    Family(
        "AC, average confidence",
        _forms("ac"),
        "Takes the model at its word: if it says 90% on average, 90% should be right.",
        "wrong from the start for a model that is overconfident, as most networks are; the scaled form mends that for the"
        " reference only.",
    ),
    Family(
        "DOC, difference of confidences",
        _forms("doc"),
        "Starts at the reference accuracy and adds the change in average confidence.",
        "a point of confidence lost need not be a point of accuracy lost; far from the reference it is a guess.",
    ),
    Family(
        "ATC-MC, thresholded confidence",
        _forms("atc_mc"),
        "Counts the records whose confidence passes a mark that was set where the reference gives back its own accuracy.",
        "coarse outputs, such as votes or saturated probabilities, leave few places to set the mark.",
    ),
    Family(
        "ATC-NE, thresholded entropy",
        _forms("atc_ne"),
        "The same with entropy, which also looks at how the rest of the probability is spread.",
        "as for ATC-MC; with two classes it sees nothing that ATC-MC does not.",
    ),
    Family(
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


def families_of(names: Iterable[str]) -> list[Family]:
    """Return the families, and in a last one those estimators that belong to none yet."""
    known = {name for family in FAMILIES for name in family.members}
    others = tuple(name for name in names if name not in known)
    if not others:
        return list(FAMILIES)
    return [*FAMILIES, Family("Others", others, "See the documentation of this release.", "until you have read it.")]
