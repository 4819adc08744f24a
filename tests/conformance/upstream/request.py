"""A request to the fixtures, and how it ends other than with a result."""

from __future__ import annotations

from typing import Any, NamedTuple

_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
_MISSING_CAPABILITY = -32021


class RequestError(Exception):
    """A JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data


class InputRequired(Exception):  # noqa: N818  (no error)
    """The request needs something of its client first."""

    def __init__(self, requests: dict[str, Any], state: str = "") -> None:
        super().__init__()
        self.result = {"resultType": "input_required", "inputRequests": requests}
        if state:
            self.result["requestState"] = state


class Request(NamedTuple):
    """One request."""

    id: Any
    method: str
    params: dict[str, Any]

    @property
    def progress_token(self) -> Any:
        return self.params.get("_meta", {}).get("progressToken")

    @property
    def capabilities(self) -> dict[str, Any]:
        """What the client can be asked for."""
        found: dict[str, Any] = self.params.get("_meta", {}).get(_CAPABILITIES, {})
        return found

    @property
    def responses(self) -> dict[str, Any]:
        """What the client answered."""
        return self.params.get("inputResponses") or {}

    @property
    def state(self) -> str:
        return str(self.params.get("requestState", ""))

    def ask(self, requests: dict[str, Any], state: str = "") -> dict[str, Any]:
        """Return the client's answers, or ask for those that are missing."""
        if not all(key in self.responses for key in requests):
            raise InputRequired(requests, state)
        return self.responses

    def require(self, capability: str) -> None:
        """End the request if the client cannot be asked for this."""
        if capability not in self.capabilities:
            missing: dict[str, Any] = {"requiredCapabilities": {capability: {}}}
            raise RequestError(_MISSING_CAPABILITY, f"the client must support {capability}", missing)


def elicitation(message: str, **properties: Any) -> dict[str, Any]:
    """Return the request for a form with these fields, all required unless they have a default."""
    required = [name for name, field in properties.items() if "default" not in field]
    schema = {"type": "object", "properties": properties, "required": required}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def sampling(text: str, tokens: int = 100) -> dict[str, Any]:
    """Return the request for a completion."""
    messages = [{"role": "user", "content": {"type": "text", "text": text}}]
    return {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": tokens}}


ROOTS: dict[str, Any] = {"method": "roots/list", "params": {}}
STRING = {"type": "string"}
