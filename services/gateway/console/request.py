"""One request to the console, parsed: path, query, cookies, form. None of it is trusted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from libs.common.errors import MeshError, Reason
from services.gateway.console.login.session import Session

FORM_TYPE = "application/x-www-form-urlencoded"
MAX_FORM_BYTES = 64 * 1024
_MAX_FIELDS = 32


@dataclass(slots=True)
class ConsoleRequest:
    """A request, with the session that its cookie holds."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[bytes, bytes]
    address: str
    """The origin that the browser reaches the console by, such as `https://mesh.example`."""
    trace_id: str
    session: Session | None = None
    form: Mapping[str, str] = field(default_factory=dict)

    @property
    def secure(self) -> bool:
        """Whether the browser uses TLS."""
        return self.address.startswith("https://")

    @property
    def partial(self) -> bool:
        """Whether htmx asks for a part of the page."""
        return self.headers.get(b"hx-request") == b"true"

    @property
    def target(self) -> str:
        """The path and the query, to return to after a login."""
        pairs = "&".join(f"{name}={value}" for name, value in self.query.items() if name in _KEPT and value.isalnum())
        return self.path + (f"?{pairs}" if pairs else "")

    def header(self, name: bytes) -> str:
        """Return a header; empty if there is none."""
        return self.headers.get(name, b"").decode("latin-1")

    def required_session(self) -> Session:
        """Return the session. Raises UNAUTHENTICATED without one."""
        if self.session is None:
            raise MeshError(Reason.UNAUTHENTICATED)
        return self.session


# The parameters of pages that survive a login.
_KEPT = frozenset({"view", "state", "link"})


def parse_query(raw: bytes) -> dict[str, str]:
    """Return the query parameters; of a repeated one the last. A malformed query raises INVALID_REQUEST."""
    return _pairs(raw)


def parse_form(body: bytes, content_type: str) -> dict[str, str]:
    """Return the fields of a form. Raises INVALID_REQUEST for another media type and for a malformed body."""
    if content_type.partition(";")[0].strip().lower() != FORM_TYPE:
        raise MeshError(Reason.INVALID_REQUEST, message=f"a form is sent as {FORM_TYPE}")
    return _pairs(body)


def _pairs(raw: bytes) -> dict[str, str]:
    try:
        text = raw.decode("ascii")
        return dict(parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS))
    except ValueError:
        raise MeshError(Reason.INVALID_REQUEST, message="the form or the query is malformed") from None
