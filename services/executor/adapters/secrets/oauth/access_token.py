"""What an authorization server answers: a token, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass, field


class TokenRefusedError(Exception):
    """The authorization server does not grant a token. `code` is its error code, if that has the form of one."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class TokenUnavailableError(Exception):
    """The authorization server cannot be asked, or its answer is none. `cause` names the kind of failure."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A token and its remaining seconds. Its text shows no value."""

    value: str = field(repr=False)
    lifetime: float
