"""COA-1: each rule of the grammar and option, broken once: line, column, what may stand there."""

from __future__ import annotations

from pathlib import Path

import pytest

from gspc_trio.cli.coallocation.commands import app
from gspc_trio.cli.common import run_command
from gspc_trio.components.coallocation.language import parse_coallocation
from gspc_trio.components.coallocation.tree import RslError
from gspc_trio.components.coallocation.vocabulary import WORDS

RULES = {
    "request: none": ("\n ", 2, 2, "'*', '+', '&' or the name of a job is missing"),
    "request: *, nothing": ("\n*", 2, 2, "the text ends here, and '(' and a stage is missing"),
    "request: *, no stage": ("*(on_error=1))", 1, 14, "')' cannot be here; '(' and a stage may"),
    "request: +, nothing": ("+ ", 1, 3, "the text ends here, and '(' and a part is missing"),
    "request: +, no part": ("+(on_error=1))", 1, 14, "')' cannot be here; '(' and a part may"),
    "request: &, nothing": ("&a", 1, 2, "'a' cannot be here; '(' and an option may"),
    "request: NAME": ("a\n(count=1)b", 2, 10, "'b' cannot be here; '(' or the end may"),
    "request: a second one": ("*(a)*(b)", 1, 5, "'*' cannot be here; '(' or the end may"),
    "stage: no request": (
        "*(=)",
        1,
        3,
        "'=' cannot be here; '*', '+', '&', the name of a job or that of an o",
    ),
    "stage: not closed": (
        "*(a\n",
        2,
        1,
        "the text ends here, and '=', '!=', '<', '<=', '>', '>=', '(' or ')'",
    ),
    "stage: the one of RSL 1.0": (
        "(*a*)",
        1,
        1,
        "'(' cannot be here; '*', '+', '&' or the name of a job may",
    ),
    "stage: errata": ("*(*(*(a))(b)(c))(d))(e)", 1, 20, "')' cannot be here; '(' or the end may"),
    "part: +": ("+(a)(+(b))", 1, 6, "'+' cannot be here; '&', the name of a job or that of an option may"),
    "part: *": ("+(*(b))", 1, 3, "'*' cannot be here; '&', the name of a job or that of an option may"),
    "part: & without options": ("+(&)", 1, 4, "')' cannot be here; '(' and an option may"),
    "part: not closed": ("+(&(count=1)", 1, 13, "the text ends here, and '(' or ')' is missing"),
    "option: no name": ("&(<=2)", 1, 3, "'<=' cannot be here; the name of an option may"),
    "option: no op": ("&(count 2)", 1, 9, "'2' cannot be here; '=', '!=', '<', '<=', '>' or '>=' may"),
    "option: no value": ("&(count =)", 1, 10, "')' cannot be here; a value may"),
    "option: not closed": ("&(count=2", 1, 10, "the text ends here, and a value or ')' is missing"),
    "op: two": ("&(count==2)", 1, 9, "'=' cannot be here; a value may"),
    "op: none of the six": ("&(count!2)", 1, 8, "'!' cannot be here; '=', '!=', '<', '<=', '>' or '>=' may"),
    "value: LITERAL with a sign": ("&(executable=+a)", 1, 14, "'+' cannot be here; a value may"),
    "value: LITERAL with ^": ("&(executable=a^)", 1, 15, "'^' cannot be here; a value or ')' may"),
    "value: LITERAL with #": ("&(executable=a#b)", 1, 15, "'#' cannot be here; a value or ')' may"),
    "value: LITERAL with $": ("&(arguments=$(A))", 1, 13, "'$' cannot be here; a value may"),
    'value: "text" not closed': (
        '&(executable=\n"a""b)',
        2,
        1,
        "this quote is never closed: a value",
    ),
    "value: 'text' not closed": (
        "&(executable='it''s)",
        1,
        14,
        "this quote is never closed: a value",
    ),
    "value: () is empty": ("&(environment=())", 1, 16, "')' cannot be here; a value may"),
    "value: ( not closed": ("&(environment=(A b", 1, 19, "the text ends here, and a value or ')' is missing"),
}
"""Rule, and how it is broken -> text, line, column, and what is said."""

VALUES = {
    "executable": ("''", 14, "executable is empty"),
    "arguments": ("(a b)", 13, "arguments takes texts, not a list in parentheses"),
    "directory": ("a b", 15, "directory takes one value, not 2"),
    "environment": ("A", 15, "environment takes pairs in parentheses"),
    "count": ("4 0", 11, "count is a whole number from 1 to 1,000,000, not '0'"),
    "class": ("core ''", 14, "class is empty"),
    "memory": ("4GiB much", 15, "memory is a size such as 512MiB or 4GiB, not 'much'"),
    "features": ("(a (b))", 12, "features are names, or several of them in parentheses"),
    "max_time": ("-1", 12, "max_time is a number of seconds more than 0, not '-1'"),
    "contact": ("hot cold", 15, "contact takes one value, not 2"),
    "start": ("soon", 9, "start is together or inside, not 'soon'"),
    "barrier_timeout": ("never", 19, "barrier_timeout is a number of seconds more than 0, not 'never'"),
    "wait": ("1,,2", 10, "a number of a job is missing at this comma"),
    "on_error": ("N", 12, "on_error is a whole number from 0 to 1,000,000, not 'N'"),
    "attempts": ("0", 12, "attempts is a whole number from 1 to 1,000,000, not '0'"),
}
"""Option -> values that it cannot have, in which column, and what is said."""

PLACES = {
    "program": ("+({}=1)(a)", 3, "is an option of a & or a name, and not of a +"),
    "job": ("*({}=1)(a)", 3, "is an option of a &, a name or a +, and not of a *"),
    "stages": ("+(a({}=1))", 5, "is an option of a request, and not of a part of a +"),
}
"""Where an option stands -> a text with it elsewhere, in which column, and what is said."""

BROKEN = [
    *(pytest.param(*case, id=rule) for rule, case in RULES.items()),
    *(
        pytest.param(f"a({name}={values})", 1, column, said, id=name)
        for name, (values, column, said) in VALUES.items()
    ),
    *(
        pytest.param(text.format(word.name), 1, column, f"{word.name} {said}", id=f"{word.name} elsewhere")
        for word in WORDS.values()
        for text, column, said in (PLACES[word.at],)
    ),
    *(
        pytest.param(
            f"a({word.name}<1)",
            1,
            3,
            f"{word.name} takes {' or '.join(word.operators)}, not <",
            id=f"{word.name}, another op",
        )
        for word in WORDS.values()
    ),
    *(
        pytest.param(
            f"a({name}={good})({name.upper()}={good})",
            1,
            5 + len(name) + len(good) + 1,
            f"{name} is there twice",
            id=f"{name} twice",
        )
        for name, good in (
            (word.name, {"environment": "(A b)", "start": "inside"}.get(word.name, "1"))
            for word in WORDS.values()
        )
    ),
    pytest.param("a(barier_timeout=1)", 1, 3, "there is no option 'barier_timeout'", id="unknown"),
    pytest.param("*(a)(b(wait=3))", 1, 13, "there is no job 3", id="wait: unknown"),
    pytest.param("*(a)(b(wait=1,2))", 1, 15, "job 2 waits for itself", id="wait: itself"),
    pytest.param("*(a(wait=2))(b(wait=1))", 1, 21, "circle", id="wait: a circle"),
]


def test_each_option_is_broken():
    assert set(VALUES) == {word.name for word in WORDS.values()}
    assert {rule.partition(":")[0] for rule in RULES} == {"request", "stage", "part", "option", "op", "value"}


@pytest.mark.parametrize(("text", "line", "column", "said"), BROKEN)
def test_a_broken_rule_is_told_with_its_place(text: str, line: int, column: int, said: str) -> None:
    with pytest.raises(RslError) as caught:
        parse_coallocation(text)
    assert (caught.value.line, caught.value.column) == (line, column), caught.value
    assert said in caught.value.message


def test_the_command_says_each_in_one_line_with_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for case in BROKEN:
        text, line, column, said = case.values
        file = tmp_path / "request.rsl"
        file.write_text(str(text))
        with pytest.raises(SystemExit) as ended:
            run_command(app, ["check", str(file)])
        told = capsys.readouterr()
        assert ended.value.code == 1, text
        assert told.out == ""
        (shown,) = told.err.splitlines()
        assert f"{file}: line {line}, column {column}: " in shown
        assert str(said) in shown
