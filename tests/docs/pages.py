"""The commands that README and docs show: in blocks to be typed, and within sentences."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", "CONTRIBUTING.md", *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md"))]
_BLOCK = re.compile(r"^```(?:sh|bash|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_PROGRAMS = ("cpcmon", "make", "promtool", "amtool")
_ENDS = frozenset({"|", "||", "&&", ";", "&"})
_REDIRECTED = re.compile(r"\s[0-9]?(?:>>?|<)\s*[^\s(]+")


@dataclass(frozen=True, slots=True)
class Typed:
    """A command on a page."""

    page: str
    program: str
    words: tuple[str, ...]
    whole: bool
    """Whether it stands in a block, to be typed as it is; within a sentence words may be left out."""

    def __str__(self) -> str:
        """Return it as a test is called."""
        return f"{self.page}: {self.program} {' '.join(self.words)}"


def typed() -> Iterator[Typed]:
    """Yield every command that any page shows."""
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        for block in _BLOCK.findall(text):
            yield from in_block(page, block)
        for inline in _INLINE.findall(_FENCED.sub("", text)):
            if inline.split()[0] in _PROGRAMS and len(inline.split()) > 1:
                yield from _in_line(page, inline, whole=False)


def in_block(page: str, block: str) -> Iterator[Typed]:
    """Yield the commands of one block, lines that go on taken together; what a command printed is left out."""
    for line in block.replace("\\\n", " ").splitlines():
        yield from _in_line(page, line.removeprefix("$ ").removeprefix("# "), whole=True)


def _in_line(page: str, line: str, *, whole: bool) -> Iterator[Typed]:
    try:
        words = shlex.split(_REDIRECTED.sub("", line), comments=True)
    except ValueError:  # a quotation that goes on: a script within a line
        words = line.split()
    words = [part for word in words for part in ([word[:-1], ";"] if word.endswith(";") and word != ";" else [word])]
    while words:
        end = next((at for at, word in enumerate(words) if word in _ENDS), len(words))
        yield from _one(page, words[:end], whole=whole)
        words = words[end + 1 :]


def _one(page: str, words: list[str], *, whole: bool) -> Iterator[Typed]:
    """Yield the command if it is one that we know: its name or path first, or after variables and sudo."""
    while words and (words[0] in {"sudo", "exec"} or re.match(r"[A-Z_]+=", words[0])):
        words = words[1:]
    if words[1:3] == ["-m", "monitor"]:
        words = ["cpcmon", *words[3:]]
    if words and words[0].rsplit("/", 1)[-1] in _PROGRAMS:
        yield Typed(page, words[0].rsplit("/", 1)[-1], tuple(words[1:]), whole)
