"""The list `sources`: where records come from, and where things stand in them."""

from collections.abc import Callable, Mapping
from pathlib import Path

from monitor.config.config import SourceConfig, SourceOptions
from monitor.config.directory_settings import parted, read_directory
from monitor.config.kafka_settings import read_kafka
from monitor.config.models import NAME
from monitor.errors import UsageError
from monitor.records.record_schema import RecordFields, TimeUnit
from monitor.settings.kinds import ByName, Choice, Flag, ListOf, OneOf, Text
from monitor.settings.section import Section

SOURCE_TYPES: Mapping[str, Callable[[Section, Path], SourceOptions | None]] = {
    "directory": read_directory,
    "kafka": read_kafka,
}
"""What reads the settings of each type. To add one: write its file, add its line here."""

_TYPE = OneOf(tuple(SOURCE_TYPES), {})
_PLACE = Text("a field's name, or a dotted path")


def read_source(section: Section, folder: Path) -> SourceConfig | None:
    """Return one source; None after a mistake."""
    type_ = section.get("type", _TYPE)
    is_known = section.clean
    name = section.get("name", NAME)
    if not is_known:
        # Of a type that is not known, no setting is either.
        section.pass_over_rest()
        return None
    options = SOURCE_TYPES[type_](section, folder)
    models = section.get("models", ListOf(NAME, "a list of names of models"), ())
    store_raw = section.get("store_raw", Flag(), False)
    fields = _fields(section.section("fields"))
    if options is None or fields is None or not section.clean:
        return None
    return SourceConfig(name, options, fields, models, store_raw)


def _fields(section: Section) -> RecordFields | None:
    default = RecordFields()
    columns = ListOf(_PLACE, "a list of columns such as ['prob_*']", 1)
    values = {
        "probs": section.get("probs", _PLACE, None),
        "class_columns": section.get("class_columns", columns, None),
        "model": section.get("model", _PLACE, default.model),
        "version": section.get("version", _PLACE, default.version),
        "id": section.get("id", _PLACE, default.id),
        "time": section.get("time", _PLACE, default.time),
        "predicted": section.get("predicted", _PLACE, None),
        "segments": section.get("segments", ByName(_PLACE, _PLACE, "fields and where each stands"), {}),
        "time_unit": section.get("time_unit", Choice(TimeUnit), default.time_unit),
        "time_zone": section.get("time_zone", Text("the name of a time zone"), None),
    }
    if not section.clean:
        return None
    try:
        return RecordFields(**values)  # type: ignore[arg-type]  # each was read as its own kind
    except UsageError as error:
        where, expected, found = parted(str(error))
        key = "class_columns" if where == "class columns" else where.removeprefix("fields.").partition(".")[0]
        section.tell(key, expected, found)
        return None
