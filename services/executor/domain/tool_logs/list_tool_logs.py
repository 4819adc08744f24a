"""Lists the logs of a tool or of one invocation, the newest first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from libs.common import page_tokens
from libs.common.auth.coverage import granted
from libs.common.auth.identity import Grant
from libs.common.errors import MeshError, Reason, Violation
from libs.common.semver import Version
from libs.common.tool_names import ToolName, grant_covers
from services.executor.domain import errors
from services.executor.domain.tool_logs.tool_log import ToolLog

DEFAULT_PAGE_SIZE = 20
# A message has at most 4 MiB, and a character at most four bytes.
_PAGE_BYTES = 768 * 1024


@dataclass(frozen=True, slots=True)
class LogQuery:
    """The logs that a reader asks for and may see."""

    tool: str = ""
    """The qualified name; empty for any."""
    version: str = ""
    invocation_id: str = ""
    tenant: str | None = None
    """The tenant whose logs alone are shown; None for all."""


class ToolLogReader(Protocol):
    """The store of logs, for reading."""

    async def find(self, query: LogQuery, *, before: int | None, limit: int) -> list[tuple[int, ToolLog]]:
        """Return logs with their positions, the newest first, from below a position on."""
        ...


@dataclass(frozen=True, slots=True)
class LogPage:
    """A page of logs, and the token of the next."""

    logs: list[ToolLog]
    next_page_token: str = ""


@dataclass(frozen=True, slots=True)
class ListToolLogs:
    """Lists logs for readers who may see them."""

    reader: ToolLogReader

    async def execute(
        self, query: LogQuery, grants: tuple[Grant, ...] | None, *, page_size: int = 0, page_token: str = ""
    ) -> LogPage:
        """Return a page. `grants` are the tools that the reader's token names; None for a reader without a token.

        Raises INVALID_REQUEST, TOOL_NOT_IN_TOKEN or PAGE_TOKEN_INVALID.
        """
        if not query.tool and not query.invocation_id:
            raise _filter_required()
        if query.tool and grants is not None and not _names_tool(grants, query.tool):
            raise errors.tool_not_granted(query.tool)
        identity = [query.tool, query.version, query.invocation_id, query.tenant]
        before, limit = page_tokens.decode_cursor(identity, page_token), page_size or DEFAULT_PAGE_SIZE
        found = await self.reader.find(query, before=before, limit=limit + 1)
        page = _fitting(found[:limit])
        token = page_tokens.encode(identity, [page[-1][0]]) if len(page) < len(found) else ""
        return LogPage([log for _, log in page if grants is None or _granted(grants, log)], token)


def _fitting(found: list[tuple[int, ToolLog]]) -> list[tuple[int, ToolLog]]:
    """Return the first logs, as many as fit into an answer; at least one."""
    room = _PAGE_BYTES
    for index, (_, log) in enumerate(found):
        room -= log.size
        if room < 0 and index:
            return found[:index]
    return found


def _names_tool(grants: tuple[Grant, ...], tool: str) -> bool:
    return any(grant_covers(grant.tool, ToolName.parse(tool)) for grant in grants)


def _granted(grants: tuple[Grant, ...], log: ToolLog) -> bool:
    return granted(grants, ToolName.parse(log.tool), Version.parse(log.version))


def _filter_required() -> MeshError:
    message = "set tool, invocation_id or both"
    return MeshError(Reason.INVALID_REQUEST, violations=[Violation("tool", "required", message)])
