"""Renders the console's pages. All values are escaped, and characters that would deceive a reader are made visible."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from libs.common.errors import MeshError
from services.gateway.console.request import ConsoleRequest
from services.gateway.console.response import Response
from services.gateway.console.static_files import StaticFiles

_FOLDER = Path(__file__).parent / "templates"


@dataclass(frozen=True, slots=True)
class Room:
    """One part of the console, as the navigation shows it."""

    name: str
    title: str
    path: str


ROOMS = (Room("approvals", "Approvals", "/console/approvals"),)


class Pages:
    """The templates."""

    def __init__(self, static: StaticFiles) -> None:
        self._templates = Environment(
            loader=FileSystemLoader(_FOLDER),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_finalize,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.globals |= {"static": static.url, "rooms": ROOMS}

    def render(self, request: ConsoleRequest, template: str, *, status: int = 200, **values: Any) -> Response:
        """Return a page."""
        text = self._templates.get_template(template).render(request=request, session=request.session, **values)
        return Response(status, text.encode())

    def error(self, request: ConsoleRequest, error: MeshError, *, status: int | None = None) -> Response:
        """Return the page of an error, with the advice of its row."""
        values = {"error": error_view(error, request.trace_id), "room": ""}
        return self.render(request, "error.html", status=status or error.row.http_status, **values)


def error_view(error: MeshError, trace_id: str) -> dict[str, Any]:
    """Return an error as pages show it."""
    return {
        "title": error.row.title,
        "message": error.message,
        "resolution": error.row.resolution,
        "reason": error.reason.name,
        "code": error.row.code,
        "violations": [f"{violation.path}: {violation.message}" for violation in error.violations[:20]],
        "trace_id": trace_id,
    }


def visible_text(text: str) -> str:
    """Return a text with its invisible and direction-changing characters spelled out, such as `‹U+202E›`.

    Otherwise a caller could make an argument look like another one. Line breaks and tabs stay.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if _is_harmless(char) else f"‹U+{ord(char):04X}›" for char in text)


def _is_harmless(char: str) -> bool:
    return char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def _finalize(value: Any) -> Any:
    return visible_text(value) if isinstance(value, str) and not isinstance(value, Markup) else value
