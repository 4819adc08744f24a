"""What is removed, what is left, and what is said about it."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.common.json.jsonio import dump
from libs.common.redaction.declared import Declared
from libs.common.redaction.known_values import KnownValues
from libs.common.redaction.rules import Rules, read_rules
from libs.common.redaction.scanner import Finding, Scanner
from libs.common.redaction.tests.samples import LABELLED

CARD = "4111111111111111"


def test_a_finding_names_place_and_kind_and_never_the_thing() -> None:
    value = {"a/b": [{"note": f"card {CARD}"}], "password": "hunter2", "n": 1}
    redacted = Scanner().value(value)
    assert redacted.value == {
        "a/b": [{"note": "card [redacted:payment_card]"}],
        "password": "[redacted:password]",
        "n": 1,
    }
    assert set(redacted.findings) == {Finding("/a~1b/0/note", "payment_card"), Finding("/password", "password")}
    assert "hunter2" not in repr(redacted)
    assert CARD not in repr(redacted)


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\\n"])
def test_a_key_is_secret_also_without_its_beginning(line_end: str) -> None:
    lines = ["QUJD+/" * 10, "REVG==", "-----END RSA PRIVATE KEY-----"]
    cut_off, whole = line_end.join(lines), line_end.join(["-----BEGIN RSA PRIVATE KEY-----", *lines])
    for text in (cut_off, f"{cut_off} {whole}, {whole}", f"loaded: {cut_off}"):
        shown = Scanner().text(text).value
        assert "QUJD" not in shown
        assert "REVG" not in shown
    assert Scanner().text(f"loaded: {cut_off}, done").value == "loaded:[redacted:private_key], done"
    assert Scanner().text("-----END CERTIFICATE-----").findings == ()


def test_the_value_itself_is_left_alone() -> None:
    value = {"a": [f"card {CARD}"]}
    Scanner().value(value)
    assert value == {"a": [f"card {CARD}"]}


def test_a_number_that_is_a_card_is_one_without_quotes_too() -> None:
    assert Scanner().value({"n": int(CARD), "m": 12}).value == {"n": "[redacted:payment_card]", "m": 12}


def test_the_names_of_members_are_shown_too_so_they_are_examined_too() -> None:
    redacted = Scanner().value({"alice@example.com": 1, "bob@example.com": 2})
    assert redacted.value == {"[redacted:email]": 1, "[redacted:email]'": 2}
    assert {finding.pointer for finding in redacted.findings} == {"/[redacted:email]", "/[redacted:email]'"}


def test_no_member_takes_the_place_of_another() -> None:
    redacted = Scanner().value({"alice@example.com": 1, "[redacted:email]": 2, "bob@example.com": 3})
    assert redacted.value == {"[redacted:email]": 1, "[redacted:email]'": 2, "[redacted:email]'2": 3}


def test_very_many_names_are_numbered() -> None:
    """Told apart by ever longer marks they would keep a process busy for hours."""
    redacted = Scanner().value({f"a{n}@example.com": n for n in range(20_000)})
    assert len(redacted.value) == 20_000
    assert "[redacted:email]'19999" in redacted.value


@pytest.mark.parametrize("short", ["a@b.co", "B1234"])
def test_a_short_name_is_examined_like_a_short_value(short: str) -> None:
    rules = {"patterns": [{"kind": "badge", "pattern": "B[0-9]{4}", "example": "B1234"}]}
    assert short not in str(Scanner(read_rules(rules)).value({short: short}).value)


@pytest.mark.parametrize("naming", ["name", "key", "header", "field"])
def test_a_field_that_is_spelled_out_is_a_field(naming: str) -> None:
    value = {"list": [{naming: "X-Api-Key", "value": "abc123def"}, {naming: "Accept", "value": "text/html"}]}
    assert Scanner().value(value).value["list"][0]["value"] == "[redacted:secret]"
    assert Scanner().value(value).value["list"][1]["value"] == "text/html"


@pytest.mark.parametrize("name", ["apiKey", "API_KEY", "api-key", "x.api.key", "APIKEY", "userApiKeys", "myapikey"])
def test_a_name_is_one_however_it_is_spelled(name: str) -> None:
    assert Scanner().value({name: "abc123"}).value == {name: "[redacted:secret]"}


@pytest.mark.parametrize("value", ["", None, True, [], {}, "<your key>", "${API_KEY}", "***"])
def test_nothing_to_disclose_is_nothing_to_remove(value: Any) -> None:
    assert Scanner().value({"api_key": value}).findings == ()


def test_what_is_declared_goes_whatever_it_is() -> None:
    declared = Declared.of({"properties": {"a": {"x-sensitivity": "high"}}}, ["/b/0"])
    redacted = Scanner().value({"a": {"deep": 1}, "b": [1, 2], "c": 3}, declared)
    assert redacted.value == {"a": "[redacted:declared]", "b": ["[redacted:declared]", 2], "c": 3}
    assert redacted.findings == (Finding("/a", "declared"), Finding("/b/0", "declared"))


def test_beyond_its_bounds_everything_goes_unexamined() -> None:
    deep: Any = "end"
    for _ in range(10):
        deep = [deep]
    assert b"end" not in dump(Scanner(max_depth=5).value(deep).value)
    assert Scanner(max_parts=3).value([1, 2, 3, 4]).value == [1, 2, "[redacted:unexamined]", "[redacted:unexamined]"]
    assert Scanner(max_characters=5).value(["abcd", "efgh"]).value == ["abcd", "[redacted:unexamined]"]
    assert Scanner(max_characters=5).text("abcdef").value == "[redacted:unexamined]"


def test_a_text_is_examined_once_and_overlapping_finds_leave_one_marker() -> None:
    shown = Scanner().text("db postgresql://app:s3cretpw@db.example.com/x").value
    assert shown == "db postgresql://app:[redacted:credentials]@db.example.com/x"


@pytest.mark.parametrize("snippet", [snippet for snippet in LABELLED if snippet["expect"]], ids=repr)
def test_the_first_look_never_passes_over_what_a_closer_one_finds(snippet: dict[str, Any]) -> None:
    """A cheap no must be certain: for a text, and for the serialised JSON of a value."""
    scanner = Scanner()
    value = snippet.get("text", snippet.get("json"))
    if scanner.find(value) if isinstance(value, str) else scanner.value(value).findings:
        assert scanner.suspects(value if isinstance(value, str) else orjson.dumps(value).decode())
        assert scanner.suspects(orjson.dumps({"x": [value]}).decode())


NAMES = [
    "password",
    "apiKey",
    "x-auth-token",
    "ssn",
    "cvv",
    "card_number",
    "phone",
    "dob",
    "passportNumber",
    "name",
    "value",
    "note",
]
PIECES = [
    "4111",
    " ",
    "-",
    "1111",
    "536",
    "22",
    "8467",
    "+43",
    "660",
    "a",
    "@b.io",
    "=",
    ":",
    "password",
    "pin",
    "is",
    "tel",
    "ssn",
    "DE89",
    "x7Y",
    "\u0664",
]
PARTS = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)
VALUES = st.recursive(
    PARTS | st.integers(0, 10**17),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.sampled_from(NAMES), below, max_size=3),
    max_leaves=6,
)


@given(VALUES)
def test_a_cheap_no_is_certain_whatever_the_value(value: Any) -> None:
    if Scanner().value(value).findings:
        assert Scanner().suspects(dump(value).decode())


def test_additions_find_what_the_built_in_rules_do_not() -> None:
    document = {
        "fields": ["employee_no", "Geheimzahl"],
        "patterns": [{"kind": "badge", "pattern": "BDG-[0-9]{6}", "example": "BDG-123456"}],
        "ip_addresses": True,
    }
    scanner = Scanner(read_rules(document))
    value = {"employeeNo": "x", "geheimzahl": 7, "note": "BDG-000111 from 127.0.0.1 via 0.0.0.0", "n": "1.2.3"}
    assert scanner.suspects(dump(value).decode())
    assert scanner.value(value).value == {
        "employeeNo": "[redacted:field]",
        "geheimzahl": "[redacted:field]",
        "note": "[redacted:badge] from [redacted:ip_address] via [redacted:ip_address]",
        "n": "1.2.3",
    }
    assert Scanner(Rules()).value(value).findings == ()


@pytest.mark.parametrize(
    "text",
    [
        "4111 ",
        "a@",
        "password=",
        "eyJ",
        "1-",
        "+1",
        "sk-",
        "://a:",
        "-----BEGIN PRIVATE KEY-----",
        "DE89 ",
        "tel: ",
        "a.",
        "ghp_",
        "4111\n",
        "4111\t",
        "4111  ",
        "4111.",
        "card_4",
        "card_",
        "0049 ",
        "00",
        "DE89-",
        "phone number is ",
        "call me at ",
        "phone no 1",
        "ssn ",
        "social security number is ",
        "--password ",
        "--a-",
        "--pass 'x",
        "password: aaaaaaaa\n",
        "\n- ",
    ],
)
def test_no_repetition_makes_it_more_than_linear(text: str) -> None:
    """Twice the text, about twice the steps; a hundred times the text would otherwise never end."""
    Scanner().text(text * (250_000 // len(text)))


@pytest.mark.parametrize("value", ["a1b2-c3d4", 'quo"te\\d\n', "prüfung-7", "x" * 300])
def test_a_known_value_is_removed_wherever_it_is_repeated(value: str) -> None:
    scanner = Scanner().knowing(KnownValues({value, "271828"}))
    payload = {"note": f"got {value}.", value: 1, "n": 271828, "deep": [{"k": [value]}], "free": "nothing"}
    assert scanner.suspects(dump(payload).decode())
    redacted = scanner.value(payload).value
    assert value not in str(redacted)
    assert redacted["note"] == "got [redacted:declared]."
    assert (redacted["n"], redacted["free"]) == ("[redacted:declared]", "nothing")
    assert scanner.text(f"[{value}]").value == "[[redacted:declared]]"
    assert Scanner().text(f"[{value}]").value == f"[{value}]"
