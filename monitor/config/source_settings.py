"""The list `sources`: name, type and fields, which all types have."""

from pathlib import Path

from monitor.config.config import SourceConfig
from monitor.config.models import NAME
from monitor.errors import UsageError
from monitor.records.record_schema import RecordFields, TimeUnit
from monitor.settings.kinds import Choice, Flag, ListOf, MapOf, OneOf, Text
from monitor.settings.section import Section
from monitor.sources.registry import SOURCE_TYPES

_TYPE = OneOf(tuple(SOURCE_TYPES), {})
_FIELD = Text("the name of a field, or a dotted path")


def read_source(section: Section, folder: Path) -> SourceConfig | None:
    """Return one source; None after a problem."""
    type_ = section.get("type", _TYPE)
    is_known = section.clean
    name = section.get("name", NAME)
    if not is_known:
        section.ignore_unknown_keys()
        return None
    options = SOURCE_TYPES[type_].read(section, folder)
    models = section.get("models", ListOf(NAME, "a list of names of models"), ())
    store_raw = section.get("store_raw", Flag(), False)
    fields = _fields(section.section("fields"))
    if options is None or fields is None or not section.clean:
        return None
    return SourceConfig(name, options, fields, models, store_raw)


def _fields(section: Section) -> RecordFields | None:
    default = RecordFields()
    columns = ListOf(_FIELD, "a list of columns such as ['prob_*']", 1)
    values = {
        "probs": section.get("probs", _FIELD, None),
        "class_columns": section.get("class_columns", columns, None),
        "model": section.get("model", _FIELD, default.model),
        "version": section.get("version", _FIELD, default.version),
        "id": section.get("id", _FIELD, default.id),
        "time": section.get("time", _FIELD, default.time),
        "predicted": section.get("predicted", _FIELD, None),
        "segments": section.get("segments", MapOf(_FIELD, _FIELD, "segment fields and their paths"), {}),
        "time_unit": section.get("time_unit", Choice(TimeUnit), default.time_unit),
        "time_zone": section.get("time_zone", Text("the name of a time zone"), None),
    }
    if not section.clean:
        return None
    try:
        return RecordFields(**values)  # type: ignore[arg-type]  # each value has the type of its field
    except UsageError as error:
        problem = error.problem
        assert problem is not None  # noqa: S101  RecordFields raises values
        key = "class_columns" if problem.where == "class columns" else problem.where.split(".")[1]
        section.report(key, problem.expected, problem.found)
        return None
