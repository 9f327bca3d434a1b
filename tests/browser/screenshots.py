"""Screenshots of every page: `python -m tests.browser.screenshots`.

They go to `.screenshots/`, which is not in Git. `--url http://127.0.0.1:9877` uses a running daemon instead of starting one.
With `--readme` the images of the README are renewed in `docs/images/`: they show the demo when its first alert fires, a minute
and a half after its start, and when labels say what the accuracy was. Start both at about the same time.
"""

# ruff: noqa: T201 - it is a command

import argparse
import io
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import quote

from PIL import Image
from playwright.sync_api import Browser, Page

from tests.browser.site import HEALTHY, POOR, running_site
from tests.browser.visiting import DESKTOP, PAGES, PHONE, chromium, visiting
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".screenshots"
_IMAGES = ROOT / "docs" / "images"


class _Image(NamedTuple):
    """An image in the README."""

    page: str
    parts: tuple[str, ...] = ()
    """Of the page, shown below each other; without any, its top."""
    after: float = 0.0
    """Seconds since the alert."""


_README = {
    "overview-light.png": _Image("overview"),
    "change-light.png": _Image("model", ("section:has(figure) figure", "#evidence")),
    # The labels are those of the last minute: all of records since the alert.
    "labels-light.png": _Image(
        "model",
        ("#labels h2", "#labels p", "#labels dl.facts", "#track-record h2", "#track-record figure"),
        after=75.0,
    ),
}
"""By file name, in order of time."""
_ALERTING = "#alerts a[href^='/model']"
"""Links to the windows that alert, on the overview."""
_SHOWN = (1280, 1150)
_BELOW = 8
"""Space below each part, in pixels."""
_MOST_BYTES = 200_000
_STEPS = 30

Scheme = Literal["light", "dark"]
_SCHEMES: tuple[Scheme, ...] = ("light", "dark")


def take_all(browser: Browser, url: str, pages: Mapping[str, str] = PAGES) -> Iterator[Path]:
    """Take a screenshot of every page, in both themes, on a desktop and on a phone."""
    FOLDER.mkdir(exist_ok=True)
    for scheme in _SCHEMES:
        for size in (DESKTOP, PHONE):
            with visiting(browser, url, size=size, color_scheme=scheme) as one:
                for name, path in pages.items():
                    file = FOLDER / f"{name}-{scheme}-{size[0]}.png"
                    one.go(path).screenshot(path=file, full_page=True)
                    yield file


def renew_images(browser: Browser, url: str, pages: Mapping[str, str]) -> None:
    """Take the README's images, with few colours to keep them small."""
    _IMAGES.mkdir(exist_ok=True)
    alert_at = time.monotonic()
    for name, (page, parts, after) in _README.items():
        time.sleep(max(0.0, alert_at + after - time.monotonic()))
        with visiting(browser, url, size=_SHOWN, color_scheme="light") as one:
            shown = one.go(pages[page])
            taken = _below_each_other(shown, parts) if parts else Image.open(io.BytesIO(shown.screenshot()))
        file = _IMAGES / name
        taken.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(file, optimize=True)
        assert file.stat().st_size < _MOST_BYTES, f"{file} is too big"


def _below_each_other(page: Page, parts: Sequence[str]) -> Image.Image:
    """Return parts of a page, all of one moment: the page renews itself."""
    whole = Image.open(io.BytesIO(page.screenshot(full_page=True)))
    boxes = [box for part in parts if (box := page.locator(part).first.bounding_box()) is not None]
    left = min(box["x"] for box in boxes)
    right = max(box["x"] + box["width"] for box in boxes)
    shown = [
        whole.crop((int(left), int(box["y"]), int(right), int(box["y"] + box["height"]) + _BELOW)) for box in boxes
    ]
    found = Image.new("RGB", (shown[0].width, sum(one.height for one in shown)))
    for number, one in enumerate(shown):
        found.paste(one, (0, sum(above.height for above in shown[:number])))
    return found


def main(words: Sequence[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.browser.screenshots", description="screenshots of every page"
    )
    parser.add_argument("--url", help="of a running daemon; without it, one is started and fed for half a minute")
    parser.add_argument(
        "--readme", action="store_true", help="renew the images of the README; --url is that of the demo"
    )
    arguments = parser.parse_args(words)
    if arguments.readme and not arguments.url:
        parser.error("--readme: expected --url of a running demo, found none")
    with ExitStack() as stack:
        browser = stack.enter_context(chromium())
        url = arguments.url.rstrip("/") if arguments.url else _story(stack)
        if arguments.readme:
            _wait_for_an_alert(browser, url)
        pages = _pages_of(browser, url) if arguments.url else PAGES
        if arguments.readme:
            renew_images(browser, url, pages)
            print(*(f"docs/images/{name}" for name in _README), sep="\n")
        for file in take_all(browser, url, pages):
            print(file.relative_to(ROOT))
    return 0


def _wait_for_an_alert(browser: Browser, url: str) -> None:
    with visiting(browser, url) as one:
        wait_until(lambda: one.go("/").locator(_ALERTING).count(), lambda: "no alert fires", 300.0, every=0.5)


def _pages_of(browser: Browser, url: str) -> dict[str, str]:
    """Return the pages of a daemon with unknown models: those of the first model and of its first alerting window."""
    with visiting(browser, url) as one:
        page = one.go("/")
        model = page.locator("main tr[data-model]").first.get_attribute("data-model")
        alerts = page.locator(_ALERTING)
        window = alerts.first.get_attribute("href") if alerts.count() else None
    assert model is not None
    others = {name: PAGES[name] for name in ("overview", "rejects", "configuration")}
    of_model = {name: f"/{name}?name={quote(model)}" for name in ("model", "reference")}
    return others | of_model | ({"model": window} if window else {})


def _story(stack: ExitStack) -> str:
    """Start a daemon that gets good records first and poor ones later."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cpcmon-")))
    site = stack.enter_context(running_site(folder / "site"))
    for step in range(_STEPS):
        site.drop(HEALTHY if step < _STEPS // 2 else POOR, 60)
    site.make_alert_fire()
    return site.url


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
