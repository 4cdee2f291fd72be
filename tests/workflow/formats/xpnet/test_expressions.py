"""What expressions of xpnet are worth, and what is said of those that are wrong."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterator

import pytest

from gspc_trio.workflow.formats.format import FormatError
from gspc_trio.workflow.formats.xpnet.compiling import (
    ExpressionError,
    compile_condition,
    compile_results,
    compile_value,
)
from gspc_trio.workflow.formats.xpnet.types import (
    ANY,
    BIGINT,
    BOOL,
    DOUBLE,
    FLOAT,
    INT,
    LIST,
    LONG,
    STRING,
    UINT,
    struct_type,
)
from gspc_trio.workflow.formats.xpnet.values import Float, Int
from tests.workflow.formats.xpnet.support import evaluated, parsed

POINT = struct_type("point", [("x", FLOAT), ("y", INT)])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", "[]"),
        ("1; 2L;", "2L"),
        ("1 + 2 * 3", "7"),
        ("(1 + 2) * 3", "9"),
        ("7 - 2 - 1", "4"),
        ("2 ^ 3 ^ 2", "512"),
        ("2.0 ** 3.0 ** 2.0", "512.0"),
        ("-2 ^ 2", "4"),
        ("-7 div 2", "-3"),
        ("-7 mod 2", "-1"),
        ("7 % -2", "1"),
        ("mod(7, 4) mod 2", "1"),
        ("div(7, 2)", "3"),
        ("-7.5 % 2.0", "-1.5"),
        ("2 * 7 mod 4", "6"),
        ("1.0 / 4.0", "0.25"),
        ("1f / 3f", "0.33333334f"),
        ("0.1f + 0.2f", "0.3f"),
        ("16777216f + 1f", "16777216.0f"),
        ("-2147483648", "-2147483648"),
        ("5U - 3U", "2U"),
        ("9223372036854775807A + 1A", "9223372036854775808A"),
        ("6 & 3 | 8", "10"),
        ("true & false | true", "true"),
        ("1 < 2 && 2L :ge: 2L :and: !false", "true"),
        ("1 :ne: 1 || :not: true :or: 'a' < 'b'", "true"),
        ("1 == 2 || 1 :eq: 1", "true"),
        ("List (1, 1L) == List (1, 1)", "false"),
        ('"a" + "b" + "c"', '"abc"'),
        ("'a' + 'b'", '"ab"'),
        (r'"tab\t \"quoted\" \\"', r'"tab\t \"quoted\" \\"'),
        ("pi * e > 8.5", "true"),
        ("min (3, -2)", "-2"),
        ("max (1.5, 2.5)", "2.5"),
        ("abs -3L + 1L", "4L"),
        ("floor 1.5 + 1.0", "2.0"),
        ("floor(1.5) + ceil 1.5 + round(2.5) + round -2.5", "3.0"),
        ("sqrt 9.0 - cos(0.0) - sin(0.0) + log(1.0)", "2.0"),
        ("sqrt(2f)", "1.4142135f"),
        ("int(2.9) + int(-2.9) + int(3L)", "3"),
        ("long(1) + 1L", "2L"),
        ("ulong(1) + 1UL", "2UL"),
        ("uint(1.5)", "1U"),
        ("float(1)", "1.0f"),
        ("double(1f) + todouble(2L)", "3.0"),
        ("bigint(7) ^ 30A", "22539340290692258087863249A"),
        ("add(1, 2) + sub(5, 3) + mul(2, 2)", "9"),
        ("pow(2.0, 3.0)", "8.0"),
        ("/* a /* nested */ comment */ 1 /* ; 2 */", "1"),
        ("""/* don't "quote" */ 1 /* " */ + 2 /* ' */""", "3"),
        ('"no /* comment"', '"no /* comment"'),
        # Stacks
        ("stack_push (List (1), 2L)", "List (1, 2L)"),
        ("stack_top (List (1, 2)) + 1", "3"),
        ("stack_pop (List (1, 2))", "List (1)"),
        ("stack_size (List (1, 2))", "2UL"),
        ("stack_empty (List ())", "true"),
        ("stack_join (List (1), List (2))", "List (1, 2)"),
        # Sets
        ("set_insert (Set {3, 1}, 2)", "Set {1, 2, 3}"),
        ("set_insert (Set {1}, 1)", "Set {1}"),
        ("set_insert (Set {1}, 1L)", "Set {1, 1L}"),
        ("set_erase (Set {3, 1}, 3)", "Set {1}"),
        ("set_erase (Set {3, 1}, 4)", "Set {1, 3}"),
        ("set_is_element (Set {3, 1}, 3)", "true"),
        ("set_is_element (Set {3, 1}, 3L)", "false"),
        ("set_pop (Set {3, 1})", "Set {3}"),
        ("set_top (Set {3, 1})", "1"),
        ("set_empty (Set {})", "true"),
        ("set_size (Set {1, 1, 2})", "2UL"),
        ("set_is_subset (Set {1}, Set {2, 1})", "true"),
        # Maps
        ("map_assign (Map [2 -> 'b'], 1, 'a')", "Map [1 -> 'a', 2 -> 'b']"),
        ("map_assign (Map [2 -> 'b'], 2, 'c')", "Map [2 -> 'c']"),
        ("map_unassign (Map [1 -> 'a', 2 -> 'b'], 1)", "Map [2 -> 'b']"),
        ("map_is_assigned (Map [1 -> 'a'], 1)", "true"),
        ("map_get_assignment (Map [1 -> 'a'], 1)", "'a'"),
        ("map_size (Map [1 -> 'a'])", "1UL"),
        ("map_empty (Map [])", "true"),
        # Bitsets
        ("bitset_insert ({}, 64L)", "{0 1}"),
        ("bitset_delete ({4096}, 12L)", "{}"),
        ("bitset_is_element ({4096}, 12L)", "true"),
        ("bitset_or ({1}, {2})", "{3}"),
        ("bitset_and ({3}, {2})", "{2}"),
        ("bitset_xor ({3}, {2})", "{1}"),
        ("bitset_count ({7 1})", "4UL"),
        ("bitset_tohex ({255})", '"ff"'),
        ('bitset_fromhex ("1000")', "{4096}"),
        # Bindings, fields and others
        ("${a} := 2; ${b} := ${a} * 3; ${a} + ${b}", "8"),
        ("${a} := ${b} := 2; ${a} + ${b}", "4"),
        ("${s.a.b} := 1; ${s.c} := 2L; ${s}", "Struct [a := Struct [b := 1], c := 2L]"),
        ("${s} := Struct [x := 1, y := 2]; ${s.x} := ${s.y} + 1; ${s.x}", "3"),
        ("${t} := stack_top (List (Struct [x := 1])); ${t.x} + 1", "2"),
        ("shared_done (3L)", "shared_done(3L)"),
        ("y(0 255)", "y(0 255)"),
    ],
)
def test_what_an_expression_is_worth(text: str, value: str) -> None:
    assert evaluated(text) == value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "${n} + 2147483647",
            "10:5: ${n} + 2147483647: the result is beyond int, which goes from -2147483648 to ",
        ),
        (
            "0U - uint(${n})",
            "0U - uint(${n}): the result is below zero, which no unsigned int is (${n} = 1)",
        ),
        ("-uint(${n})", "below zero"),
        ("1 div (${n} - 1)", "10:5: 1 div (${n} - 1): division by zero (${n} = 1)"),
        ("1 mod (${n} - 1)", "division by zero"),
        ("1.0 / double(${n} - 1)", "division by zero"),
        ("1.0 % 0.0", "division by zero"),
        ("2 ^ -${n}", "10:5: 2 ^ -${n}: the exponent is negative (${n} = 1)"),
        ("2 ^ 31", "beyond int"),
        ("2 ^ (1000000000 * ${n})", "too large"),
        ("2A ^ 1000000000A", "too large"),
        ("2A ^ 1000000A * 2A ^ 1000000A", "more than the 1048576 bits"),
        ("1.0 == 2.0", "== and != are not for fractions"),
        ("1f != 2f", "== and != are not for fractions"),
        ("1e300 * 1e300", "no finite double"),
        ("1e30f * 1e30f", "too large"),
        ("10.0 ** 400.0", "too large"),
        ("-1.0 ** 0.5", "fraction as the exponent"),
        ("sqrt(-1.0)", "sqrt of -1.0 is not defined"),
        ("int(3e9)", "beyond int"),
        ("-2147483648 div -1", "beyond int"),
        ("abs -2147483648", "beyond int"),
        ("stack_pop (List ())", "the list is empty"),
        ("set_top (Set {})", "the set is empty"),
        ("map_get_assignment (Map [1 -> 2], 1L)", "no such key"),
        ("bitset_insert ({}, 1000000000000L)", "a bit has a number from 0 to"),
        ("bitset_insert ({}, -1L)", "a bit has a number from 0 to"),
        ('bitset_fromhex ("0x1")', "no hexadecimal digits"),
        ("stack_top (List (1)) + 1L", "the value is of type int, and long is needed"),
        ("stack_top (List (1)) + stack_top (List (1L))", "+ takes two values of one type, not int and long"),
        (
            "1 + 2;\n ${n} := stack_top (List (1)); ${n.x}",
            "11:32: ${n.x}: a value of type int has no field x",
        ),
    ],
)
def test_an_operation_without_a_result_says_why_and_for_which_values(text: str, reason: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        evaluated(text, n=(INT, 1))
    assert reason in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert pickle.loads(pickle.dumps(caught.value)).values == caught.value.values


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("1 + 2L", "10:5: + takes two values of one type, not int and long"),
        ("1;\n  ${a} + 1", "11:3: ${a} has no value here; bindings with a value are: max, n, p"),
        ("${mx}", "10:5: ${mx} has no value here (did you mean 'max'?)"),
        ("${p.z}", "10:5: ${p.z}: struct point has no field z; its fields are: x, y"),
        ("${n.z}", "10:5: ${n.z}: long has no field z; it is no struct"),
        ("${n.z} := 1", "10:5: ${n.z}: a value of type long has no fields"),
        ("!1", "10:5: ! does not take int; it takes bool"),
        ("-true", "10:5: - does not take bool"),
        ("1 / 2", "10:5: / does not take int and int; it takes float and float, or double and double"),
        ("1.0 div 2.0", "div does not take double and double"),
        ("min(1)", "10:5: min takes 2 values, not 1"),
        ("flor(1.0)", "10:5: there is no function flor (did you mean 'floor'?)"),
        ("4294967296U", "10:5: 4294967296U is beyond unsigned int, which goes from 0 to 4294967295"),
        ("2147483648", "2147483648 is beyond int, which goes from -2147483648 to 2147483647"),
        ("true || (${q} := true); ${q}", "10:29: ${q} is given a value not in every case that comes here"),
        ("stack_push (1, 2)", "stack_push does not take int and int; it takes list and any"),
    ],
)
def test_types_are_checked_before_anything_runs(text: str, problem: str) -> None:
    with pytest.raises(FormatError) as caught:
        compile_value(parsed(text), {"n": LONG, "max": LONG, "p": POINT})
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("1 +", "10:8: the expression ends where there may be a value"),
        ("(1", "10:5: ( is open to the end: ) is missing"),
        ("1)", "10:6: ) closes nothing: nothing is open"),
        ("(1]", "10:7: ] closes nothing: ) is missing before"),
        ("1 2", "10:7: '2' is not expected here; there may be an operator or the end"),
        ("\n 1 @ 2", "11:4: '@' is not expected here; there may be an operator or the end"),
        ("(" * 10_000 + "1" + ")" * 10_000, "10:105: more than 100 parentheses are open here"),
        ("-" * 10_000 + "true", "this is nested deeper than 100 levels: use several steps"),
        ("1" + " + 1" * 10_000, "this is nested deeper than 100 levels: use several steps"),
        ("1q", "10:5: '1q' is no number: what may follow the digits is L, U, UL, A, f"),
        ("1e400", "10:5: 1e400 is too large for a double"),
        ("1e40f", "10:5: 1e40f is too large for a float"),
        ("'ab'", "10:5: ' begins a char, which does not end"),
        ('1 + "abc', '10:9: " begins a string, which does not end'),
        (r'"a\q"', r"10:7: '\\q' means nothing"),
        ("1 /* /* */", "10:7: this comment does not end: */ is missing"),
        ("1 */", "10:7: */ ends a comment, and none has begun"),
        ("1 + ${a", "10:10: { is open to the end: } is missing"),
        ("1 + ${a b}", "10:9: ${ begins the name of a binding, as in ${a} or ${a.b}"),
        ("foo", "10:8: the expression ends where there may be a value"),
        ("Struct [1]", "10:13: '1' is not expected here; there may be ] or the name of a field"),
        ("Struct [a := 1, a := 2]", "10:21: the field a is there twice"),
        ("{1L 2.5}", "10:9: 2.5 is no whole number from 0 to 18446744073709551615"),
        ("y(256)", "10:7: 256 is no whole number from 0 to 255"),
        ("a" * 2_000_000, "10:5: an expression of 2000000 characters: at most 262144 are read"),
    ],
)
def test_what_is_no_expression_is_told_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(FormatError) as caught:
        parsed(text)
    assert problem in str(caught.value)


def test_results_are_those_of_the_wanted_types() -> None:
    text = "${n} := ${n} + 1L; ${done} := ${n} == ${max}; ${p.y} := ${p.y} + 1"
    kinds = {"n": LONG, "max": LONG, "p": POINT}
    function = compile_results(parsed(text), kinds, {"n": LONG, "done": BOOL, "p": POINT})
    before = {"x": 1.5, "y": 3}
    assert function(1, 2, before) == (2, True, {"x": 1.5, "y": 4})
    assert before == {"x": 1.5, "y": 3}


@pytest.mark.parametrize(
    ("text", "kind", "problem"),
    [
        ("${a} := 1", LONG, "10:5: ${a} of type long is given another type: int instead of long"),
        ("${b} := 1L", LONG, "10:5: ${a} of type long is given a value nowhere"),
        ("true && (${a} := 1L) == 1L", LONG, "10:5: ${a} of type long is given a value not in every case"),
        ("${a.x} := 1f", POINT, "${a} of type struct point is given another type: the field y is missing"),
        ("${a} := Struct [x := 1f, y := 2L]", POINT, "the field y: long instead of int"),
        ("${a} := Struct [x := 1f, y := 2, z := 3]", POINT, "there is no field z"),
    ],
)
def test_a_result_of_another_type_is_told(text: str, kind: object, problem: str) -> None:
    with pytest.raises(FormatError) as caught:
        compile_results(parsed(text), {}, {"a": kind})
    assert problem in str(caught.value)


def test_what_is_known_only_when_it_runs_is_checked_then() -> None:
    function = compile_results(parsed("${a} := stack_top (${l})"), {"l": LIST}, {"a": POINT})
    point = {"x": Float(1.5), "y": Int(2)}
    assert function((point,)) == (point,)
    with pytest.raises(ExpressionError, match="the value is of type string, and struct point is needed"):
        function(("text",))


def test_a_condition_is_a_bool() -> None:
    assert compile_condition(parsed("${n} > 1U"), {"n": UINT})(2) is True
    with pytest.raises(FormatError, match="10:5: a condition is true or false: this is of type unsigned int"):
        compile_condition(parsed("${n}"), {"n": UINT})


def test_an_operator_that_groups_from_the_right_evaluates_its_right_side_first() -> None:
    assert evaluated("(${a} := 2) ^ (${a} + 1); ${a}", a=(INT, 1)) == "2"
    assert evaluated("(${a} + 1) ^ (${a} := 3)", a=(INT, 1)) == "64"
    assert evaluated("(${a} + 1) * (${a} := 3)", a=(INT, 1)) == "6"
    assert evaluated("stack_top (List (${a} + 1)) ^ (${a} := 3)", a=(INT, 1)) == "64"


def test_the_right_side_is_left_out_when_the_left_one_decides() -> None:
    assert evaluated("false && 1 div ${z} == 1", z=(INT, 0)) == "false"
    assert evaluated("true || 1 div ${z} == 1", z=(INT, 0)) == "true"


def test_a_function_reaches_nothing_else() -> None:
    function = compile_value(parsed('${s} + "__import__"'), {"s": STRING})
    assert function("open") == "open__import__"
    assert function.__globals__["__builtins__"] == {}


def test_values_of_a_known_type_are_plain() -> None:
    assert type(compile_value(parsed("1 + 1"), {}, INT)()) is int
    assert type(compile_value(parsed("1f + ${d}"), {"d": FLOAT}, FLOAT)(1.0)) is float
    assert type(compile_value(parsed("${d}"), {"d": DOUBLE}, ANY)(1.0)) is float


def grown(function: Callable[[object], object], value: object) -> Iterator[object]:
    """Yield what a function makes of a value, of that, and so on."""
    for _ in range(1000):
        value = function(value)
        yield value


@pytest.mark.parametrize(
    "text",
    [
        "${v} := stack_push (List (), ${v})",
        "${v} := Struct [a := ${v}]",
        "${s.a} := ${v}; ${v} := ${s}",
        "${v} := map_assign (Map [], 1, ${v})",
        "${v} := Set {${v}}",
    ],
)
def test_a_value_that_grows_inside_of_itself_is_stopped(text: str) -> None:
    function = compile_results(parsed(text), {"v": ANY}, {"v": ANY})
    values: list[object] = [0]
    with pytest.raises(ExpressionError, match="nested deeper than 100 levels"):
        values.extend(grown(lambda value: function(value)[0], 0))
    assert pickle.loads(pickle.dumps(values[-1])) == values[-1]


def test_what_doubles_each_time_is_stopped() -> None:
    for text, begin in (("${v} + ${v}", "a"), ("stack_join (${v}, ${v})", (1,)), ("${v} * ${v}", 2)):
        kind = {str: STRING, tuple: LIST, int: BIGINT}[type(begin)]
        function = compile_value(parsed(text), {"v": kind}, kind)
        with pytest.raises(ExpressionError, match=r"longer than|more than"):
            deque(grown(function, begin), maxlen=1)
