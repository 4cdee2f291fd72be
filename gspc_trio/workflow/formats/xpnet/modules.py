"""Modules of xpnet in Python: functions of a file beside the net, or their bodies in the net itself."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
from collections.abc import Callable, Mapping
from types import CodeType, FunctionType
from typing import TypeAlias

from msgspec import Struct

from gspc_trio.workflow.formats.xpnet.conversion import from_python, to_python
from gspc_trio.workflow.formats.xpnet.types import ValueType
from gspc_trio.workflow.formats.xpnet.values import BadXpnetValue, XpnetValue

ModuleFunction: TypeAlias = Callable[..., object]

_SIGNATURE = re.compile(r"\s*(?:([A-Za-z_]\w*)\s+)?([A-Za-z_]\w*)\s*\(([^()]*)\)\s*")


class ModuleError(Exception):
    """A module has returned what its ports do not take; the message says which."""


class BadSignature(ValueError):
    """The signature or the body of a module cannot be used; the message says why.

    Attributes:
        line: of the body, from 0 on.
    """

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


class Signature(Struct, frozen=True):
    """How the function of a module is called.

    Attributes:
        name: of the function.
        parameters: ports that it is called with, in their order; output ports among them are written to.
        returned: the port that its result comes to, "" if there is none.
    """

    name: str
    parameters: tuple[str, ...]
    returned: str = ""

    def __str__(self) -> str:
        result = f"{self.returned} " if self.returned else ""
        return f"{result}{self.name} ({', '.join(self.parameters)})"


def parse_signature(text: str) -> Signature:
    """Return the signature that a text such as ``sum add (a, b)`` says.

    Raises:
        BadSignature: it says none.
    """
    match = _SIGNATURE.fullmatch(text)
    names = [name.strip() for name in match[3].split(",")] if match else []
    if names == [""]:
        names = []
    if match is None or not all(name.isidentifier() for name in names):
        raise BadSignature(
            f"{text!r} is no signature: it is written 'result function (port, port)', 'f (port)'"
        )
    for name in names:
        if names.count(name) > 1:
            raise BadSignature(f"{text!r}: the port {name!r} is there twice")
    return Signature(match[2], tuple(names), match[1] or "")


class PythonBody(Struct, eq=False):
    """The body of a function in Python, as it stands in a net; callable wherever it is sent.

    It returns what the module's signature says, or it gives values to the names of the output ports.

    Attributes:
        name: of the function.
        passed: ports that the function gets.
        written: ports that it gives values, in the order in which it returns them.
        code: the body.
        path, line: where the code begins.
    """

    name: str
    passed: tuple[str, ...]
    written: tuple[str, ...]
    code: str
    path: str
    line: int
    _function: ModuleFunction | None = None

    def __call__(self, **values: object) -> object:
        if self._function is None:
            self._function = self.compiled()
        function = self._function
        return function(**values)

    def __reduce__(self) -> tuple[type[PythonBody], tuple[object, ...]]:
        told = (self.name, self.passed, self.written, self.code, self.path, self.line)
        return PythonBody, told

    def compiled(self) -> FunctionType:
        """Return the function.

        Raises:
            BadSignature: this is no body in Python; says at which line.
        """
        code = self.code.rstrip().lstrip("\n")
        skipped = len(self.code) - len(self.code.lstrip("\n"))
        is_indented = code[:1].isspace()
        if is_indented:  # no line is moved to the left: some are inside of strings
            code, skipped = f"if True:\n{code}", skipped - 1
        try:
            statements = ast.parse(code, self.path).body
            if is_indented and isinstance(statements[0], ast.If) and len(statements) == 1:
                statements = statements[0].body
            statements = statements or [ast.Pass()]
            if self.written and not _returns(statements):
                given: list[ast.expr] = [ast.Name(name, ast.Load()) for name in self.written]
                statements.append(ast.Return(ast.Tuple(given, ast.Load()) if len(given) > 1 else given[0]))
            arguments = ast.arguments(
                posonlyargs=[],
                args=[ast.arg(name) for name in self.passed],
                kwonlyargs=[],
                kw_defaults=[],
                defaults=[],
            )
            definition = ast.FunctionDef(self.name, arguments, statements, [])
            module = ast.fix_missing_locations(ast.Module([definition], []))
            ast.increment_lineno(module, self.line - 1 + skipped)
            compiled = compile(module, self.path, "exec")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = max(0, (getattr(error, "lineno", None) or 1) - 1 + skipped)
            raise BadSignature(f"this is no Python: {getattr(error, 'msg', error)}", line) from None
        (inner,) = (each for each in compiled.co_consts if isinstance(each, CodeType))
        return FunctionType(inner, {"__builtins__": builtins, "__name__": self.name})


def _returns(statements: list[ast.stmt]) -> bool:
    """Return whether a body has a ``return`` of its own that says what."""
    waiting: list[ast.AST] = list(statements)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Return) and node.value is not None:
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)
    return False


class ModuleTask(Struct, eq=False):
    """What a task of a module runs: gives the values of ports to a function by their names.

    Attributes:
        name: of the module, for messages.
        function: in Python.
        inputs: name of each input port, in the order in which the task gets their values.
        passed: those of them that the function gets.
        written: output ports that it gives values, in the order in which it returns them.
        outputs: name and type of each output port.
        elements: output port whose list falls apart -> the type of its elements.
    """

    name: str
    function: ModuleFunction
    inputs: tuple[str, ...]
    passed: tuple[str, ...]
    written: tuple[str, ...]
    outputs: tuple[tuple[str, ValueType], ...]
    elements: Mapping[str, ValueType] = {}

    def __call__(self, *values: XpnetValue) -> dict[str, XpnetValue]:
        """Return output port -> value.

        Raises:
            ModuleError: the function has returned something else.
        """
        given = dict(zip(self.inputs, values, strict=True))
        arguments = {name: to_python(given[name]) for name in self.passed}
        returned = self._by_port(self.function(**arguments), arguments)
        results = {}
        for name, kind in self.outputs:
            try:
                results[name] = from_python(returned[name], kind) if name in returned else given[name]
                if name in self.elements:
                    inner = self.elements[name]
                    results[name] = tuple(from_python(one, inner) for one in results[name])
            except BadXpnetValue as error:
                raise ModuleError(f"module {self.name}, port {name}: {error}") from None
        return results

    def _by_port(self, returned: XpnetValue, arguments: Mapping[str, object]) -> Mapping[str, object]:
        """Return port -> what the function has returned for it, or changed in place."""
        if returned is None and all(
            isinstance(arguments.get(name), list | set | dict) for name in self.written
        ):
            return {name: arguments[name] for name in self.written}
        if len(self.written) == 1:
            return {self.written[0]: returned}
        if isinstance(returned, tuple) and len(returned) == len(self.written) > 0:
            return dict(zip(self.written, returned, strict=True))
        if isinstance(returned, Mapping) and returned.keys() == set(self.written) != set():
            return returned
        ports = ", ".join(self.written)
        wanted = f"a tuple ({ports}), or a dict with these" if self.written else "None"
        raise ModuleError(f"module {self.name} returned {_said(returned)}, and {wanted} is wanted")


def _said(value: object) -> str:
    """Return what a message calls a value that was returned."""
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    if isinstance(value, Mapping):
        return f"a dict with {', '.join(map(str, value)) or 'nothing'}"
    return f"a value of type {type(value).__name__}"


def check_arguments(function: ModuleFunction, passed: tuple[str, ...]) -> str:
    """Return why a function cannot be called with these arguments by name, "" if it can."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return ""
    try:
        signature.bind(**dict.fromkeys(passed))
    except TypeError as error:
        return f"it takes {signature}: {error}"
    return ""
