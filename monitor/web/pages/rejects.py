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
    fix: str


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


REASONS: Mapping[str, tuple[str, str]] = {
    Reason.NOT_FINITE: (
        "A number is NaN or infinite.",
        "Look for a division by zero or an overflow in the model or its post-processing.",
    ),
    Reason.NEGATIVE: (
        "A probability is below 0.",
        "Often logits or log-probabilities: set the model's kind accordingly, or send probabilities.",
    ),
    Reason.ABOVE_ONE: (
        "A probability is above 1.",
        "Often percentages or logits: set the model's kind accordingly, or send probabilities.",
    ),
    Reason.BAD_SUM: (
        "The probabilities do not sum to 1; rounding does not explain the difference.",
        "Send the unrounded probabilities of all classes, from one softmax.",
    ),
    Reason.WRONG_K: (
        "The vector and the reference have different numbers of classes.",
        "Check whether another model or version writes to this source; a new version needs its own reference.",
    ),
    Reason.NOT_A_VECTOR: (
        "A single number, or a nested list, instead of a vector.",
        "Send one flat list per record; for one score per record, set kind to score.",
    ),
    Reason.EMPTY: (
        "The vector or the message is empty.",
        "Check why the sender writes records without a prediction, and leave them out.",
    ),
    Reason.WRONG_TYPE: (
        "A value is a string, a boolean, null or another type instead of a number.",
        "Send numbers without quotes, and leave out records without a value.",
    ),
    Reason.MISSING_FIELD: (
        "A required field or column is missing.",
        "Map the sender's field name under fields in the source's configuration.",
    ),
    Reason.UNKNOWN_CLASS: (
        "The class names differ from those of the reference.",
        "Send the reference's class names, or make a reference for the new ones.",
    ),
    Reason.OUT_OF_RANGE: (
        "A number, or the number of classes, is implausibly large.",
        "Look for a wrong unit or a corrupted field at the sender.",
    ),
    Reason.LABEL_OUT_OF_RANGE: (
        "The label is neither the name nor the index of a class.",
        "Send the label as a class name of the reference, or as its index.",
    ),
    Reason.BAD_ENCODING: (
        "The text is not UTF-8.",
        "Configure the sender to write UTF-8.",
    ),
    Reason.NUL_BYTES: (
        "The line contains NUL bytes.",
        "The writer stopped half-way or left padding: write the file again, and move it into place when it is complete.",
    ),
    Reason.BAD_JSON: (
        "The text is not JSON.",
        "Write one JSON object per line with a JSON library; NaN is not JSON.",
    ),
    Reason.LINE_TOO_LONG: (
        "The line is too long for a record.",
        "Look for missing newlines between records, or for embedded images.",
    ),
    Reason.TOO_DEEP: (
        "The JSON is nested too deeply.",
        "Send flat records.",
    ),
    Reason.BAD_CSV: (
        "The row has more or fewer cells than the header, or broken quotes.",
        "Write the file with a CSV library, which quotes cells that contain commas.",
    ),
    Reason.NOT_JSONL: (
        "The file is not JSON Lines: for example, one JSON document over several lines.",
        "Write one object per line, without an enclosing array.",
    ),
    Reason.BAD_HEADER: (
        "The header lacks a required column, or contradicts the file.",
        "Compare the columns with the field names in the configuration.",
    ),
    Reason.BAD_FILE: (
        "The file is damaged, truncated, or not of the format that its name says.",
        "Copy it again under another name, and move it into place when it is complete.",
    ),
    Reason.PICKLE: (
        "The array contains Python objects; reading them could run code.",
        "Save plain numbers, with allow_pickle=False.",
    ),
    Reason.TOO_LARGE: (
        "The file or message would need too much memory.",
        "Send records in smaller files or messages.",
    ),
    Reason.UNKNOWN_MODEL: (
        "The record names a model that is not configured.",
        "Add the model to the configuration, or map the field that contains its name.",
    ),
    Reason.BAD_SEGMENT: (
        "The value of a segment field is not a string, is too long, or contains unusual characters.",
        "Send a short name of letters and digits for the site or scanner, and no patient data.",
    ),
    Reason.BAD_TIMESTAMP: (
        "The timestamp is invalid: negative, not a number, in another unit than seconds, or without a time zone.",
        "Set time_unit or time_zone of the source, or send Unix seconds.",
    ),
    Reason.DUPLICATE_ID: (
        "A record with this id was already counted.",
        "Harmless if the sender sends records twice. If it reuses ids for new records, these are lost: make ids unique.",
    ),
    Reason.PARTIAL_TAIL: (
        "The last line of a file has had no newline for a long time.",
        "It is read as soon as the newline arrives: check whether the writer stopped half-way.",
    ),
    Reason.BAD_BASE64: (
        "Packed numbers are not valid base64.",
        "Use the standard alphabet, with padding and without newlines.",
    ),
    Reason.BAD_BATCH: (
        "A column of a batch of records has another length than the batch.",
        "Write one value for all records of the batch, or one per record.",
    ),
}
"""What each reason means, and how to fix it."""
_OTHER = (
    "This version of cpcmon does not know the reason.",
    "See the changelog of the version that counted it.",
)


def explained(reason: str) -> tuple[str, str]:
    """Return what a reason means and how to fix it."""
    return REASONS.get(reason, _OTHER)
