"""Label values: bounded, printable, and unique."""

from hashlib import blake2b

from monitor.core.segments import Segment, name_of

MOST_CHARACTERS = 200
_MARK = "~"
"""Precedes the digest of a value that was changed."""
_DIGEST_BYTES = 4


def label_value(text: str) -> str:
    """Return a string as a label value."""
    return _shown(text, text, ambiguous=False)


def segment_label(segment: Segment) -> str:
    """Return a segment as a label value."""
    # `site=A,scanner=2` may be two fields, or one field with an odd value.
    ambiguous = any(sign in part for pair in segment for part in pair for sign in ",=")
    return _shown(name_of(segment), repr(segment), ambiguous=ambiguous)


def quoted(value: str) -> str:
    """Return a label value in quotes, for the metrics page and PromQL."""
    escaped = value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return f'"{escaped}"'


def _shown(text: str, identity: str, *, ambiguous: bool) -> str:
    plain = text.isprintable() and len(text) <= MOST_CHARACTERS and _MARK not in text
    if plain and not ambiguous:
        return text
    # Cleaning may make two values equal, and Prometheus rejects a page with a duplicate series. The digest depends only
    # on the value, so that a label is stable.
    digest = blake2b(identity.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).hexdigest()
    printable = "".join(sign if sign.isprintable() else "_" for sign in text)
    return f"{printable[: MOST_CHARACTERS - len(digest) - 1]}{_MARK}{digest}"
