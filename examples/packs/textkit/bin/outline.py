"""Prints the headings of a Markdown document: arguments as JSON on standard input, the result as JSON on standard
output."""

from __future__ import annotations

import json
import re
import sys

_HEADING = re.compile(r"^(#{1,6})\s+(.+?)\s*#*$")


def main(depth: int) -> None:
    """Read a document and print its headings down to a depth."""
    document = json.load(sys.stdin)["document"]
    found = [match for line in document.splitlines() if (match := _HEADING.match(line))]
    headings = [{"level": len(match[1]), "text": match[2]} for match in found if len(match[1]) <= depth]
    json.dump({"headings": headings}, sys.stdout)


main(int(sys.argv[1].removeprefix("--depth=")))
