"""The labelled snippets. Nothing in them is real: numbers are drawn, names invented, and keys lead nowhere."""

from __future__ import annotations

from pathlib import Path

from tools.measure_redaction import labelled

LABELLED = list(labelled(Path(__file__).with_name("labelled.ndjson")))
