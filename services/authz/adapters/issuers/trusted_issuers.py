"""Which outside issuers are trusted, and with what: a JSON file that is read once, strictly, when the process starts."""

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
from services.authz.domain.model import OutsideGrant
from services.authz.domain.tokens.grants import tool_refusals

MAX_ISSUERS, MAX_FILE_BYTES = 64, 1024 * 1024
_SUBJECTS = re.compile(r"did:[a-z0-9]+:[A-Za-z0-9._:%-]*:")
_SCOPE = re.compile(r"[a-z][a-z0-9_.:-]*")
_TOOL = re.compile(r"([a-z*][a-z0-9*-]*\.)?[a-z*][a-z0-9_*]*")


class TrustedIssuersError(Exception):
    """Says everything that is wrong with the file. For the log of the process, never for a caller."""


@dataclass(frozen=True)
class TrustedIssuer:
    """One outside issuer, how its tokens are read, and what its users are granted."""

    issuer: str
    audience: str
    jwks: str
    """An https:// address, or the path of a file."""
    algorithms: tuple[str, ...]
    subject_claim: str
    subject_did: str
    """What the DIDs of its users begin with; no two issuers share a beginning."""
    grant: OutsideGrant
    ca: Path | None = None
    tenant: str = ""
    tenant_claim: str = ""
    groups_claim: str = ""
    groups: frozenset[str] = frozenset()
    """The groups that are taken over; others mean nothing here."""


def read_trusted_issuers(path: Path, *, max_lifetime: int) -> tuple[TrustedIssuer, ...]:
    """Read the file, or raise TrustedIssuersError with every problem there is."""
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
    """Reads the document and collects what is wrong with it. A member that is not known is a problem: it may be misspelt."""

    def __init__(self, max_lifetime: int) -> None:
        self.problems: list[str] = []
        self._max_lifetime = max_lifetime

    def issuers(self, document: Mapping[str, Any]) -> list[TrustedIssuer]:
        self._only(document, {"issuers"}, "the file")
        entries = document.get("issuers")
        if not isinstance(entries, list) or not 1 <= len(entries) <= MAX_ISSUERS:
            self.problems.append(f"issuers is not a list of 1 to {MAX_ISSUERS}")
            return []
        return [self._issuer(entry, f"issuers[{index}]") for index, entry in enumerate(entries)]

    def _issuer(self, entry: Any, at: str) -> TrustedIssuer:
        entry = self._object(entry, at)
        known = {"issuer", "audience", "jwks", "ca", "algorithms", "subject", "tenant", "groups", "grant"}
        self._only(entry, known, at)
        subject = self._object(entry.get("subject"), f"{at}.subject")
        self._only(subject, {"claim", "did"}, f"{at}.subject")
        tenant = self._object(entry.get("tenant", {}), f"{at}.tenant")
        self._only(tenant, {"claim", "value"}, f"{at}.tenant")
        groups = self._object(entry.get("groups", {}), f"{at}.groups")
        self._only(groups, {"claim", "accepted"}, f"{at}.groups")
        return TrustedIssuer(
            issuer=self._text(entry, "issuer", at),
            audience=self._text(entry, "audience", at),
            jwks=self._text(entry, "jwks", at, _keys_place),
            ca=Path(self._text(entry, "ca", at, _file)) if "ca" in entry else None,
            algorithms=self._texts(entry, "algorithms", at, _algorithm, most=3),
            subject_claim=self._text(subject, "claim", f"{at}.subject") if "claim" in subject else "sub",
            subject_did=self._text(subject, "did", f"{at}.subject", _did_prefix),
            tenant=self._text(tenant, "value", f"{at}.tenant") if "value" in tenant else "",
            tenant_claim=self._text(tenant, "claim", f"{at}.tenant") if "claim" in tenant else "",
            groups_claim=self._text(groups, "claim", f"{at}.groups") if groups else "",
            groups=frozenset(self._texts(groups, "accepted", f"{at}.groups", str, most=64) if groups else ()),
            grant=self._grant(entry.get("grant"), f"{at}.grant"),
        )

    def _grant(self, entry: Any, at: str) -> OutsideGrant:
        entry = self._object(entry, at)
        known = {"tools", "scopes", "trust_level", "lifetime_seconds", "delegation_depth", "resource_constraints"}
        self._only(entry, known, at)
        tools = tuple(
            Grant(tool, version)
            for tool, _, version in (
                text.partition("@") for text in self._texts(entry, "tools", at, _tool, most=256, least=0)
            )
        )
        self.problems += [f"{at}.{violation.path} {violation.message}" for violation in tool_refusals(tools)]
        scopes = self._texts(entry, "scopes", at, _scope, most=64, least=0)
        if not tools and not scopes:
            self.problems.append(f"{at} grants neither tools nor scopes")
        return OutsideGrant(
            tools=tools,
            scopes=scopes,
            trust_level=self._whole(entry, "trust_level", at, 0, 100),
            lifetime=self._whole(entry, "lifetime_seconds", at, 1, self._max_lifetime),
            depth=self._whole(entry, "delegation_depth", at, 0, MAX_CHAIN),
            resources=self._texts(entry, "resource_constraints", at, str, most=64, least=0),
        )

    def _object(self, value: Any, at: str) -> Mapping[str, Any]:
        if isinstance(value, dict):
            return value
        self.problems.append(f"{at} is not an object")
        return {}

    def _only(self, value: Mapping[str, Any], known: set[str], at: str) -> None:
        self.problems += [f"{at} has no member {name!r}" for name in sorted(value.keys() - known)]

    def _text(self, entry: Mapping[str, Any], name: str, at: str, check: Callable[[str], str] = str) -> str:
        return self._checked(entry.get(name), f"{at}.{name}", check)

    def _checked(self, value: Any, place: str, check: Callable[[str], str]) -> str:
        if not isinstance(value, str) or not 1 <= len(value) <= 512:
            self.problems.append(f"{place} is not a text of 1 to 512 characters")
            return ""
        try:
            return check(value)
        except ValueError as error:
            self.problems.append(f"{place} {error}")
            return ""

    def _texts(
        self, entry: Mapping[str, Any], name: str, at: str, check: Callable[[str], str], *, most: int, least: int = 1
    ) -> tuple[str, ...]:
        value = entry.get(name, [] if not least else None)
        if not isinstance(value, list) or not least <= len(value) <= most:
            self.problems.append(f"{at}.{name} is not a list of {least} to {most}")
            return ()
        return tuple(self._checked(item, f"{at}.{name}[{index}]", check) for index, item in enumerate(value))

    def _whole(self, entry: Mapping[str, Any], name: str, at: str, low: int, high: int) -> int:
        value = entry.get(name)
        if type(value) is not int or not low <= value <= high:
            self.problems.append(f"{at}.{name} is not a whole number between {low} and {high}")
            return low
        return value


def _conflicts(issuers: list[TrustedIssuer]) -> Iterator[str]:
    names = [issuer.issuer for issuer in issuers]
    yield from (f"{name} is there twice" for name in sorted({n for n in names if names.count(n) > 1}))
    for index, one in enumerate(issuers):
        if one.tenant and one.tenant_claim:
            yield f"issuers[{index}].tenant names both a claim and a value"
        for other in issuers[:index]:
            begins = (one.subject_did.startswith(other.subject_did), other.subject_did.startswith(one.subject_did))
            if one.subject_did and other.subject_did and any(begins):
                # Otherwise one issuer could speak for the other's users.
                yield f"issuers[{index}].subject.did begins like another issuer's"


def _keys_place(text: str) -> str:
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
        raise ValueError("is not the beginning of a DID that ends with a colon")
    return text


def _scope(text: str) -> str:
    if not _SCOPE.fullmatch(text):
        raise ValueError("is not a scope")
    return text


def _tool(text: str) -> str:
    if not _TOOL.fullmatch(text.partition("@")[0]):
        raise ValueError("is not a pattern of tools")
    return text
