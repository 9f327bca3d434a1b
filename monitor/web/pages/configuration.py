"""The page at `/configuration`: every setting in force, given in the file or assumed."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from monitor.settings.kinds import HIDDEN, Setting
from monitor.web.pages.rendering import render
from monitor.web.server.request import Response
from monitor.web.site import Site

MOST_SETTINGS = 5000
"""Shown; a file of hundreds of models has more."""
_TOP = re.compile(r"[^.\[]+(?:\[\d+\])?")


@dataclass(frozen=True, slots=True)
class SettingsSection:
    """The settings of one section, one for each entry of a list: `models[0]`."""

    path: str
    name: str | None
    rows: Sequence[tuple[str, Setting]]
    """By the path within the section."""

    @property
    def given(self) -> int:
        """How many the file gives."""
        return sum(setting.line is not None for _, setting in self.rows)


def configuration_page(site: Site, _: Mapping[str, str]) -> Response:
    """Return the page."""
    settings = site.settings()
    shown = settings[:MOST_SETTINGS]
    return render(
        site,
        "configuration.html",
        title="Configuration",
        here="/configuration",
        hidden=HIDDEN,
        sections=[_section(path, list(group)) for path, group in groupby(shown, key=_top)],
        more=len(settings) - len(shown),
    )


def _top(setting: Setting) -> str:
    found = _TOP.match(setting.path)
    return setting.path if found is None else found.group()


def _section(path: str, settings: Sequence[Setting]) -> SettingsSection:
    name = next((one.value for one in settings if one.path == f"{path}.name"), None)
    rows = [(one.path.removeprefix(path).removeprefix(".") or one.path, one) for one in settings]
    return SettingsSection(path, name, rows)
