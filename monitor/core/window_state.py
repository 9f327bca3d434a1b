"""Whether anything can be said of a window now."""

from enum import StrEnum


class WindowState(StrEnum):
    """Whether a window's accuracy can be said, or why not. A closed list: its values become labels."""

    OK = "ok"
    WARMING = "warming"
    """It has never held enough records yet."""
    TOO_FEW_RECORDS = "too_few_records"
    """It once held enough records, and no longer does."""
    CATCHING_UP = "catching_up"
    """So much is unread that its records are of the past."""
    STALE = "stale"
    """No record has come for so long that its records are of the past."""
    NO_REFERENCE = "no_reference"
    """The model has no reference yet to judge it by."""
    VERSION_MISMATCH = "version_mismatch"
    """Most records that come are of another version than the reference's, and are kept out."""
    DEGRADED_INPUT = "degraded_input"
    """So many records are refused, or look so odd, that the others cannot speak for them."""
    ERROR = "error"
    """The estimate itself failed."""
