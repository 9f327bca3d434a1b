"""The page of the configuration: in sections, what the file says apart from what is assumed."""

import re

from monitor.settings.kinds import HIDDEN, Setting
from monitor.web.pages.configuration import MOST_SETTINGS, configuration_page
from tests.web.reading import Reader, site_of, text_of

SETTINGS = [
    Setting("state", "/var/lib/cpcmon", 2),
    Setting("sources[0].name", "inbox", 4),
    Setting("sources[0].fields.site", "meta.hospital", None),
    Setting("models[0].name", "density", 9),
    Setting("models[1].name", "nodules", 20),
    Setting("notifications.webhook.url", HIDDEN, 30),
]


def test_settings_stand_in_sections_one_for_each_model_and_source() -> None:
    """Named as the file names them, and by their own names."""
    text = text_of(configuration_page, site_of(settings=lambda: SETTINGS))
    headings = [re.sub("<.*?>", "", one) for one in re.findall(r"<h2>(.*?)</h2>", text)]
    assert headings == ["state", "sources[0] inbox", "models[0] density", "models[1] nodules", "notifications"]
    rows = [row for row in Reader(text).rows if row[0] != "Setting"]
    assert rows[0] == ["state", "/var/lib/cpcmon", "2"]
    assert rows[1] == ["name", "inbox", "4"]


def test_what_is_assumed_stands_apart_from_what_a_line_says() -> None:
    """In words, not only by its looks."""
    text = text_of(configuration_page, site_of(settings=lambda: SETTINGS))
    assert ["fields.site", "meta.hospital", "default"] in Reader(text).rows
    assert re.findall(r'<tr class="assumed" data-setting="(.*?)">', text) == ["sources[0].fields.site"]
    assert text.count('<tr class="given"') == 5


def test_that_secrets_are_hidden_is_said() -> None:
    """Or somebody would look for a mistake."""
    assert f"show as <code>{HIDDEN}</code>" in text_of(configuration_page, site_of())


def test_without_a_configuration_the_page_says_so() -> None:
    """While starting."""
    assert "No configuration is loaded yet." in text_of(configuration_page, site_of())


def test_very_many_settings_are_cut_and_counted() -> None:
    """The page is asked for again every few seconds."""
    many = [Setting(f"models[{number}].name", "m", number) for number in range(MOST_SETTINGS + 3)]
    assert "… and 3 more settings." in text_of(configuration_page, site_of(settings=lambda: many))
