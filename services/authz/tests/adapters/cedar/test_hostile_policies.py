"""Hostile documents: huge, deep, many and malformed ones are refused within bounds and never crash the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from services.authz.adapters.cedar.compiler import MAX_POLICIES, MAX_PROBLEMS, CedarCompiler, compiler_for
from services.authz.tests.policy_texts import permit
from services.authz.wiring import POLICIES


@pytest.fixture(scope="module")
def compiler() -> CedarCompiler:
    return compiler_for(POLICIES)


DEEP = {
    "brackets": "('('*50000) + 'true' + ')'*50000",
    "negations": "'!('*50000 + 'true' + ')'*50000",
    "attributes": "'principal' + '.a'*50000",
    "conjunctions": "' && '.join(['true']*50000)",
    "sums": "'1' + '+1'*50000 + ' > 0'",
    "branches": "'if true then '*50000 + 'true' + ' else false'*50000",
    "lists": "'['*50000 + ']'*50000 + ' == []'",
    "records": "'{\"a\":'*50000 + '1' + '}'*50000 + ' == 1'",
    "deeper than is worked with": "' && '.join(['true']*390)",
    "as deep as allowed": "' && '.join(['context.session_id == \"a\"']*80)",
}


def test_no_depth_ends_the_process(repository: Path) -> None:
    """Runs in a child process: a stack overflow in the parser would end the process."""
    script = f"""
from services.authz.adapters.cedar.compiler import compiler_for
from services.authz.wiring import POLICIES
compiler = compiler_for(POLICIES)
head = '@id("a") @effect("allow") @reason("r") permit (principal, action, resource) '
for body in ({", ".join(DEEP.values())},):
    text = head + 'when {{ ' + body + ' }};'
    problems, count = compiler.validate({{"a.cedar": text}})
    print([problem.rule for problem in problems], count)
    if not problems:
        compiler.compile({{"a.cedar": text}})
# A comment for everyone but the parser.
text = head + '//' + chr(13) + 'when {{ ' + {DEEP["brackets"]} + ' }}' + chr(10) + ';'
problems, count = compiler.validate({{"a.cedar": text}})
print([problem.rule for problem in problems], count)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=repository, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines() == ["['size'] 0"] * (len(DEEP) - 1) + ["[] 1", "['text'] 0"]


def test_more_policies_than_allowed_are_refused_as_a_whole(compiler: CedarCompiler) -> None:
    text = "\n".join(permit(f"p{index}") for index in range(MAX_POLICIES + 1))
    problems, count = compiler.validate({"a.cedar": text})
    assert ([problem.rule for problem in problems], count) == (["size"], 0)


def test_ten_thousand_wrong_policies_are_named_up_to_a_bound(compiler: CedarCompiler) -> None:
    problems, _ = compiler.validate({"a.cedar": "permit (principal;\n" * 4_000})
    assert len(problems) == MAX_PROBLEMS
    assert [problem.line for problem in problems] == list(range(1, MAX_PROBLEMS + 1))


def test_a_set_has_a_size(compiler: CedarCompiler) -> None:
    problems, _ = compiler.validate({f"{name}.cedar": "//" + "x" * 500_000 for name in "abcdefghi"})
    assert [(problem.document, problem.rule) for problem in problems] == [("", "size")]


@pytest.mark.parametrize(
    "text",
    [
        "\x00",
        "\ud7ff\U0001f600 permit",
        "@id(" * 1_000,
        '"' * 999,
        "//" * 1_000,
        "/* no comment of ours */ permit (principal, action, resource);",
        "\\" * 1_000,
        "\u2028permit (principal, action, resource);",
        "permit (principal, action, resource) when { " + 'principal.tenant == "a" || ' * 300 + "true };",
        'permit (principal == User::"' + "a" * 400_000 + '", action, resource);',
    ],
)
def test_malformed_texts_are_reported_as_problems(compiler: CedarCompiler, text: str) -> None:
    problems, _ = compiler.validate({"a.cedar": text})
    assert problems
    assert all(problem.message for problem in problems)


@pytest.mark.parametrize(
    "hidden", ['when { principal.tenant == "a" }', "; permit (principal, action, resource)", "// twice\r"]
)
def test_text_that_only_the_parser_sees_is_refused(compiler: CedarCompiler, hidden: str) -> None:
    shown = permit("p").removesuffix(";")
    problems, count = compiler.validate({"a.cedar": f"{shown} // a remark\r{hidden}\n;"})
    assert [(problem.rule, problem.line, problem.column) for problem in problems] == [
        ("text", 1, len(f"{shown} // a remark\r"))
    ]
    assert count == 0


def test_lines_may_end_as_they_do_elsewhere(compiler: CedarCompiler) -> None:
    assert compiler.validate({"a.cedar": f"// a remark\r\n{permit('p')}\r\n"}) == ([], 1)


@pytest.mark.parametrize("name", ["a.json", "schema.cedarschema", "a.txt"])
def test_only_policies_and_limits_make_a_set(compiler: CedarCompiler, name: str) -> None:
    problems, _ = compiler.validate({"a.cedar": permit("p"), name: "{}"})
    assert [(problem.document, problem.rule) for problem in problems] == [(name, "document")]


def test_ids_with_any_letters_are_data_and_not_syntax(compiler: CedarCompiler) -> None:
    problems, count = compiler.validate({"a.cedar": permit('ü \\" ); forbid \U0001f600')})
    assert (problems, count) == ([], 1)
