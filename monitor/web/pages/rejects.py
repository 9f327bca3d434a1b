"""The page at `/rejects`: counts, reasons with a remedy, and pointers. Never the content of a record."""

from collections.abc import Mapping
from dataclasses import dataclass

from monitor.records.rejections import Reason
from monitor.web.pages.rendering import render
from monitor.web.server.request import Response
from monitor.web.site import Site

MOST_POINTERS = 200
"""Shown; the state holds a few hundred."""
MOST_COUNTS = 500
"""Pairs of a source and a reason that are shown."""


@dataclass(frozen=True, slots=True)
class RejectionCount:
    """How many records of a source were rejected for a reason."""

    source: str
    reason: str
    records: int
    means: str
    mend: str


def rejects_page(site: Site, _: Mapping[str, str]) -> Response:
    """Return the page."""
    rejects = site.rejects()
    counts = sorted(
        (
            RejectionCount(source, reason, count, *explained(reason))
            for (source, reason), count in rejects.counts.items()
            if count
        ),
        key=lambda one: (-one.records, one.source, one.reason),
    )
    return render(
        site,
        "rejects.html",
        title="Rejects",
        here="/rejects",
        counts=counts[:MOST_COUNTS],
        total=sum(one.records for one in counts),
        more_counts=len(counts) - MOST_COUNTS,
        latest=rejects.latest[:MOST_POINTERS],
        more_latest=len(rejects.latest) - MOST_POINTERS,
    )


REASONS = {
    Reason.NOT_FINITE: (
        "A number is NaN or infinite.",
        "Look for a division by zero or an overflow in the model or in its post-processing.",
    ),
    Reason.NEGATIVE: (
        "A probability is below 0.",
        "Often logits or log-probabilities: set the model's kind to what it sends, or send probabilities.",
    ),
    Reason.ABOVE_ONE: (
        "A probability is above 1.",
        "Often percentages or logits: set the model's kind to what it sends, or send probabilities.",
    ),
    Reason.BAD_SUM: (
        "The probabilities do not sum to 1, by more than rounding explains.",
        "Send all classes of the vector, unrounded, after one softmax over all of them.",
    ),
    Reason.WRONG_K: (
        "The vector has another number of classes than the reference.",
        "Look whether another model, or another version of it, writes there; a new version needs a reference of its own.",
    ),
    Reason.NOT_A_VECTOR: (
        "There is a single number, or numbers nested too deep, where a vector belongs.",
        "Send one flat list for each record; for one score a record set kind to score.",
    ),
    Reason.EMPTY: (
        "The vector, or the message, holds nothing.",
        "Look why the sender writes a record without an answer; leave such records out.",
    ),
    Reason.WRONG_TYPE: (
        "A value is a text, a truth value, null or something else that is no number.",
        "Send numbers as numbers, without quotes, and leave out what has none.",
    ),
    Reason.MISSING_FIELD: (
        "A field or column that is needed is not there.",
        "Map the name that the sender writes under fields, in the configuration of the source.",
    ),
    Reason.UNKNOWN_CLASS: (
        "The class names are not those of the reference.",
        "Send the names that the reference has, or make a reference for the new ones.",
    ),
    Reason.OUT_OF_RANGE: (
        "A number, or a number of classes, is absurdly large.",
        "Look for a wrong unit or a damaged field at the sender.",
    ),
    Reason.LABEL_OUT_OF_RANGE: (
        "The label is neither the name nor the index of a class.",
        "Send the label as a class name of the reference, or as its index.",
    ),
    Reason.BAD_ENCODING: (
        "The text is not UTF-8.",
        "Have the sender write UTF-8.",
    ),
    Reason.NUL_BYTES: (
        "The line holds zero bytes.",
        "Its writer stopped half way, or left padding: write the file anew, and move it into place only when it is whole.",
    ),
    Reason.BAD_JSON: (
        "The text is not JSON.",
        "Write one JSON object a line, with a library and not by hand; NaN is not JSON.",
    ),
    Reason.LINE_TOO_LONG: (
        "The line is too long to be a record.",
        "Look for a missing newline between records, or for images sent along.",
    ),
    Reason.TOO_DEEP: (
        "The JSON is nested too deep.",
        "Send flat records.",
    ),
    Reason.BAD_CSV: (
        "The row has more or fewer cells than the header, or broken quotes.",
        "Write the file with a CSV library, which quotes what holds a comma.",
    ),
    Reason.NOT_JSONL: (
        "The file is JSON over several lines, or something else, instead of one object a line.",
        "Write one object a line, without an array around them.",
    ),
    Reason.BAD_HEADER: (
        "The file's header lacks what is needed, or contradicts the file.",
        "Compare its columns with the names in the configuration.",
    ),
    Reason.BAD_FILE: (
        "The file is damaged, cut short, or not of the format its name says.",
        "Copy it again under another name, and move it into place only when it is whole.",
    ),
    Reason.PICKLE: (
        "The array holds Python objects, and reading those may run code.",
        "Save it as plain numbers, with allow_pickle=False.",
    ),
    Reason.TOO_LARGE: (
        "The file or message would need absurdly much memory.",
        "Send records in smaller files or messages.",
    ),
    Reason.UNKNOWN_MODEL: (
        "The record names a model that is not configured.",
        "Add the model to the configuration, or map the field that holds its name.",
    ),
    Reason.BAD_SEGMENT: (
        "The value of a field that splits records is no text, too long, or holds unusual characters.",
        "Send a short name of letters and digits for the site or scanner, and nothing of a patient.",
    ),
    Reason.BAD_TIMESTAMP: (
        "The time is no time: negative, no number, in another unit than seconds, or without a zone.",
        "Set time_unit or time_zone of the source, or send Unix seconds.",
    ),
    Reason.DUPLICATE_ID: (
        "A record with this id was counted before.",
        "Harmless where the sender repeats itself; if ids are reused for new records, those are lost: make them unique.",
    ),
    Reason.PARTIAL_TAIL: (
        "The last line of a file has had no newline for a long time.",
        "It is read as soon as it gets one: look whether its writer stopped half way.",
    ),
    Reason.BAD_BASE64: (
        "Packed numbers are no base64.",
        "Use the standard alphabet, with padding and without newlines.",
    ),
    Reason.BAD_BATCH: (
        "A column of a batch of records has another length than the batch.",
        "Write one value for all records of the batch, or one for each.",
    ),
}
"""What it means, and what to do."""
_OTHER = (
    "This version of cpcmon does not know the reason.",
    "Look for it in the notes of the version that counted it.",
)


def explained(reason: str) -> tuple[str, str]:
    """Return what a reason means and how to mend it."""
    known = next((one for one in REASONS if one.value == reason), None)
    return _OTHER if known is None else REASONS[known]
