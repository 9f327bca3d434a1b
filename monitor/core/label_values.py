"""Texts as values of labels: bounded, printable, and different where the texts are."""

from hashlib import blake2b

from monitor.core.segments import Segment, name_of

MOST_CHARACTERS = 200
_MARK = "~"
"""Stands before the digest of a text that could not be shown as it is."""
_DIGEST_BYTES = 4


def label_value(text: str) -> str:
    """Return a text as the value of a label."""
    return _shown(text, text, ambiguous=False)


def segment_label(segment: Segment) -> str:
    """Return the name of a segment as the value of a label."""
    # `site=A,scanner=2` may be two fields, or one field with an odd value: only then does its name not tell.
    ambiguous = any(sign in part for pair in segment for part in pair for sign in ",=")
    return _shown(name_of(segment), repr(segment), ambiguous=ambiguous)


def quoted(value: str) -> str:
    """Return the value of a label within quotes, as both the metrics page and PromQL want it."""
    escaped = value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return f'"{escaped}"'


def _shown(text: str, identity: str, *, ambiguous: bool) -> str:
    plain = text.isprintable() and len(text) <= MOST_CHARACTERS and _MARK not in text
    if plain and not ambiguous:
        return text
    # Cleaning may make two texts one, and Prometheus refuses a whole page for one series that is there twice. The
    # digest depends on nothing else on the page, so that a label stays what it is when others come and go.
    digest = blake2b(identity.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).hexdigest()
    printable = "".join(sign if sign.isprintable() else "_" for sign in text)
    return f"{printable[: MOST_CHARACTERS - len(digest) - 1]}{_MARK}{digest}"
