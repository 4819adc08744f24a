"""The state that a verifier pins between runs: the trusted key and the last checkpoint of each shard.

It reveals a rewritten history: an attacker with the database can change everything in it, but not this file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from toolmesh_sdk.audit.format.notes import Note, UnreadableNoteError, VerifierKey


@dataclass(slots=True)
class PinnedState:
    """The pinned key and checkpoints of one log."""

    key: str = ""
    notes: dict[int, str] = field(default_factory=dict)

    def checkpoints(self) -> dict[int, Note]:
        """Return the pinned checkpoint of each shard."""
        return {shard: Note.parse(note) for shard, note in self.notes.items()}


def load(path: Path) -> PinnedState:
    """Read the pinned state; empty if there is no file. Raises ValueError for an invalid file."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return PinnedState()
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    try:
        state = PinnedState(
            str(content["key"]), {int(shard): str(note) for shard, note in content["checkpoints"].items()}
        )
        VerifierKey.parse(state.key)
        state.checkpoints()
    except (KeyError, TypeError, AttributeError, UnreadableNoteError) as error:
        raise ValueError(f"{path} is not a pinned state: {error}") from None
    return state


def save(path: Path, state: PinnedState) -> None:
    """Replace the file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".new")
    notes = {str(shard): state.notes[shard] for shard in sorted(state.notes)}
    temporary.write_text(json.dumps({"key": state.key, "checkpoints": notes}, indent=2, ensure_ascii=False) + "\n")
    temporary.replace(path)
