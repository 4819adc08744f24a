"""Reads policy documents, and prints their problems and differences."""

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
_LOCATION = re.compile(r"(.*):(\d+):(\d+)")


@dataclass(frozen=True)
class PolicySources:
    """Policy texts by document name, and the files that hold them."""

    texts: dict[str, str]
    files: dict[str, Path]

    def messages(self) -> list[policy_pb.PolicyDocument]:
        """Return the documents as messages."""
        from toolmesh.authz.v1 import policy_service_pb2 as pb

        return [pb.PolicyDocument(name=name, text=text) for name, text in self.texts.items()]


def read_documents(paths: Sequence[Path]) -> PolicySources:
    """Read files, and all *.cedar files and limits.json of folders. Refuses unreadable and duplicate documents."""
    sources = PolicySources({}, {})
    for path in [file for given in paths for file in _policy_files(given)]:
        if path.name in sources.texts:
            raise typer.BadParameter(f"two documents are named {path.name}", param_hint="PATH")
        try:
            # Read as bytes: text mode would hide a lone carriage return, which the mesh refuses.
            sources.texts[path.name] = path.read_bytes().decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise typer.BadParameter(f"{path} cannot be read: {error}", param_hint="PATH") from None
        sources.files[path.name] = path
    return sources


def listed_problems(error: ToolmeshError) -> list[policy_pb.PolicyProblem]:
    """Return the problems of a POLICY_INVALID error; none for other errors."""
    from toolmesh.authz.v1 import policy_service_pb2 as pb
    from toolmesh.common.v1.error_table import Reason

    if error.reason is not Reason.POLICY_INVALID:
        return []
    return [
        pb.PolicyProblem(
            document=location.group(1),
            line=int(location.group(2)),
            column=int(location.group(3)),
            rule=violation.rule,
            message=violation.message,
        )
        for violation in error.violations
        if (location := _LOCATION.fullmatch(violation.path))
    ]


def omitted_count(error: ToolmeshError) -> int:
    """Return how many problems an error leaves out for size."""
    count = error.metadata.get("violations_left_out", "0")
    return int(count) if count.isascii() and count.isdecimal() else 0


def print_problems(problems: Iterable[policy_pb.PolicyProblem], sources: PolicySources, *, left_out: int = 0) -> None:
    """Print problems as compilers do: file, line and column, then the line with a mark under the column."""
    console, count = output.err(), 0
    for problem in problems:
        count += 1
        name = str(sources.files.get(problem.document, problem.document or "the set"))
        location = ":".join([name, *(str(number) for number in (problem.line, problem.column) if number)])
        console.print(output.text((f"{location}: ", "bold"), f"{problem.message} [{problem.rule}]"))
        line = _line(sources.texts.get(problem.document, ""), problem.line)
        if line is not None and problem.column:
            console.print(output.text(f"    {line.expandtabs(1)}"))
            console.print(output.text(("    " + " " * (problem.column - 1) + "^", "bold red")))
    more = f" and {left_out} more, which `toolmesh policy validate` lists" if left_out else ""
    console.print(output.text(f"{count} problem{'s' if count != 1 else ''}{more}; nothing was stored."))


def diff_policy_sets(before: policy_pb.PolicySet, after: policy_pb.PolicySet) -> Iterator[tuple[str, str]]:
    """Yield the differing lines of two sets, each with its diff mark."""
    old, new = ({each.name: each.text for each in policy_set.documents} for policy_set in (before, after))
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) == new.get(name):
            continue
        yield " ", name
        lines = difflib.unified_diff(split_lines(old.get(name, "")), split_lines(new.get(name, "")), n=0, lineterm="")
        # The first two lines name the files; @@ lines are left out.
        yield from ((line[0], line[1:]) for line in list(lines)[2:] if line[0] in "+-")


def split_lines(text: str) -> list[str]:
    """Split a document into lines as Cedar counts them: only \\n ends a line."""
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []


def _policy_files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = [*sorted(path.glob("*.cedar")), *([path / LIMITS] if (path / LIMITS).exists() else [])]
    if not files:
        raise typer.BadParameter(f"there is no *.cedar in {path}", param_hint="PATH")
    return files


def _line(text: str, number: int) -> str | None:
    lines = split_lines(text)
    return lines[number - 1] if 0 < number <= len(lines) else None
