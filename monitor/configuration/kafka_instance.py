"""By which name a process is known to its consumer group over restarts: written down, or found in a file.

Replicas share one configuration, and need a name each. Kubernetes can write the name of a pod into a file.
"""

from pathlib import Path

from monitor.configuration.plain_file import open_file
from monitor.configuration.section import Section
from monitor.configuration.text_kinds import FilePath, Text

_EXPECTED = "a file that holds a name in one line"
_MOST_BYTES = 1024


def instance_key(section: Section) -> str:
    """Return the setting that gives the name."""
    return "instance_id_file" if section.has("instance_id_file") else "instance_id"


def read_instance_id(section: Section, folder: Path) -> str | None:
    """Return the name; None without one, and after a mistake, which is noted."""
    name = section.get("instance_id", Text("a name that stays the same over restarts"), None)
    file = section.get("instance_id_file", FilePath(folder, "the path of a file that holds a name"), None)
    if file is None:
        return name
    if section.has("instance_id"):
        section.tell("instance_id_file", "either instance_id or instance_id_file", "both")
        return None
    return _line_in(section, file)


def _line_in(section: Section, file: Path) -> str | None:
    try:
        with open_file(file) as opened:
            text = opened.read(_MOST_BYTES).decode("utf-8").strip()
    except UnicodeDecodeError:
        section.tell("instance_id_file", _EXPECTED, "one that is not UTF-8")
    except (OSError, ValueError) as error:
        section.tell("instance_id_file", _EXPECTED, getattr(error, "strerror", None) or "a path that cannot be read")
    else:
        if text and text.isprintable():
            return text
        section.tell("instance_id_file", _EXPECTED, "something else" if text else "nothing")
    return None
