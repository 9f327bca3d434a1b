"""Pictures of every page are there for people to look at, after every run of the tests."""

import pytest
from PIL import Image
from playwright.sync_api import Browser

from tests.browser.screenshots import FOLDER, take_all
from tests.browser.site import Standing
from tests.browser.visiting import DESKTOP, PAGES, PHONE

pytestmark = pytest.mark.slow


def test_every_page_has_its_pictures(sick: Standing, browser: Browser) -> None:
    taken = list(take_all(browser, sick.url))
    assert len(taken) == len(PAGES) * 4
    for file in taken:
        assert file.parent == FOLDER
        with Image.open(file) as picture:
            assert picture.width in {DESKTOP[0], PHONE[0]}
            # A page that was not drawn is of one colour.
            assert len(picture.convert("RGB").getcolors(maxcolors=1 << 20) or range(99)) > 8
