"""Sensitive elements of lists: `[["authorization", "..."]]` and `["curl", "-u", "user:pw"]`."""

from __future__ import annotations

from typing import Any

from libs.common.redaction.detectors.credentials import CREDENTIALS, login_password
from libs.common.redaction.detectors.spans import Span
from libs.common.redaction.fields import FieldNames

_LOGIN_OPTIONS = frozenset({"-u", "-U", "--user", "--proxy-user"})


def is_list_of_pairs(items: list[Any]) -> bool:
    """Return whether every element is a name with its value."""
    return bool(items) and all(isinstance(item, list) and len(item) == 2 and isinstance(item[0], str) for item in items)


def option_kind(names: FieldNames, option: Any, value: Any) -> str:
    """Return the kind of a command's argument behind an option such as `--password`; empty if it is not sensitive."""
    if not isinstance(option, str) or not option.startswith("--") or not isinstance(value, str):
        return ""
    return "" if value.startswith("-") else names.means(option[2:], value)


def option_login(option: Any, value: Any) -> Span | None:
    """Return the password in the `user:password` behind `-u`."""
    if not isinstance(option, str) or option not in _LOGIN_OPTIONS or not isinstance(value, str):
        return None
    start = login_password(value)
    return None if start < 0 else Span(start, len(value), CREDENTIALS)
