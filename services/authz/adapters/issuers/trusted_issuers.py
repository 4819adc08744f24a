"""Reads the file of trusted external issuers, strictly and once at start."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from libs.common.auth.claims import MAX_CHAIN
from libs.common.auth.identity import Grant
from libs.common.auth.jose import ALGORITHMS
from libs.common.errors import MeshError
from libs.common.json.jsonio import parse_object
from services.authz.adapters.issuers.https_documents import https_url
from services.authz.domain.model import ExternalGrant
from services.authz.domain.tokens.grants import tool_violations

MAX_ISSUERS, MAX_FILE_BYTES = 64, 1024 * 1024
_SUBJECTS = re.compile(r"did:[a-z0-9]+:[A-Za-z0-9._:%-]*:")
_SCOPE = re.compile(r"[a-z][a-z0-9_.:-]*")
_TOOL = re.compile(r"([a-z*][a-z0-9*-]*\.)?[a-z*][a-z0-9_*]*")


class TrustedIssuersError(Exception):
    """Lists all problems of the file. For the log of the process, never for a caller."""


@dataclass(frozen=True)
class TrustedIssuer:
    """One external issuer, the mapping of its claims, and the grant of its users."""

    issuer: str
    audience: str
    jwks: str
    """An https:// address, or the path of a file."""
    algorithms: tuple[str, ...]
    subject_claim: str
    subject_did: str
    """The prefix of its users' DIDs. No issuer's prefix starts with another issuer's prefix."""
    grant: ExternalGrant
    ca: Path | None = None
    tenant: str = ""
    tenant_claim: str = ""
    groups_claim: str = ""
    groups: frozenset[str] = frozenset()
    """The accepted groups; others are dropped."""


def read_trusted_issuers(path: Path, *, max_lifetime: int) -> tuple[TrustedIssuer, ...]:
    """Read the file. Raises TrustedIssuersError with all problems."""
    try:
        document = parse_object(path.read_bytes(), max_bytes=MAX_FILE_BYTES)
    except (OSError, MeshError) as error:
        raise TrustedIssuersError(f"{path.name} cannot be read as a JSON object: {error}") from error
    reader = _Reader(max_lifetime)
    issuers = reader.issuers(document)
    problems = [*reader.problems, *_conflicts(issuers)]
    if problems:
        raise TrustedIssuersError(f"{path.name}: " + "; ".join(problems))
    return tuple(issuers)


class _Reader:
    """Parses the document and collects its problems. Unknown members are problems, because they may be misspelt."""

    def __init__(self, max_lifetime: int) -> None:
        self.problems: list[str] = []
        self._max_lifetime = max_lifetime

    def issuers(self, document: Mapping[str, Any]) -> list[TrustedIssuer]:
        self._refuse_unknown(document, {"issuers"}, "the file")
        entries = document.get("issuers")
        if not isinstance(entries, list) or not 1 <= len(entries) <= MAX_ISSUERS:
            self.problems.append(f"issuers is not a list of 1 to {MAX_ISSUERS}")
            return []
        return [self._issuer(entry, f"issuers[{index}]") for index, entry in enumerate(entries)]

    def _issuer(self, entry: Any, path: str) -> TrustedIssuer:
        entry = self._object(entry, path)
        known = {"issuer", "audience", "jwks", "ca", "algorithms", "subject", "tenant", "groups", "grant"}
        self._refuse_unknown(entry, known, path)
        subject = self._object(entry.get("subject"), f"{path}.subject")
        self._refuse_unknown(subject, {"claim", "did"}, f"{path}.subject")
        tenant = self._object(entry.get("tenant", {}), f"{path}.tenant")
        self._refuse_unknown(tenant, {"claim", "value"}, f"{path}.tenant")
        groups = self._object(entry.get("groups", {}), f"{path}.groups")
        self._refuse_unknown(groups, {"claim", "accepted"}, f"{path}.groups")
        return TrustedIssuer(
            issuer=self._text(entry, "issuer", path),
            audience=self._text(entry, "audience", path),
            jwks=self._text(entry, "jwks", path, _url_or_file),
            ca=Path(self._text(entry, "ca", path, _file)) if "ca" in entry else None,
            algorithms=self._texts(entry, "algorithms", path, _algorithm, most=3),
            subject_claim=self._text(subject, "claim", f"{path}.subject") if "claim" in subject else "sub",
            subject_did=self._text(subject, "did", f"{path}.subject", _did_prefix),
            tenant=self._text(tenant, "value", f"{path}.tenant") if "value" in tenant else "",
            tenant_claim=self._text(tenant, "claim", f"{path}.tenant") if "claim" in tenant else "",
            groups_claim=self._text(groups, "claim", f"{path}.groups") if groups else "",
            groups=frozenset(self._texts(groups, "accepted", f"{path}.groups", str, most=64) if groups else ()),
            grant=self._grant(entry.get("grant"), f"{path}.grant"),
        )

    def _grant(self, entry: Any, path: str) -> ExternalGrant:
        entry = self._object(entry, path)
        known = {"tools", "scopes", "trust_level", "lifetime_seconds", "delegation_depth", "resource_constraints"}
        self._refuse_unknown(entry, known, path)
        tools = tuple(
            Grant(tool, version)
            for tool, _, version in (
                text.partition("@") for text in self._texts(entry, "tools", path, _tool, most=256, least=0)
            )
        )
        self.problems += [f"{path}.{violation.path} {violation.message}" for violation in tool_violations(tools)]
        scopes = self._texts(entry, "scopes", path, _scope, most=64, least=0)
        if not tools and not scopes:
            self.problems.append(f"{path} grants neither tools nor scopes")
        return ExternalGrant(
            tools=tools,
            scopes=scopes,
            trust_level=self._integer(entry, "trust_level", path, 0, 100),
            lifetime=self._integer(entry, "lifetime_seconds", path, 1, self._max_lifetime),
            depth=self._integer(entry, "delegation_depth", path, 0, MAX_CHAIN),
            resources=self._texts(entry, "resource_constraints", path, str, most=64, least=0),
        )

    def _object(self, value: Any, path: str) -> Mapping[str, Any]:
        if isinstance(value, dict):
            return value
        self.problems.append(f"{path} is not an object")
        return {}

    def _refuse_unknown(self, value: Mapping[str, Any], known: set[str], path: str) -> None:
        self.problems += [f"{path} has no member {name!r}" for name in sorted(value.keys() - known)]

    def _text(self, entry: Mapping[str, Any], name: str, path: str, check: Callable[[str], str] = str) -> str:
        return self._checked(entry.get(name), f"{path}.{name}", check)

    def _checked(self, value: Any, path: str, check: Callable[[str], str]) -> str:
        if not isinstance(value, str) or not 1 <= len(value) <= 512:
            self.problems.append(f"{path} is not a text of 1 to 512 characters")
            return ""
        try:
            return check(value)
        except ValueError as error:
            self.problems.append(f"{path} {error}")
            return ""

    def _texts(
        self, entry: Mapping[str, Any], name: str, path: str, check: Callable[[str], str], *, most: int, least: int = 1
    ) -> tuple[str, ...]:
        value = entry.get(name, [] if not least else None)
        if not isinstance(value, list) or not least <= len(value) <= most:
            self.problems.append(f"{path}.{name} is not a list of {least} to {most}")
            return ()
        return tuple(self._checked(item, f"{path}.{name}[{index}]", check) for index, item in enumerate(value))

    def _integer(self, entry: Mapping[str, Any], name: str, path: str, low: int, high: int) -> int:
        value = entry.get(name)
        if type(value) is not int or not low <= value <= high:
            self.problems.append(f"{path}.{name} is not a whole number between {low} and {high}")
            return low
        return value


def _conflicts(issuers: list[TrustedIssuer]) -> Iterator[str]:
    names = [issuer.issuer for issuer in issuers]
    yield from (f"{name} is listed twice" for name in sorted({n for n in names if names.count(n) > 1}))
    for index, one in enumerate(issuers):
        if one.tenant and one.tenant_claim:
            yield f"issuers[{index}].tenant names both a claim and a value"
        for other in issuers[:index]:
            begins = (one.subject_did.startswith(other.subject_did), other.subject_did.startswith(one.subject_did))
            if one.subject_did and other.subject_did and any(begins):
                # Otherwise one issuer could issue tokens for users of the other.
                yield f"issuers[{index}].subject.did overlaps with that of another issuer"


def _url_or_file(text: str) -> str:
    return https_url(text) if "://" in text else _file(text)


def _file(text: str) -> str:
    if not Path(text).is_file():
        raise ValueError("is neither an https:// address nor a file")
    return text


def _algorithm(text: str) -> str:
    if text not in ALGORITHMS:
        raise ValueError(f"is not one of {', '.join(ALGORITHMS)}")
    return text


def _did_prefix(text: str) -> str:
    if not _SUBJECTS.fullmatch(text) or len(text) > 256:
        raise ValueError("is not a DID prefix that ends with a colon")
    return text


def _scope(text: str) -> str:
    if not _SCOPE.fullmatch(text):
        raise ValueError("is not a scope")
    return text


def _tool(text: str) -> str:
    if not _TOOL.fullmatch(text.partition("@")[0]):
        raise ValueError("is not a tool pattern")
    return text
