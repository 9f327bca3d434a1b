"""Why a JSON text is no record: the slow, careful look at what the fast decoder refused."""

import json
from math import isfinite

from monitor.decode.layout import Kind, Layout
from monitor.decode.rejections import Problem, Reason, listed, shown


class _HugeInteger:
    """Stands for an integer of more digits than any count or probability has."""

    def __repr__(self) -> str:
        return "a huge integer"


HUGE = _HugeInteger()


def load(text: str, expected: str) -> object | Problem:
    """Read JSON, also with the NaN and Infinity that Python writes, so that what is wrong can be named."""
    try:
        value: object = _DECODER.decode(text)
        # A lone surrogate is JSON by the letter, but no text that could ever be written out again. Only escapes name one.
        if "\\" in text:
            json.dumps(value, ensure_ascii=False, default=repr).encode()
    except RecursionError:
        return Problem(Reason.TOO_DEEP, "a flat record", "JSON nested too deep")
    except UnicodeEncodeError:
        return Problem(Reason.BAD_ENCODING, "text in UTF-8", "half a surrogate pair")
    except json.JSONDecodeError as error:
        # Where it goes wrong, and not what stands there: a record may name a patient.
        return Problem(Reason.BAD_JSON, expected, f"text that goes wrong at character {error.pos + 1}")
    except ValueError:
        return Problem(Reason.BAD_JSON, expected, "text that is no JSON")
    return value


def problem_of_output(value: object, kind: Kind) -> Problem | None:
    """Say why a value is not the vector, or the score, of a record; None when it is."""
    if kind is Kind.SCORE:
        return problem_of_number(value)
    match value:
        case list():
            items = value
        case dict():
            items = list(value.values())
        case None | bool() | str():
            return Problem(Reason.WRONG_TYPE, "a vector of numbers", shown_json(value))
        case _:
            return Problem(Reason.NOT_A_VECTOR, "a vector of numbers", shown_json(value))
    for item in items:
        if isinstance(item, list | dict):
            return Problem(Reason.NOT_A_VECTOR, "a vector of numbers", f"{shown(item)} inside it")
        if (problem := problem_of_number(item)) is not None:
            return problem
    return None


def problem_of_number(value: object) -> Problem | None:
    """Say why a value is no number."""
    if isinstance(value, _HugeInteger):
        return Problem(Reason.OUT_OF_RANGE, "a number", "a huge integer")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return Problem(Reason.WRONG_TYPE, "a number", shown_json(value))
    if not isfinite(value):
        return Problem(Reason.NOT_FINITE, "finite numbers", shown(value))
    return None


def problem_of_label(value: object) -> Problem | None:
    """Say why a value is no label of any class."""
    if isinstance(value, _HugeInteger):
        return Problem(Reason.OUT_OF_RANGE, "a class name or index", "a huge integer")
    usable = isinstance(value, str | int) or (isinstance(value, float) and isfinite(value))
    if isinstance(value, bool) or not usable:
        return Problem(Reason.WRONG_TYPE, "a class name or index", shown_json(value))
    return None


def problem_of_record(value: object, layout: Layout, columns: tuple[str, ...] | None) -> Problem | None:
    """Say why a JSON value is no record; None when nothing is wrong with it."""
    if not isinstance(value, dict):
        return Problem(Reason.WRONG_TYPE, "a JSON object", shown_json(value))
    for name in (layout.field,) if columns is None else columns:
        if name not in value:
            return Problem(Reason.MISSING_FIELD, f"a field {name!r}", _fields(value))
        problem = problem_of_output(value[name], layout.kind) if columns is None else problem_of_number(value[name])
        if problem is not None:
            return problem
    if layout.label_field is None:
        return None
    if layout.label_field not in value:
        return Problem(Reason.MISSING_FIELD, f"a field {layout.label_field!r}", _fields(value))
    return problem_of_label(value[layout.label_field])


def shown_json(value: object) -> str:
    """Return a value as messages show it, in the words of JSON; a text is not shown, since it may name a patient."""
    if isinstance(value, str):
        return f"a text of {len(value)} characters"
    return json.dumps(value) if value is None or isinstance(value, bool) else shown(value)


def _fields(record: dict[str, object]) -> str:
    # Field names are the user's own words, but a record is patient data: a name, never a value.
    return f"the fields {listed(tuple(record))}" if record else "no fields"


def _bounded_integer(digits: str) -> int | _HugeInteger:
    return int(digits) if len(digits) <= 19 else HUGE


_DECODER = json.JSONDecoder(parse_int=_bounded_integer)
