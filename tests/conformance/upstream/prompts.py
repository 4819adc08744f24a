"""The prompts of the suite."""

from __future__ import annotations

from typing import Any

from tests.conformance.upstream.request import STRING, Request, RequestError, elicitation
from tests.conformance.upstream.resources import PIXEL


def _prompt(name: str, description: str, *arguments: str) -> dict[str, Any]:
    return {
        "name": name,
        "description": description,
        "arguments": [{"name": each, "description": f"The {each}.", "required": True} for each in arguments],
    }


PROMPTS = [
    _prompt("test_simple_prompt", "A prompt without arguments."),
    _prompt("test_prompt_with_arguments", "A prompt with two arguments.", "arg1", "arg2"),
    _prompt("test_prompt_with_embedded_resource", "A prompt with a resource.", "resourceUri"),
    _prompt("test_prompt_with_image", "A prompt with an image."),
    _prompt("test_input_required_result_prompt", "A prompt that asks for its context."),
]


def get_prompt(request: Request) -> dict[str, Any]:
    """Return a prompt."""
    name, arguments = request.params["name"], request.params.get("arguments", {})
    if name == "test_simple_prompt":
        return _messages(_text("This is a simple prompt for testing."))
    if name == "test_prompt_with_arguments":
        return _messages(_text(f"Prompt with arguments: arg1='{arguments['arg1']}', arg2='{arguments['arg2']}'"))
    if name == "test_prompt_with_embedded_resource":
        text = "Embedded resource content for testing."
        resource = {"uri": arguments["resourceUri"], "mimeType": "text/plain", "text": text}
        embedded = {"type": "resource", "resource": resource}
        return _messages(embedded, _text("Please process the embedded resource above."))
    if name == "test_prompt_with_image":
        image = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
        return _messages(image, _text("Please analyze the image above."))
    if name == "test_input_required_result_prompt":
        asked = elicitation("What context should the prompt use?", context=STRING)
        answers = request.ask({"user_context": asked})
        return _messages(_text(f"Context: {answers['user_context']['content']['context']}"))
    raise RequestError(-32602, "unknown prompt")


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _messages(*contents: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content} for content in contents]}
