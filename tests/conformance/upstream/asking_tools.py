"""The tools of the suite that ask their caller."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

from tests.conformance.upstream.request import ROOTS, STRING, Request, RequestError, elicitation, sampling

_ENUMS: dict[str, Any] = {
    "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
    "titledSingle": {
        "type": "string",
        "oneOf": [{"const": f"value{n}", "title": f"{word} Option"} for n, word in enumerate(("First", "Second"), 1)],
    },
    "legacyEnum": {
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
    "titledMulti": {
        "type": "array",
        "items": {
            "anyOf": [
                {"const": f"value{n}", "title": f"{word} Choice"} for n, word in enumerate(("First", "Second"), 1)
            ]
        },
    },
}
_DEFAULTS: dict[str, Any] = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
_BOOLEAN = {"type": "boolean"}


def _said(value: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value if isinstance(value, str) else json.dumps(value)}]}


def _form(message: str, **fields: Any) -> Callable[[Request], dict[str, Any]]:
    def ask(request: Request) -> dict[str, Any]:
        answer = request.ask({"form": elicitation(message, **fields)})["form"]
        return _said(f"Elicitation completed: action={answer['action']}, content={json.dumps(answer.get('content'))}")

    return ask


def _one(key: str, asked: dict[str, Any]) -> Callable[[Request], dict[str, Any]]:
    def ask(request: Request) -> dict[str, Any]:
        return _said(request.ask({key: asked})[key])

    return ask


def _sampling(request: Request) -> dict[str, Any]:
    request.require("sampling")
    answer = request.ask({"completion": sampling(request.params["arguments"]["prompt"])})["completion"]
    return _said(f"LLM response: {answer['content']['text']}")


def _elicitation(request: Request) -> dict[str, Any]:
    request.require("elicitation")
    message = request.params["arguments"]["message"]
    answer = request.ask({"user": elicitation(message, username=STRING, email=STRING)})["user"]
    return _said(f"User response: {json.dumps(answer)}")


def _missing_capability(request: Request) -> dict[str, Any]:
    request.require("sampling")
    return _said("The client supports sampling.")


def _several(request: Request) -> dict[str, Any]:
    asked = {
        "user_name": elicitation("What is your name?", name=STRING),
        "greeting": sampling("Generate a greeting", 50),
        "client_roots": ROOTS,
    }
    return _said(request.ask(asked, _sealed("several")))


def _rounds(request: Request) -> dict[str, Any]:
    if request.state != _sealed("round 2"):
        request.ask({"step1": elicitation("Step 1: What is your name?", name=STRING)}, _sealed("round 1"))
    asked = elicitation("Step 2: What is your favorite color?", color=STRING)
    return _said(request.ask({"step2": asked}, _sealed("round 2")))


def _with_state(request: Request) -> dict[str, Any]:
    request.ask({"confirm": elicitation("Please confirm", ok=_BOOLEAN)}, _sealed("confirm"))
    if request.state != _sealed("confirm"):
        raise RequestError(-32602, "the requestState was changed")
    return _said("state-ok")


def _by_capability(request: Request) -> dict[str, Any]:
    possible = {
        "elicitation": elicitation("What is your name?", name=STRING),
        "sampling": sampling("Generate a greeting", 50),
    }
    return _said(request.ask({name: asked for name, asked in possible.items() if name in request.capabilities}))


def _sealed(state: str) -> str:
    return hashlib.sha256(f"fixtures {state}".encode()).hexdigest()


ASKING: dict[str, Callable[[Request], dict[str, Any]]] = {
    "test_sampling": _sampling,
    "test_elicitation": _elicitation,
    "test_elicitation_sep1034_defaults": _form("Confirm your details", **_DEFAULTS),
    "test_elicitation_sep1330_enums": _form("Choose", **_ENUMS),
    "test_streaming_elicitation": _form("What is your name?", name=STRING),
    "test_missing_capability": _missing_capability,
    "test_input_required_result_elicitation": _one("user_name", elicitation("What is your name?", name=STRING)),
    "test_input_required_result_sampling": _one("capital_question", sampling("What is the capital of France?")),
    "test_input_required_result_list_roots": _one("client_roots", ROOTS),
    "test_input_required_result_request_state": _with_state,
    "test_input_required_result_tampered_state": _with_state,
    "test_input_required_result_multiple_inputs": _several,
    "test_input_required_result_multi_round": _rounds,
    "test_input_required_result_capabilities": _by_capability,
}
