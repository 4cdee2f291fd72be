"""Functions in Python as modules of xpnet: what they get, what they may return."""

from __future__ import annotations

import pickle
import traceback

import pytest

from gspc_trio.workflow.formats.xpnet.conversion import from_python, to_python
from gspc_trio.workflow.formats.xpnet.modules import (
    BadSignature,
    ModuleError,
    ModuleFunction,
    ModuleTask,
    PythonBody,
    Signature,
    check_arguments,
    parse_signature,
)
from gspc_trio.workflow.formats.xpnet.notation import show_value
from gspc_trio.workflow.formats.xpnet.types import (
    ANY,
    BIGINT,
    BITSET,
    BOOL,
    BYTEARRAY,
    CHAR,
    CONTROL,
    DOUBLE,
    FLOAT,
    INT,
    LIST,
    LONG,
    MAP,
    SET,
    STRING,
    UINT,
    ValueType,
    struct_type,
)
from gspc_trio.workflow.formats.xpnet.values import BadXpnetValue, Int, make_map, make_set

POINT = struct_type("point", [("x", FLOAT), ("y", INT)])


@pytest.mark.parametrize(
    ("text", "signature"),
    [
        ("c add (a, b)", Signature("add", ("a", "b"), "c")),
        ("work(state)", Signature("work", ("state",))),
        ("  r  now () ", Signature("now", (), "r")),
    ],
)
def test_a_signature_says_what_is_called(text: str, signature: Signature) -> None:
    assert parse_signature(text) == signature


@pytest.mark.parametrize("text", ["", "add", "add (a", "a b c ()", "f (a b)", "f (a, a)", "f (a,)"])
def test_what_is_no_signature_is_told(text: str) -> None:
    with pytest.raises(BadSignature, match=r"is no signature|twice"):
        parse_signature(text)


@pytest.mark.parametrize(
    ("value", "kind", "written"),
    [
        (None, CONTROL, "[]"),
        (True, BOOL, "true"),
        (5, INT, "5"),
        (5, LONG, "5L"),
        (2**80, BIGINT, f"{2**80}A"),
        (0.1, FLOAT, "0.1f"),
        ("c", CHAR, "'c'"),
        (4096, BITSET, "{4096}"),
        (bytearray(b"\x01"), BYTEARRAY, "y(1)"),
        ([1, Int(2), [2.5, "s"]], LIST, 'List (1L, 2, List (2.5, "s"))'),
        ({2, 1}, SET, "Set {1L, 2L}"),
        ({2: "b", 1: "a"}, MAP, 'Map [1L -> "a", 2L -> "b"]'),
        ({"y": 1, "x": 0.5}, POINT, "Struct [x := 0.5f, y := 1]"),
        ({"a": {1: None}}, ANY, "Struct [a := Map [1L -> []]]"),
        (2**64, ANY, f"{2**64}A"),
    ],
)
def test_what_python_returns_becomes_a_value_of_its_type(
    value: object, kind: ValueType, written: str
) -> None:
    assert show_value(from_python(value, kind), kind) == written


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        (1.0, INT, r"int is an int in Python, and this is 1.0 \(float\)"),
        (True, LONG, r"long is an int in Python, and this is True \(bool\)"),
        (-1, UINT, "unsigned int is an int from 0 to 4294967295 in Python, and this is -1"),
        (1, DOUBLE, r"double is a float in Python, and this is 1 \(int\)"),
        (1e39, FLOAT, "float is a float of 32 bits"),
        ("ab", CHAR, "char is a str of one character"),
        (b"ab", STRING, "string is a str"),
        ([], CONTROL, "control is None"),
        ({"x": 1.0}, POINT, "struct point: the field y is missing"),
        ({"x": 1.0, "y": 1, "z": 1}, POINT, r"struct point has no field 'z' \(str\); its fields are: x, y"),
        ({"x": 1.0, "y": "1"}, POINT, r"the field y: int is an int in Python, and this is '1' \(str\)"),
        ([2j], LIST, "complex is no type of xpnet"),
    ],
)
def test_what_is_of_another_type_is_told(value: object, kind: ValueType, message: str) -> None:
    with pytest.raises(BadXpnetValue, match=message):
        from_python(value, kind)


def test_a_value_that_contains_itself_is_told() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(BadXpnetValue, match="nested deeper than 100 levels"):
        from_python(endless, LIST)


def test_functions_get_the_types_of_python() -> None:
    value = {"l": (1, make_set([2]), make_map([((1,), "a")])), "n": None}
    assert to_python(value) == {"l": [1, {2}, {(1,): "a"}], "n": None}


def task(function: ModuleFunction, written: tuple[str, ...], **outputs: ValueType) -> ModuleTask:
    return ModuleTask("m", function, ("a", "b"), ("a", "b"), written, tuple(outputs.items()))


def test_a_result_comes_to_the_port_of_the_signature() -> None:
    assert task(lambda a, b: a + b, ("c",), c=LONG)(1, 2) == {"c": 3}
    assert task(lambda a, b: (b, a), ("c", "d"), c=LONG, d=LONG)(1, 2) == {"c": 2, "d": 1}
    assert task(lambda a, b: {"d": a, "c": b}, ("c", "d"), c=LONG, d=LONG)(1, 2) == {"c": 2, "d": 1}
    assert task(lambda a, b: None, (), a=LONG)(1, 2) == {"a": 1}  # noqa: ARG005
    assert task(lambda a, b: a.append(b), ("a",), a=LIST)((1,), 2) == {"a": (1, 2)}


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ((1,), r"module m returned a tuple of 1, and a tuple \(c, d\), or a dict with these is wanted"),
        ({"c": 1}, "module m returned a dict with c, and a tuple"),
        (7, "module m returned a value of type int, and a tuple"),
        ((1, "2"), r"module m, port d: long is an int in Python, and this is '2' \(str\)"),
    ],
)
def test_a_result_that_the_ports_do_not_take_is_told(result: object, message: str) -> None:
    with pytest.raises(ModuleError, match=message):
        task(lambda a, b: result, ("c", "d"), c=LONG, d=LONG)(1, 2)  # noqa: ARG005


def body(code: str) -> PythonBody:
    return PythonBody("add", ("a", "b"), ("c",), code, "net.xpnet", 20)


@pytest.mark.parametrize(
    "code",
    [
        "return a + b",
        "\n    c = a + b\n  ",
        "\n  import math\n  def both():\n      return a + b\n  c = int(math.floor(both()))\n",
        "\n  text = '''\nnot moved'''\n  c = len(text) - 10 + a + b\n",
    ],
)
def test_a_body_in_the_net_returns_or_assigns(code: str) -> None:
    made = body(code)
    assert made(a=1, b=2) == 3
    assert pickle.loads(pickle.dumps(made))(a=2, b=2) == 4


def test_an_error_in_a_body_names_the_line_of_the_net() -> None:
    with pytest.raises(BadSignature, match="this is no Python: ") as caught:
        body("\n\n  c = a +\n").compiled()
    assert caught.value.line == 2
    with pytest.raises(ZeroDivisionError) as raised:
        body("\n  d = 1\n  c = a / 0\n")(a=1, b=2)
    assert [(frame.filename, frame.lineno) for frame in traceback.extract_tb(raised.value.__traceback__)][
        -1
    ] == (
        "net.xpnet",
        22,
    )


def test_a_function_that_takes_other_arguments_is_told() -> None:
    assert check_arguments(lambda a, b: a + b, ("a", "b")) == ""
    assert (
        check_arguments(lambda a, x: a + x, ("a", "b")) == "it takes (a, x): missing a required argument: 'x'"
    )
