"""Pages behind TLS and a password."""

from pathlib import Path

import bcrypt
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Visiting
from tests.browser.site import prepare
from tests.browser.visiting import PAGES, visiting
from tests.daemon.process import running
from tests.web.certificates import Authority

_CREDENTIALS = {"username": "alice", "password": "wonder:land"}


def write_web_config(folder: Path) -> Path:
    """Write a web configuration with a password and a self-signed certificate."""
    pair = Authority(folder, "unknown").signed("server")
    hashed = bcrypt.hashpw(_CREDENTIALS["password"].encode(), bcrypt.gensalt(4)).decode()
    path = folder / "web.yml"
    path.write_text(
        f"tls_server_config: {{cert_file: {pair.cert.name}, key_file: {pair.key.name}}}\n"
        f"basic_auth_users: {{{_CREDENTIALS['username']}: {hashed}}}\n"
    )
    return path


def test_behind_tls_and_a_password_every_page_loads_and_stays_live(
    tmp_path: Path, visit: Visiting, browser: Browser
) -> None:
    web = write_web_config(tmp_path)
    prepare(tmp_path / "site")
    with running(tmp_path / "site" / "config.yaml", "--web.config.file", str(web)) as process:
        url = process.url
        assert url.startswith("https://")
        with visiting(browser, url, ignore_https_errors=True) as stranger:
            answer = stranger.page.request.get(f"{url}/api/v1/status")
            assert answer.status == 401
            assert "density" not in answer.text()
        one = visit(url, ignore_https_errors=True, http_credentials=_CREDENTIALS)
        for path in PAGES.values():
            expect(one.go(path).locator("main h1")).to_be_visible()
        stays_live(one.go("/"))
        # The browser first tries without the password.
        one.log.complaints[:] = [error for error in one.log.complaints if "401" not in error]


def stays_live(page: Page) -> None:
    """Check that a page refreshes."""
    before = page.locator("#as-of").inner_text()
    expect(page.locator("#as-of")).not_to_have_text(before)
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
