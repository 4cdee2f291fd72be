"""Modules of xpnet in C++: what is refused, what is compiled, and how values come there and back."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from gspc_trio.workflow.formats.in_tasks import native
from gspc_trio.workflow.formats.in_tasks.native import (
    CompileError,
    CppSource,
    NativeError,
    NativeFunction,
    compiled,
)
from gspc_trio.workflow.formats.xpnet.cpp import CppBody, CppTask
from gspc_trio.workflow.formats.xpnet.modules import ModuleError, parse_signature
from gspc_trio.workflow.formats.xpnet.types import (
    BOOL,
    CHAR,
    CONTROL,
    DOUBLE,
    FLOAT,
    INT,
    LIST,
    LONG,
    STRING,
    UINT,
    ULONG,
    ValueType,
    struct_type,
)
from gspc_trio.workflow.formats.xpnet.values import Float, Int

POINT = struct_type("point", [("x", FLOAT), ("y", INT)])
INPUTS = {
    "a": LONG,
    "b": BOOL,
    "c": INT,
    "d": UINT,
    "e": ULONG,
    "f": FLOAT,
    "g": DOUBLE,
    "h": CHAR,
    "s": STRING,
    "n": CONTROL,
    "p": POINT,
}
VALUES = (
    -(2**63),
    True,
    -(2**31),
    2**32 - 1,
    2**64 - 1,
    0.5,
    0.1,
    "z",
    "päth\0",
    None,
    {"x": Float(1.5), "y": Int(2)},
)
"""For the inputs, in their order."""

needs_compiler = pytest.mark.skipif(shutil.which("c++") is None, reason="no compiler for C++ here")


def body(code: str, signature: str, inputs: dict[str, ValueType], outputs: dict[str, ValueType]) -> CppBody:
    return CppBody("m", parse_signature(signature), inputs, outputs, code, "net.xpnet", 20)


def task_of(made: CppBody) -> CppTask:
    function = compiled(made.source(), "/")
    again = pickle.loads(pickle.dumps(function))
    inputs, outputs = tuple(made.inputs.items()), tuple(made.outputs.items())
    return CppTask("m", again, tuple(made.inputs), inputs, outputs, tuple(made.outputs))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "gspc-trio" / "modules"


@needs_compiler
def test_values_of_all_types_come_there_and_back(cache: Path) -> None:
    outputs = {f"{name}2": kind for name, kind in INPUTS.items() if name != "p"}
    copies = "".join(f"  {name}2 = {name};\n" for name in INPUTS if name != "p")
    code = f"""
{copies}
  p.x *= 2;
  p.y += 1;
  if (c == 0) throw std::runtime_error ("c is zero");
  return s + "!";"""
    names = (*INPUTS, *outputs)
    task = task_of(body(code, f"r copy ({', '.join(names)})", INPUTS, {"r": STRING, **outputs, "p": POINT}))
    found = task(*VALUES)
    expected = {f"{name}2": value for name, value in zip(INPUTS, VALUES, strict=True) if name != "p"}
    assert found == {"r": "päth\0!", **expected, "p": {"x": 3.0, "y": 3}}
    assert [type(value) for value in found["p"].values()] == [Float, Int]
    zero = dict(zip(INPUTS, VALUES, strict=True)) | {"c": 0}
    with pytest.raises(NativeError, match="module m: c is zero"):
        task(*zero.values())
    with pytest.raises(ModuleError, match="'é' is no char of C"):
        task(*(zero | {"h": "é"}).values())
    assert len(list(cache.glob("*.o.so"))) == 1
    elsewhere = NativeFunction(task.function.source, "/", "another kind of host", b"no library of this one")
    assert replace(task, function=elsewhere)(*VALUES) == found


@needs_compiler
@pytest.mark.usefixtures("cache")
def test_names_of_modules_may_have_any_character() -> None:
    made = CppBody(
        'a "b"\\\n', parse_signature("c f (a)"), {"a": LONG}, {"c": LONG}, "return a;", "n.xpnet", 2
    )
    text = made.source().text
    assert r'watched_ ("module a \"b\"\\\n (n.xpnet:2)");' in text
    assert r'#line 1 "n.xpnet (around the module a \"b\"\\\n)"' in text


def test_buffers_come_as_pointers_with_sizes() -> None:
    code = """
  std::memcpy (to, from, from_size);
  static_cast<char*> (to)[to_size - 1] = '!';
  return none == nullptr && none_size == 0;"""
    buffers = {"from": True, "to": False, "none": False}
    made = replace(body(code, "r copy (from, a, to, none)", {"a": LONG}, {"r": BOOL}), buffers=buffers)
    function = compiled(made.source(), "/")
    passed = (("a", LONG), *((name, None) for name in buffers))
    task = CppTask("m", function, ("a", *buffers), passed, (("r", BOOL),), ("r",))
    to = bytearray(4)
    assert task(1, memoryview(bytearray(b"abc")), memoryview(to), memoryview(bytearray())) == {"r": True}
    assert to == b"abc!"
    assert "void const* from, std::size_t from_size, long const& a, void * to" in made.source().text


@needs_compiler
def test_an_error_of_the_compiler_has_the_line_of_the_net(cache: Path) -> None:
    with pytest.raises(CompileError, match=r"net.xpnet:22:10: error: .x. was not declared"):
        compiled(body("\n\n  return x;", "c f (a)", {"a": LONG}, {"c": LONG}).source(), "/")
    assert list(cache.iterdir()) == []


def test_without_a_compiler_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler -x")
    source = CppSource("m", "int main() {}")
    with pytest.raises(CompileError, match=r"no compiler for C\+\+ here \(\$CXX is no-such-compiler\)"):
        compiled(source, "/")
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(CompileError, match=r"no compiler for C\+\+ here \(neither \$CXX nor c\+\+\)"):
        compiled(source, "/")


def test_a_folder_where_others_write_keeps_no_libraries(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    other = cache.parent.parent / "tmp"
    other.mkdir()
    monkeypatch.setattr(native.tempfile, "tempdir", str(other))
    assert native.cache_folder().is_relative_to(other)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"inputs": {"a": LIST}}, "port 'a' is list, which modules in C++ have not"),
        ({"inputs": {"a": struct_type("q", [("p", POINT)])}}, "port 'a' is struct q, which modules"),
        ({"includes": ("gspc/we/x.hpp",)}, "it needs GPI-Space's own header gspc/we/x.hpp"),
        ({"code": "  #include <drts/worker.hpp>"}, "it needs GPI-Space's own header drts/worker.hpp"),
        ({"compiler_flags": ("-fplugin=evil.so",)}, "the flag '-fplugin=evil.so' is not taken"),
        ({"compiler_flags": ("-wrapper",)}, "the flag '-wrapper' is not taken"),
        ({"compiler_flags": ("@file",)}, "the flag '@file' is not taken"),
        ({"compiler_flags": ("-o", "x")}, "the flag '-o' is not taken"),
        ({"linker_flags": ("-Wa,-x",)}, "the flag '-Wa,-x' is not taken"),
    ],
)
def test_what_cannot_be_compiled_here_is_refused(given: dict[str, object], why: str) -> None:
    fields = {"inputs": {"a": LONG}, "outputs": {"c": LONG}, "code": "return a;", **given}
    made = CppBody(module="m", signature=parse_signature("c f (a)"), path="f", line=1, **fields)
    (found, *_) = made.refusals()
    assert found.startswith(why)


def test_usual_flags_are_taken() -> None:
    flags = (
        "-Iinclude",
        "-DN=1",
        "-O3",
        "-Wall",
        "-std=c++20",
        "-march=native",
        "-fopenmp",
        "-ffast-math",
        "-g",
    )
    made = CppBody(
        "m",
        parse_signature("c f (a)"),
        {"a": LONG},
        {"c": LONG},
        "return a;",
        "f",
        1,
        ("vector",),
        flags,
        ("-lm",),
    )
    assert made.refusals() == []
    source = made.source()
    assert source.has_headers
    assert source.text.startswith("#include <vector>\n")
