"""The language subprocess: reads a JSON request per line and writes a JSON response per line until stdin ends.

`{"embed": [text, ...]}` returns `{"vectors": [...]}`, each the base64 of 384 little-endian half floats; `{"count":
[text, ...], "tokenizer": name}` returns `{"counts": [...]}`; a failure returns `{"error": text}`.
"""

from __future__ import annotations

import base64
import os
import signal
import sys
from functools import cache
from typing import Any

import orjson

from services.registry.adapters.language.vocabularies import Vocabularies


def respond(request: dict[str, Any]) -> dict[str, Any]:
    """Return the response to one request."""
    try:
        if "embed" in request:
            rows = _model().embed(request["embed"]).astype("<f2")
            return {"vectors": [base64.b64encode(row.tobytes()).decode() for row in rows]}
        return {"counts": _vocabularies().count(request["count"], request["tokenizer"])}
    except Exception as error:
        # The parent decides how to handle it; a traceback would break the protocol.
        return {"error": f"{type(error).__name__}: {error}"[:500]}


def main() -> None:
    """Serve until stdin is closed."""
    # Ctrl-C in a terminal reaches this process too; it ends when the parent closes stdin.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Embedding thousands of new tools takes minutes of a core; tool calls have priority.
    os.nice(5)
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(orjson.dumps(respond(orjson.loads(line)), option=orjson.OPT_APPEND_NEWLINE))
        sys.stdout.buffer.flush()


@cache
def _model() -> Any:
    from services.registry.adapters.language.minilm import MiniLm  # 70 MB; a process that only counts does without.

    return MiniLm()


@cache
def _vocabularies() -> Vocabularies:
    return Vocabularies()


if __name__ == "__main__":
    main()
