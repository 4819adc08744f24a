"""The process itself: reads a question in JSON from each line, writes an answer in JSON to a line, until its input ends.

`{"embed": [text, ...]}` is answered with `{"vectors": [...]}`, each the base64 of 384 little-endian half floats;
`{"count": [text, ...], "tokenizer": name}` with `{"counts": [...]}`; what fails, with `{"error": what}`.
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


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to one question."""
    try:
        if "embed" in question:
            rows = _model().embed(question["embed"]).astype("<f2")
            return {"vectors": [base64.b64encode(row.tobytes()).decode() for row in rows]}
        return {"counts": _vocabularies().count(question["count"], question["tokenizer"])}
    except Exception as error:
        # The other side decides what that means; a traceback in the middle of a protocol helps nobody.
        return {"error": f"{type(error).__name__}: {error}"[:500]}


def main() -> None:
    """Serve until the other side is gone, however it went."""
    # Whoever interrupts the registry from a terminal interrupts this process too; it ends with its input instead.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Working out what thousands of new tools mean takes minutes of a core; whoever calls a tool meanwhile goes first.
    os.nice(5)
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(orjson.dumps(answer(orjson.loads(line)), option=orjson.OPT_APPEND_NEWLINE))
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
