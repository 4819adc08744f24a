"""Problems are reported with the line and column of their cause."""

from __future__ import annotations

import pytest

from services.authz.adapters.cedar.compiler import CedarCompiler, compiler_for
from services.authz.adapters.cedar.tokenizer import line_and_column, split_policies
from services.authz.domain.policies.model import PolicyProblem
from services.authz.wiring import POLICIES

HEAD = '@id("p")\n@effect("allow")\n@reason("r")\n'
GOOD = '@id("good") @effect("allow") @reason("r") permit (principal, action, resource);\n'


@pytest.fixture(scope="module")
def compiler() -> CedarCompiler:
    return compiler_for(POLICIES)


def problems(compiler: CedarCompiler, text: str) -> list[PolicyProblem]:
    return compiler.validate({"a.cedar": text})[0]


# What is marked by ^ is where the problem must be shown; the mark itself is not part of the text.
WRONG = {
    "the end is missing": ("syntax", "permit (principal^"),
    "a semicolon is missing": (
        "syntax",
        HEAD + 'permit (principal, action, resource)\n^@id("q") permit (principal, action, resource);',
    ),
    "a bracket is missing": ("syntax", HEAD + "permit (principal, action, resource ^when { true };"),
    "a bracket is left": ("syntax", HEAD + "permit (principal, action, resource)\nwhen { (true)^) };"),
    "an operand is missing": ("syntax", HEAD + "permit (principal, action, resource)\nwhen { 1 + ^};"),
    "an operator is doubled": ("syntax", HEAD + "permit (principal, action, resource)\nwhen { true && ^&& true };"),
    "a word is misspelt": ("syntax", HEAD + "permit (principal, action, resource)\n^whn { true };"),
    "an effect is unknown": ("syntax", HEAD + "^allow (principal, action, resource);"),
    "a function is unknown": ("syntax", HEAD + "permit (principal, action, resource)\nwhen { ^foo(3) };"),
    "an escape is unknown": (
        "syntax",
        HEAD + 'permit (principal, action, resource)\nwhen { resource.namespace == ^"a\\q" };',
    ),
    "a number is too large": (
        "syntax",
        HEAD + "permit (principal, action, resource)\nwhen { resource.trust > ^99999999999999999999 };",
    ),
    "a text does not end": (
        "syntax",
        HEAD + 'permit (principal, action, resource)\nwhen { resource.namespace == ^"abc };\n' + GOOD,
    ),
    "a text does not end at all": (
        "syntax",
        HEAD + 'permit (principal, action, resource)\nwhen { resource.namespace == ^"abc };\n',
    ),
    "an annotation is doubled": ("syntax", '@id("a")\n@^id("b") permit (principal, action, resource);'),
    "variables are in the wrong order": ("syntax", HEAD + "permit (^action, principal, resource);"),
    "a letter is not known": ("syntax", "p^érmit (principal, action, resource);"),
    "there is nothing to end": ("syntax", GOOD + "^;"),
    "a call has too many arguments": (
        "syntax",
        HEAD + 'permit (principal, action, resource)\nwhen { principal.groups.^containsAll(["a"], 3) };',
    ),
    "an attribute is misspelt": (
        "type",
        HEAD + "permit (principal, action, resource)\nwhen {\n  resource.trust > 1 &&\n  principal.^trust_lvl > 1\n};",
    ),
    "an attribute of the context is misspelt": (
        "type",
        HEAD + 'permit (principal, action, resource)\nwhen { context.^argumnts.facts.contains("x") };',
    ),
    "an attribute is missing in a longer word": (
        "type",
        HEAD + 'permit (principal, action, resource)\nwhen { principal.tenant == "lvl" && principal.^lvl };',
    ),
    "types differ": (
        "type",
        HEAD
        + "permit (principal, action, resource)\nwhen {\n  resource.closed_world &&\n"
        + "  (resource.trust > 3 || ^resource.trust == true)\n};",
    ),
    "a condition is a number": (
        "type",
        HEAD + "permit (principal, action, resource)\nwhen { resource.closed_world && ^principal.trust_level };",
    ),
    "a condition behind unless": (
        "type",
        HEAD + "permit (principal, action, resource)\nwhen { true }\nunless { ^principal.trust_level };",
    ),
    "a set holds something else": (
        "type",
        HEAD + "permit (principal, action, resource)\nwhen { resource.closed_world && ^resource.tags.contains(3) };",
    ),
    "an action is unknown": ("type", HEAD + 'permit (principal, action == ^Action::"delete", resource);'),
    "a kind of entity is unknown": ("type", HEAD + 'permit (principal == ^Foo::"x", action, resource);'),
    "an argument of a tag is unguarded": (
        "type",
        HEAD + 'permit (principal, action, resource)\nwhen { context.risk.getTag(^"x") > 3 };',
    ),
    "an address is none": ("type", HEAD + 'permit (principal, action, resource) when { ip(^"300.1.1.1").isIpv4() };'),
    "a template": ("template", "^" + HEAD + "permit (principal == ?principal, action, resource);"),
    "an annotation is unknown": ("annotation", HEAD + '^@redcat("/x") permit (principal, action, resource);'),
    "an effect is a lie": (
        "annotation",
        '@id("p")\n@reason("r")\n ^@effect("deny")\npermit (principal, action, resource);',
    ),
    "a reason is missing": ("annotation", '@id("p") @effect("allow")\n^permit (principal, action, resource);'),
    "an id is missing": ("annotation", '\n\n^@reason("r") @effect("allow")\npermit (principal, action, resource);'),
    "brackets are nested": (
        "size",
        HEAD + "permit (principal, action, resource) when { " + "(" * 39 + "^(" * 1 + "true" + ")" * 40 + " };",
    ),
    "text that turns around": (
        "text",
        HEAD + 'permit (principal, action, resource) when { resource.namespace == "^\u202eabc" };',
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_problem_has_the_line_and_column_of_its_cause(compiler: CedarCompiler, name: str) -> None:
    rule, marked = WRONG[name]
    text = marked.replace("^", "")
    found = problems(compiler, text)
    assert {problem.rule for problem in found} == {rule}
    first = found[0]
    assert (first.line, first.column) == line_and_column(text, marked.index("^"))


def test_one_wrong_policy_does_not_hide_another(compiler: CedarCompiler) -> None:
    text = (
        GOOD
        + HEAD
        + "permit (principal;\n"
        + HEAD.replace('"p"', '"q"')
        + "permit (principal, action, resource) when { principal.x };"
    )
    assert [(problem.rule, problem.line) for problem in problems(compiler, text)] == [("syntax", 5), ("type", 9)]


def test_the_closest_attribute_is_suggested(compiler: CedarCompiler) -> None:
    (problem,) = problems(compiler, HEAD + "permit (principal, action, resource) when { principal.trust_lvl > 1 };")
    assert "`trust_level`" in problem.message


def test_repeated_validator_messages_are_reported_once(compiler: CedarCompiler) -> None:
    """The validator says it for each kind of principal and for each action."""
    (problem,) = problems(compiler, HEAD + "permit (principal, action, resource) when { principal.nothing };")
    assert problem.policy == "p"


def test_semicolons_in_texts_and_comments_end_nothing() -> None:
    text = (
        '// a; b\n@reason("x;y") permit (principal, action, resource); // c;\nforbid (principal, action, resource)\n;'
    )
    assert [(policy.line, policy.text.count(";")) for policy in split_policies("a.cedar", text)] == [(2, 2), (3, 1)]


def test_crlf_and_tabs_count_as_they_are_seen(compiler: CedarCompiler) -> None:
    (problem,) = problems(
        compiler, HEAD.replace("\n", "\r\n") + "\tpermit (principal, action, resource)\r\nwhen { 1 + };"
    )
    assert (problem.line, problem.column) == (5, 12)
