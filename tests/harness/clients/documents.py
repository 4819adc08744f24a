"""The commands in the documentation: its fenced blocks, and the commands in its sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/*.md", "*/README.md", "services/*/README.md", "examples/*/README.md")
    for path in ROOT.glob(pattern)
)
SHELL = {"sh", "console"}
_FENCE = re.compile(r"^```(\w*)\s*$")
_NOT_RUN = re.compile(r"^<!-- not run: (\S.*\S) -->$")
_INLINE = re.compile(r"`(toolmesh [^`]+)`")
# A command that the text expects to be refused says so.
_REFUSED = re.compile(r"\s# refused\b")
_COMMENT = re.compile(r"\s+#\s.*$")


@dataclass(frozen=True)
class Command:
    """One command of a block, and whether the text says that it is refused."""

    text: str
    refused: bool


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its lines, and the reason why it cannot be run, if the text gives one."""

    document: Path
    line: int
    language: str
    lines: tuple[str, ...]
    not_run: str

    @property
    def place(self) -> str:
        return f"{self.document.relative_to(ROOT)}:{self.line}"

    def commands(self) -> Iterator[Command]:
        """Yield the commands: a prompt is dropped, a line that ends with a backslash goes on in the next."""
        joined = re.sub(r"\\\n", " ", "\n".join(line.removeprefix("$ ") for line in self.lines))
        for line in joined.splitlines():
            if (text := _COMMENT.sub("", line).strip()) and not text.startswith("#"):
                yield Command(text, bool(_REFUSED.search(line)))


def blocks(document: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a document."""
    lines = document.read_text().splitlines()
    start, language = 0, None
    for number, line in enumerate(lines, 1):
        if language is not None and line.startswith("```"):
            before = next((text for text in reversed(lines[: start - 1]) if text.strip()), "")
            reason = _NOT_RUN.match(before)
            yield Block(document, start, language, tuple(lines[start : number - 1]), reason[1] if reason else "")
            language = None
        elif language is None and (fence := _FENCE.match(line)):
            start, language = number, fence[1]


def inline_commands(document: Path) -> Iterator[str]:
    """Yield the commands in the sentences and tables of a document."""
    outside = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.M | re.S)
    for match in _INLINE.finditer(outside):
        yield " ".join(match[1].split())
