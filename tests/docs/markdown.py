"""Markdown pages of the repository: text and code blocks, headings as anchors, relative links."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT

_FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!\\)\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True, slots=True)
class Link:
    """A link to a file or directory, and optionally to a heading in it."""

    text: str
    target: Path
    anchor: str


@dataclass(frozen=True, slots=True)
class Page:
    """One Markdown file."""

    path: Path

    @property
    def name(self) -> str:
        """Its path in the repository."""
        return str(self.path.relative_to(ROOT))

    @property
    def text(self) -> str:
        """The whole file."""
        return self.path.read_text(encoding="utf-8")

    @property
    def prose(self) -> str:
        """The file without code blocks."""
        return _FENCE.sub("", self.text)

    def blocks(self, *languages: str) -> list[str]:
        """Return the code blocks in some languages."""
        return [code for _, language, code in _FENCE.findall(self.text) if language in languages]

    @property
    def spans(self) -> list[str]:
        """Inline code."""
        return _CODE.findall(self.prose)

    @property
    def anchors(self) -> set[str]:
        """The headings, as a link names them."""
        return {_slug(title) for title in re.findall(r"^#+ (.+)$", self.prose, re.MULTILINE)}

    @property
    def links(self) -> list[Link]:
        """Links within the repository."""
        # A link inside inline code is an example. Inline code inside a link text is not.
        written = _LINK.findall(re.sub(r"`[^`\n]*\]\([^`\n]*`", "", self.prose))
        found = []
        for link in written:
            if re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = link.partition("#")
            found.append(Link(link, (self.path.parent / path) if path else self.path, anchor))
        return found


def _slug(title: str) -> str:
    """Return the anchor that GitHub and GitLab make of a heading."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "")
    return re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")


def _listed() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout
    return [ROOT / name for name in sorted(filter(None, listed.decode().split("\0"))) if (ROOT / name).is_file()]


PAGES = {page.name: page for page in map(Page, _listed())}
"""Every page of the repository, by its path."""
