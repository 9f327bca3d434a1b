"""The configuration page: sections, settings from the file, defaults."""

import re

from monitor.settings.kinds import HIDDEN, Setting
from monitor.web.pages.other_pages import MOST_SETTINGS, configuration_page
from tests.web.reading import Reader, site_of, text_of

SETTINGS = [
    Setting("state", "/var/lib/cpcmon", 2),
    Setting("sources[0].name", "inbox", 4),
    Setting("sources[0].fields.site", "meta.hospital", None),
    Setting("models[0].name", "density", 9),
    Setting("models[1].name", "nodules", 20),
    Setting("notifications.webhook.url", HIDDEN, 30),
]


def test_settings_are_grouped_by_model_and_source() -> None:
    text = text_of(configuration_page, site_of(settings=lambda: SETTINGS))
    headings = [re.sub("<.*?>", "", one) for one in re.findall(r"<h2>(.*?)</h2>", text)]
    assert headings == ["state", "sources[0] inbox", "models[0] density", "models[1] nodules", "notifications"]
    rows = [row for row in Reader(text).rows if row[0] != "Setting"]
    assert rows[0] == ["state", "/var/lib/cpcmon", "2"]
    assert rows[1] == ["name", "inbox", "4"]


def test_defaults_differ_from_settings_in_the_file() -> None:
    """In words, not only in style."""
    text = text_of(configuration_page, site_of(settings=lambda: SETTINGS))
    assert ["fields.site", "meta.hospital", "default"] in Reader(text).rows
    assert re.findall(r'<tr class="assumed" data-setting="(.*?)">', text) == ["sources[0].fields.site"]
    assert text.count('<tr class="given"') == 5


def test_too_many_settings_are_cut_and_counted() -> None:
    many = [Setting(f"models[{number}].name", "m", number) for number in range(MOST_SETTINGS + 3)]
    assert "… and 3 more settings." in text_of(configuration_page, site_of(settings=lambda: many))
