"""The parameters of the methods of tasks, by revision."""

from __future__ import annotations

from typing import Any

from mcp_types import CancelTaskRequestParams, GetTaskPayloadRequestParams, GetTaskRequestParams, PaginatedRequestParams
from pydantic import BaseModel

from services.gateway.mcp.protocol import STATELESS_VERSIONS, TASKS_VERSION


class UpdateTaskRequestParams(GetTaskRequestParams):
    """The parameters of `tasks/update`."""

    input_responses: dict[str, dict[str, Any]]


_IN_SESSIONS: dict[str, type[BaseModel]] = {
    "tasks/get": GetTaskRequestParams,
    "tasks/list": PaginatedRequestParams,
    "tasks/result": GetTaskPayloadRequestParams,
    "tasks/cancel": CancelTaskRequestParams,
}
_STATELESS: dict[str, type[BaseModel]] = {
    "tasks/get": GetTaskRequestParams,
    "tasks/update": UpdateTaskRequestParams,
    "tasks/cancel": CancelTaskRequestParams,
}


def task_params(method: str, version: str) -> type[BaseModel]:
    """Return the type of the parameters; raises KeyError for a method that the revision does not have."""
    if version in STATELESS_VERSIONS:
        return _STATELESS[method]
    return (_IN_SESSIONS if version == TASKS_VERSION else {})[method]
