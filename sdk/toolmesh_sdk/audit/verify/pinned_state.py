"""What a verifier keeps from one time to the next: the key that it trusts and the last checkpoint of each shard.

This is what makes a rewritten history visible: whoever owns the database can change everything in it, but not this file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from toolmesh_sdk.audit.format.notes import Note, UnreadableNoteError, VerifierKey


@dataclass(slots=True)
class PinnedState:
    """The memory of a verifier, for one log."""

    key: str = ""
    notes: dict[int, str] = field(default_factory=dict)

    def checkpoints(self) -> dict[int, Note]:
        """Return the kept checkpoint of each shard."""
        return {shard: Note.parse(note) for shard, note in self.notes.items()}


def load(path: Path) -> PinnedState:
    """Return what is kept; nothing if there is no file. Raises ValueError for a file that holds something else."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return PinnedState()
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    try:
        kept = PinnedState(
            str(content["key"]), {int(shard): str(note) for shard, note in content["checkpoints"].items()}
        )
        VerifierKey.parse(kept.key)
        kept.checkpoints()
    except (KeyError, TypeError, AttributeError, UnreadableNoteError) as error:
        raise ValueError(f"{path} does not hold what a verifier keeps: {error}") from None
    return kept


def save(path: Path, kept: PinnedState) -> None:
    """Replace what is kept; a crash leaves the old or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".new")
    notes = {str(shard): kept.notes[shard] for shard in sorted(kept.notes)}
    fresh.write_text(json.dumps({"key": kept.key, "checkpoints": notes}, indent=2, ensure_ascii=False) + "\n")
    fresh.replace(path)
