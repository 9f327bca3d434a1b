"""The page at `/rejects`: counts, reasons with a remedy, and pointers. Never the content of a record."""

from collections.abc import Mapping, Sequence
from html import escape

from monitor.records.rejections import Reason
from monitor.web.pages.page_frame import framed
from monitor.web.pages.wording import ago, clock
from monitor.web.server.request import Response
from monitor.web.site import RefusedRecord, Rejects, Site

MOST_POINTERS = 200
"""Shown; the state holds a few hundred."""
MOST_COUNTS = 500
"""Pairs of a source and a reason: sources are configured by hand, so this is never reached by honest means."""
_COUNTED = ("Source", "Reason", "Refused", "What it means", "How to mend it")
_POINTED = ("When", "Source", "Where", "Reason", "Line or record", "Offset", "Length", "Digest", "Shape")


def rejects_page(site: Site, _: Mapping[str, str]) -> Response:
    """Return the page."""
    rejects = site.rejects()
    main = f"""<h1>Rejects</h1>
<p>Records that cpcmon refused: they are in no window and in no estimate. Here stands where they are, never what they say.</p>
{_counts(rejects)}
{_latest(rejects.latest, site.now())}
{_FINDING}"""
    return framed(site, title="Rejects", here="/rejects", main=main)


_FINDING = """<section id="finding"><h2>How to find a record</h2>
<p>On the machine that cpcmon runs on, where people may read records:</p>
<ol><li>A file is called <code>file#</code> and eight digits, since names of files may tell of patients. Which is which:<br>
<code>cpcmon state STATE_FOLDER --files --inbox WATCHED_FOLDER</code></li>
<li>Its line is shown with <code>sed -n 17p FILE</code>, for line 17; or by offset and length, both in bytes:<br>
<code>tail -c +$((OFFSET + 1)) FILE | head -c LENGTH</code></li>
<li>A message of a topic stands as topic, partition and offset, and is read with the tools of Kafka.</li>
<li>The digest is a keyed hash of the line: equal digests are equal lines. The shape is types and lengths, no values.</li></ol>
<p>The same list lies in the state folder, in <code>rejected.jsonl</code>. Metrics count by source and reason:
<code>cpcmon_records_rejected_total</code>.</p></section>"""


def _counts(rejects: Rejects) -> str:
    counts = sorted(
        ((count, *pair) for pair, count in rejects.counts.items() if count), key=lambda one: (-one[0], *one[1:])
    )
    if not counts:
        text = "<p>No record has been refused since the state was made.</p>"
        return f'<section id="counts"><h2>By source and reason</h2>{text}</section>'
    rows = "".join(_count_row(*one) for one in counts[:MOST_COUNTS])
    total = sum(count for count, *_ in counts)
    return f"""<section id="counts"><h2>By source and reason</h2>
<div class="wide" data-key="counts"><table class="cards"><caption>{total:,} refused since the state was made, most frequent first</caption>
<thead><tr>{_head(_COUNTED)}</tr></thead><tbody>
{rows}</tbody></table></div>{_more(len(counts) - MOST_COUNTS)}</section>"""


def _count_row(count: int, source: str, reason: str) -> str:
    means, mend = explained(reason)
    cells = (f"<code>{escape(reason)}</code>", f"{count:,}", escape(means), escape(mend))
    told = "".join(f'<td data-name="{column}">{cell}</td>' for column, cell in zip(_COUNTED[1:], cells, strict=True))
    return (
        f'<tr data-source="{escape(source)}" data-reason="{escape(reason)}">'
        f'<th scope="row">{escape(source)}</th>{told}</tr>\n'
    )


def _latest(latest: Sequence[RefusedRecord], now: float) -> str:
    if not latest:
        return ""
    rows = "".join(_pointer_row(one, now) for one in latest[:MOST_POINTERS])
    shown = min(len(latest), MOST_POINTERS)
    return f"""<section id="latest"><h2>The latest</h2>
<div class="wide" data-key="latest"><table class="cards"><caption>The latest {shown:,}, newest first</caption>
<thead><tr>{_head(_POINTED)}</tr></thead><tbody>
{rows}</tbody></table></div>{_more(len(latest) - MOST_POINTERS)}</section>"""


def _pointer_row(one: RefusedRecord, now: float) -> str:
    cells = (
        escape(one.source),
        f"<code>{escape(one.origin)}</code>",
        f"<code>{escape(one.reason)}</code>",
        f"{one.number}",
        _known(one.offset),
        _known(one.length),
        _known(one.digest),
        _known(one.shape),
    )
    told = "".join(
        f'<td data-name="{column}"{" class=long" if column == "Shape" else ""}>{cell}</td>'
        for column, cell in zip(_POINTED[1:], cells, strict=True)
    )
    return f'<tr><th scope="row">{_when(one.at, now)}</th>{told}</tr>\n'


def _when(at: float, now: float) -> str:
    return f"{clock(at)}<br><small>{ago(now - at)}</small>"


def _known(value: str | int | None) -> str:
    if value is None:
        return '<span class="none">none</span>'
    # Without separators: other tools take an offset as it is.
    return f"{value}" if isinstance(value, int) else f"<code>{escape(value)}</code>"


def _head(columns: Sequence[str]) -> str:
    return "".join(f'<th scope="col">{column}</th>' for column in columns)


def _more(count: int) -> str:
    return f"<p>… and {count:,} more.</p>" if count > 0 else ""


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
