"""Policy documents on this machine: reading them, and showing what is wrong or other in them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from toolmesh_sdk.cli.views import output

if TYPE_CHECKING:
    from toolmesh.authz.v1 import policy_service_pb2 as policy_pb

    from toolmesh_sdk.errors import ToolmeshError

LIMITS = "limits.json"
_PLACE = re.compile(r"(.*):(\d+):(\d+)")


@dataclass(frozen=True)
class Sources:
    """Texts by document name, and the files that they come from."""

    texts: dict[str, str]
    files: dict[str, Path]

    def messages(self) -> list[policy_pb.PolicyDocument]:
        from toolmesh.authz.v1 import policy_service_pb2 as pb

        return [pb.PolicyDocument(name=name, text=text) for name, text in self.texts.items()]


def read_documents(paths: Sequence[Path]) -> Sources:
    """Read files, and of folders every *.cedar and the limits. Refuses what is not there, not text, or twice there."""
    found = Sources({}, {})
    for path in [each for given in paths for each in _files(given)]:
        if path.name in found.texts:
            raise typer.BadParameter(f"there are two documents {path.name}", param_hint="PATH")
        try:
            # Byte for byte: to read a lone carriage return as an end of line would hide it from the mesh, which refuses it.
            found.texts[path.name] = path.read_bytes().decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise typer.BadParameter(f"{path} cannot be read: {error}", param_hint="PATH") from None
        found.files[path.name] = path
    return found


def problems_of(error: ToolmeshError) -> list[policy_pb.PolicyProblem]:
    """Return the problems that a refusal lists; nothing for a refusal of another kind."""
    from toolmesh.authz.v1 import policy_service_pb2 as pb
    from toolmesh.common.v1.error_table import Reason

    if error.reason is not Reason.POLICY_INVALID:
        return []
    return [
        pb.PolicyProblem(
            document=place.group(1),
            line=int(place.group(2)),
            column=int(place.group(3)),
            rule=violation.rule,
            message=violation.message,
        )
        for violation in error.violations
        if (place := _PLACE.fullmatch(violation.path))
    ]


def left_out_of(error: ToolmeshError) -> int:
    """Return how many problems a refusal had no room for."""
    told = error.metadata.get("violations_left_out", "0")
    return int(told) if told.isascii() and told.isdecimal() else 0


def print_problems(problems: Iterable[policy_pb.PolicyProblem], sources: Sources, *, left_out: int = 0) -> None:
    """Print problems as compilers do: file, line and column, then the line itself with a mark under the place."""
    console, count = output.err(), 0
    for each in problems:
        count += 1
        name = str(sources.files.get(each.document, each.document or "the set"))
        place = ":".join([name, *(str(number) for number in (each.line, each.column) if number)])
        console.print(output.text((f"{place}: ", "bold"), f"{each.message} [{each.rule}]"))
        line = _line(sources.texts.get(each.document, ""), each.line)
        if line is not None and each.column:
            console.print(output.text(f"    {line.expandtabs(1)}"))
            console.print(output.text(("    " + " " * (each.column - 1) + "^", "bold red")))
    more = f" and {left_out} more, which `toolmesh policy validate` lists" if left_out else ""
    console.print(output.text(f"{count} problem{'s' if count != 1 else ''}{more}; nothing was kept."))


def changes_between(before: policy_pb.PolicySet, after: policy_pb.PolicySet) -> Iterator[tuple[str, str]]:
    """Yield what is other in the documents of two sets, line by line, each with its mark."""
    old, new = ({each.name: each.text for each in found.documents} for found in (before, after))
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) == new.get(name):
            continue
        yield " ", name
        lines = difflib.unified_diff(lines_of(old.get(name, "")), lines_of(new.get(name, "")), n=0, lineterm="")
        # The first two lines name the files, and others say where a change begins.
        yield from ((line[0], line[1:]) for line in list(lines)[2:] if line[0] in "+-")


def lines_of(text: str) -> list[str]:
    """Return the lines of a document as Cedar counts them: other characters that end a line elsewhere end none here."""
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = [*sorted(path.glob("*.cedar")), *([path / LIMITS] if (path / LIMITS).exists() else [])]
    if not found:
        raise typer.BadParameter(f"there is no *.cedar in {path}", param_hint="PATH")
    return found


def _line(text: str, number: int) -> str | None:
    lines = lines_of(text)
    return lines[number - 1] if 0 < number <= len(lines) else None
