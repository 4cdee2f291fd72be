"""Encoded code: how each kind is recognised, and what is refused."""

from __future__ import annotations

import functools
import json
import pickle
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from gspc_trio.compute.code import (
    BadCode,
    ImportedFunction,
    PickledFunction,
    ProgramCall,
    SourceFunction,
    decode_code,
    encode_entry,
    function_code,
    program_code,
    source_code,
)
from gspc_trio.core.code import CodeEntry, Program, SourceFile

WHOLE = ((None, False),)


def double(number: int) -> int:
    return 2 * number


class Holder:
    @staticmethod
    def inner() -> int:
        return 5

    def method(self) -> int:
        return 6


def opened(data: bytes) -> Any:
    code = decode_code(data)
    assert isinstance(code, PickledFunction)
    return pickle.loads(code.data)


def test_a_function_found_under_its_name_travels_by_import_path() -> None:
    assert decode_code(function_code(double)) == ImportedFunction((), WHOLE, __name__, "double")
    assert decode_code(function_code(json.dumps)) == ImportedFunction((), WHOLE, "json", "dumps")
    assert decode_code(function_code(Holder.inner)) == ImportedFunction((), WHOLE, __name__, "Holder.inner")
    assert decode_code(function_code(len)) == ImportedFunction((), WHOLE, "builtins", "len")


def test_parameters_and_outputs_travel_along() -> None:
    outputs = (("counts", False), ("words", True))
    code = decode_code(function_code(double, ["number"], outputs))
    assert code == ImportedFunction(("number",), outputs, __name__, "double")


def local() -> Callable[[], int]:
    return lambda: 41


def test_anything_else_callable_travels_by_value() -> None:
    assert opened(function_code(lambda x: x + 1))(1) == 2
    assert opened(function_code(local()))() == 41
    assert opened(function_code(functools.partial(double, 4)))() == 8
    assert opened(function_code(Holder().method))() == 6


def test_a_function_of_main_travels_by_value() -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec("def seven():\n    return 7", namespace)
    assert opened(function_code(namespace["seven"]))() == 7


def test_a_function_hidden_by_a_decorated_one_travels_by_value() -> None:
    @functools.wraps(double)
    def wrapper(number: int) -> int:
        return number + 100

    assert opened(function_code(wrapper))(1) == 101


def test_what_cannot_be_called_or_pickled_is_refused() -> None:
    with pytest.raises(BadCode, match="3 is not callable"):
        function_code(3)  # type: ignore[arg-type]
    generator = (number for number in ())
    with pytest.raises(BadCode, match="cannot be sent to another process"):
        function_code(lambda: generator)


def test_an_async_function_is_refused_with_advice() -> None:
    async def listen() -> None:
        pass

    async def count() -> AsyncIterator[int]:
        yield 1

    for function in (listen, count):
        with pytest.raises(BadCode, match=f"{function.__name__} is async, and a task calls plain functions"):
            function_code(function)


def test_a_source_file_is_checked_where_the_job_is_described() -> None:
    text = "def main(x):\n    return x\n"
    assert decode_code(source_code("a.py", text)) == SourceFunction((), WHOLE, "a.py", text, "main")
    with pytest.raises(BadCode, match=r"a.py has no function other"):
        source_code("a.py", text, "other")
    with pytest.raises(BadCode, match=r"a.py is not valid Python: .*line 1"):
        source_code("a.py", "def main(:")
    assert decode_code(source_code("a.py", "from os import *", "getpid")).function == "getpid"  # type: ignore[union-attr]


def test_a_program_keeps_its_texts_as_they_are() -> None:
    program = Program(["sed", "s/{old}/x/", "a\udcff"], {"LANG": "{lang}"}, "/{dir}", check=False)
    code = decode_code(program_code(program, program.names))
    arguments = ("sed", "s/{old}/x/", "a\udcff")
    names = ("old", "lang", "dir")
    assert code == ProgramCall(names, WHOLE, arguments, {"LANG": "{lang}"}, "/{dir}", False)


def test_every_kind_of_entry_is_encoded() -> None:
    texts = {"job.py": "def main():\n    return 1\n"}
    assert encode_entry(CodeEntry(double), texts.__getitem__) == function_code(double)
    program = Program(["true"])
    assert encode_entry(CodeEntry(program), texts.__getitem__) == program_code(program)
    source = encode_entry(CodeEntry(SourceFile("job.py"), ("a",)), texts.__getitem__)
    assert source == source_code("job.py", texts["job.py"], parameters=("a",))


def test_a_source_file_is_read_in_its_own_encoding(tmp_path: Path) -> None:
    path = tmp_path / "tool.py"
    text = "# coding: latin-1\nmain = '\xe9'.upper\n"
    path.write_bytes(text.encode("latin-1"))
    assert encode_entry(CodeEntry(SourceFile(str(path)))) == source_code(str(path), text)
    with pytest.raises(BadCode, match=r"^cannot read the source file .*/gone.py: .*No such file"):
        encode_entry(CodeEntry(SourceFile(str(tmp_path / "gone.py"))))


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x91\x63", b"\x91\x00", b"\xa1x", b"\x05"])
def test_bytes_that_are_no_code_are_refused(data: bytes) -> None:
    with pytest.raises(BadCode):
        decode_code(data)
