"""Detects instructions to a model, hidden markup and encoded blobs."""

from __future__ import annotations

import base64
import binascii
import re

from services.registry.domain.publishing.scan.confusables import fold_confusables
from services.registry.domain.publishing.scan.invisible import without_invisible
from services.registry.domain.publishing.scan.phrases import addresses_reader

_GAP = r"[\s\W]{1,8}"
_ANY = r"(?:\w+[\s\W]{1,4}){0,4}?"
_EARLIER = r"(?:previous|prior|above|earlier|preceding|existing|foregoing|system|original|initial|other)"
_ORDERS = r"(?:instructions?|prompts?|rules?|messages?|directions?|directives?|guidelines?|context|commands?|tools?)"
_USER = r"(?:the[\s\W]{1,4})?(?:user|human|operator|customer|person|client|anyone|anybody)"

# Each pattern is tried only on texts that contain one of its keywords, so that ordinary manifests cost little.
_COMMANDS: tuple[tuple[tuple[str, ...], re.Pattern[str]], ...] = (
    (
        ("ignore", "disregard", "forget", "override", "bypass"),
        re.compile(rf"\b(?:ignore|disregard|forget|override|bypass){_GAP}{_ANY}{_EARLIER}{_GAP}{_ANY}{_ORDERS}\b"),
    ),
    (
        ("not", "n't", "never", "without", "avoid"),
        re.compile(
            rf"(?:\bdo{_GAP}not|\bdon.?t|\bnever|\bmust{_GAP}not|\bwithout|\bavoid){_GAP}{_ANY}"
            rf"(?:tell|telling|inform|informing|mention|mentioning|reveal|revealing|notify|notifying|alert|alerting|"
            rf"disclose|disclosing|show|showing|let){_GAP}{_ANY}{_USER}\b"
        ),
    ),
    (
        ("secret", "hidden", "hide", "conceal"),
        re.compile(rf"\b(?:keep|hide|conceal|kept){_GAP}{_ANY}(?:secret{_GAP}|hidden{_GAP})?from{_GAP}{_USER}\b"),
    ),
    (
        ("important", "system", "instructions", "inst]", "im_start", "admin", "assistant"),
        re.compile(
            r"<\s?/?\s?(?:important|system|instructions?|admin|assistant|secret)\s?>|\[/?inst\]|<\|[a-z_]{2,16}\|>|"
            r"#{2,}\s?(?:system|instructions?)\b|\[\s?system\s?\]"
        ),
    ),
    (
        ("you are now", "developer mode", "jailbreak", "act as", "pretend"),
        re.compile(
            rf"\byou{_GAP}are{_GAP}now{_GAP}(?:a|an|in|the|free|no)\b|\bdeveloper{_GAP}mode\b|\bjailbreak|"
            rf"\b(?:act|pretend){_GAP}(?:as|to{_GAP}be){_GAP}(?:if{_GAP})?(?:an?{_GAP})?(?:system|admin|administrator|root|unrestricted)\b"
        ),
    ),
    (
        ("system prompt", "your instructions", "your prompt"),
        re.compile(
            rf"\b(?:reveal|print|repeat|output|send|show|leak|include){_GAP}{_ANY}(?:system{_GAP}prompt|your{_GAP}{_ANY}(?:instructions|prompt))\b"
        ),
    ),
    (
        ("before", "prior"),
        re.compile(
            rf"\b(?:before|prior{_GAP}to){_GAP}(?:using|calling|invoking|running|you{_GAP}(?:use|call|invoke|run)){_GAP}{_ANY}tools?\b"
            rf"[^.]{{0,80}}\b(?:you{_GAP}must|must|always|first){_GAP}{_ANY}(?:read|call|send|open|fetch|access|list|run)\b"
        ),
    ),
    (
        ("content", "history", "conversation"),
        re.compile(
            rf"\b(?:pass|put|append|include|send|forward|upload|attach){_GAP}{_ANY}"
            rf"(?:contents?{_GAP}(?:of{_GAP}{_ANY}file{_GAP})?as\b|(?:whole|full|entire){_GAP}(?:conversation|chat|history)|"
            rf"(?:conversation|chat){_GAP}history)"
        ),
    ),
    (
        (".ssh", "id_rsa", "mcp.json", "/etc/passwd", ".aws/credentials"),
        re.compile(r"\.ssh/|\bid_rsa\b|\bmcp\.json\b|/etc/passwd|\.aws/credentials"),
    ),
)
_STEERING = re.compile(
    rf"\b(?:always|only){_GAP}(?:use|call|invoke|choose){_GAP}this{_GAP}tool\b|"
    rf"\b(?:do{_GAP}not|don.?t|never){_GAP}(?:use|call|invoke){_GAP}(?:any{_GAP})?other{_GAP}tools?\b|"
    rf"\bprefer{_GAP}this{_GAP}tool\b|\b(?:must|should){_GAP}be{_GAP}called{_GAP}before{_GAP}(?:any|every|all)\b|"
    rf"\binstead{_GAP}of{_GAP}(?:any{_GAP}|all{_GAP}|every{_GAP})other{_GAP}tools?\b"
)
_COMMENT = re.compile(
    r"<!--|-->|\[//\]:\s?#|\[comment\]:|<\s?script|<\s?(?:span|div|p|details)[^>]{0,80}hidden|display\s?:\s?none|"
    r"font-size\s?:\s?0|data:text/html"
)
_BLOB = re.compile(
    r"[A-Za-z0-9+/_-]{72,}={0,2}|(?:\\x[0-9a-fA-F]{2}){16,}|(?:%[0-9a-fA-F]{2}){24,}|(?:&#x?[0-9a-fA-F]{2,6};){8,}"
)
_MOST_DECODED = 8_192
# No instruction fits into less.
_SHORTEST = 8


def has_instruction(text: str) -> bool:
    """Return whether a text instructs its reader."""
    if len(text) < _SHORTEST:
        return False
    seen = " ".join(fold_confusables(without_invisible(text)).split())
    if any(any(word in seen for word in words) and pattern.search(seen) for words, pattern in _COMMANDS):
        return True
    if addresses_reader(seen):
        return True
    decoded = _decoded(text)
    return bool(decoded) and has_instruction(decoded)


def has_steering(text: str) -> bool:
    """Return whether a text asks to be chosen over other tools."""
    if len(text) < _SHORTEST:
        return False
    seen = " ".join(fold_confusables(without_invisible(text)).split())
    return any(word in seen for word in ("tool", "called before")) and _STEERING.search(seen) is not None


def has_hidden_markup(text: str) -> bool:
    """Return whether a text has markup that is not visible when rendered."""
    return ("<" in text or "[" in text or ":" in text or "-->" in text) and _COMMENT.search(text.lower()) is not None


def has_encoded_blob(text: str) -> bool:
    """Return whether a text holds a long encoded run: mixed case with digits, or escape sequences."""
    match = _BLOB.search(text) if len(text) >= 48 else None
    if match is None:
        return False
    run = match.group()
    if not run[0].isalnum() or run[0] in "\\%&":
        return True
    return any(c.isdigit() for c in run) and any(c.isupper() for c in run) and any(c.islower() for c in run)


def _decoded(text: str) -> str:
    match = _BLOB.search(text) if len(text) >= 72 else None
    if match is None:
        return ""
    run = match.group()[:_MOST_DECODED].rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(run[: len(run) // 4 * 4], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""
