"""Files that hold a secret: read when the configuration is, so that one that is missing is told at once; never shown."""

from pathlib import Path

from monitor.configuration.plain_file import open_file
from monitor.configuration.section import Section
from monitor.configuration.text_kinds import SecretPath

_MOST_BYTES = 64 << 10


def secret_file(section: Section, key: str, folder: Path, what: str) -> Path | None:
    """Return the path of a file that holds a secret; None without one. `what` is "an address" or "a password"."""
    return section.get(key, SecretPath(folder, f"the path of a file that holds {what}"), None)


def secret_in(section: Section, key: str, file: Path, what: str) -> str | None:
    """Return the line that a file holds, without the newline at its end; None after a mistake, which is noted."""
    expected = f"a file that holds {what}"
    try:
        with open_file(file) as opened:
            raw = opened.read(_MOST_BYTES + 1)
        text = raw.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        section.tell(key, expected, "one that is not UTF-8")
        return None
    except (OSError, ValueError) as error:
        section.tell(key, expected, getattr(error, "strerror", None) or "a path that cannot be read")
        return None
    if len(raw) > _MOST_BYTES:
        section.tell(key, f"a file of at most {_MOST_BYTES >> 10} KiB", "a larger one")
        return None
    if not text.strip() or not text.strip().isprintable():
        expected = f"a file that holds one line, the {what.partition(' ')[2]}"
        section.tell(key, expected, "something else" if text.strip() else "nothing")
        return None
    return text
