"""Names of enum values in documents: lower-case words without the prefix of their enum."""

from __future__ import annotations

import re

from google.protobuf.descriptor import EnumDescriptor


def label_of(enum: EnumDescriptor, name: str) -> str:
    """Return the label of a value: `MUTATION_CLASS_READ_ONLY` is `read_only`."""
    return name.removeprefix(prefix_of(enum)).lower()


def prefix_of(enum: EnumDescriptor) -> str:
    """Return the prefix of the names of an enum's values."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", enum.name).upper() + "_"
