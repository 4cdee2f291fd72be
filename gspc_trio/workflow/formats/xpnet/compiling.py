"""Expressions as Python functions.

A tree becomes an abstract syntax tree of Python, never text; the function reaches nothing but the helpers of
:mod:`.operations`. Each operation has a line number of its own, so that an error tells which one it was.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import CodeType, FunctionType
from typing import TypeAlias

from gspc_trio.workflow.calls import SaysAll
from gspc_trio.workflow.formats.xpnet.grammar import parse_expression
from gspc_trio.workflow.formats.xpnet.inference import Inference, infer, infer_condition, refusal, takes
from gspc_trio.workflow.formats.xpnet.notation import show_short
from gspc_trio.workflow.formats.xpnet.operations import (
    HELPERS,
    OPERATIONS,
    RIGHT_FIRST,
    Overload,
    Undefined,
)
from gspc_trio.workflow.formats.xpnet.tree import (
    Applied,
    Assigned,
    Expression,
    ExpressionNode,
    Literal,
    Made,
    PathReference,
    TextStart,
    levels,
)
from gspc_trio.workflow.formats.xpnet.types import ANY, BOOL, ValueType, fits
from gspc_trio.workflow.formats.xpnet.values import (
    DEPTH_MAX,
    NESTED_CLASSES,
    SAYING,
    Shared,
    XpnetValue,
    inner_values,
    is_of,
    kind_of,
    make_map,
    make_set,
    saying,
    type_of,
)

ValueFunction: TypeAlias = Callable[..., XpnetValue]
ResultsFunction: TypeAlias = Callable[..., tuple[XpnetValue, ...]]
ConditionFunction: TypeAlias = Callable[..., bool]


class ExpressionError(SaysAll):
    """An expression has no value for what it was given; the message says where, why, and for which values.

    Attributes:
        place: ``file:line:column`` of the operation.
        expression: the operation, as it was written.
        reason: why it has no value.
        values: name of a binding -> its value, as xpnet writes it.
    """

    def __init__(self, place: str, expression: str, reason: str, values: Mapping[str, str]) -> None:
        self.place = place
        self.expression = expression
        self.reason = reason
        self.values: dict[str, str] = dict(values)
        given = ", ".join(f"{name} = {value}" for name, value in self.values.items())
        super().__init__(f"{place}: {expression}: {reason}" + (f" ({given})" if given else ""))

    def __reduce__(self) -> tuple[type[ExpressionError], tuple[str, str, str, dict[str, str]]]:
        return type(self), (self.place, self.expression, self.reason, self.values)


def compile_results(
    expression: Expression, inputs: Mapping[str, ValueType], results: Mapping[str, ValueType]
) -> ResultsFunction:
    """Return a function that takes the values of the inputs and returns those of the results, in their order.

    Both are values whose type is known: see :mod:`.values`. The function can be called from any thread.

    Args:
        expression: what is evaluated.
        inputs: name -> type of each binding that has a value before.
        results: name -> type of each binding whose value is returned.

    Raises:
        FormatError: see :func:`.inference.infer`.

    The function raises :exc:`ExpressionError`.
    """
    inference = infer(expression, inputs, results)
    return _Compiling(inference, inputs).function(results)


def compile_condition(expression: Expression, inputs: Mapping[str, ValueType]) -> ConditionFunction:
    """Return a function that takes the values of the inputs and returns whether the condition is true.

    Raises:
        FormatError: see :func:`.inference.infer_condition`.

    The function raises :exc:`ExpressionError`.
    """
    return _Compiling(infer_condition(expression, inputs), inputs).function(None, BOOL)


def compile_value(
    expression: Expression, inputs: Mapping[str, ValueType], wanted: ValueType = ANY
) -> ValueFunction:
    """Return a function that takes the values of the inputs and returns that of the expression.

    Args:
        expression: what is evaluated.
        inputs: name -> type of each binding that has a value before.
        wanted: of which type the value is; ``any``: the value says that by itself.

    Raises:
        FormatError: see :func:`.inference.infer`, or the value is of another type.

    The function raises :exc:`ExpressionError`.
    """
    inference = infer(expression, inputs)
    if not fits(inference.type, wanted):
        at = expression.parts[-1].begin if expression.parts else 0
        raise expression.source.error(at, f"this is of type {inference.type}, and {wanted} is needed")
    return _Compiling(inference, inputs).function(None, wanted)


class _Compiling:
    """Makes one function."""

    def __init__(self, inference: Inference, inputs: Mapping[str, ValueType]) -> None:
        self._inference = inference
        self._inputs = inputs
        self._names: dict[str, str] = {}
        self._nodes: list[ExpressionNode] = []
        self._constants: dict[str, object] = {}
        for name in inputs:
            self._name(name)

    def function(self, results: Mapping[str, ValueType] | None, value: ValueType = ANY) -> FunctionType:
        """Return the function; of a value if no results are wanted."""
        expression = self._inference.expression
        parts = [self._code(part) for part in expression.parts]
        if results is None:
            last = parts.pop() if parts else ast.Constant(None)
            returned = self._fitting(last, self._inference.type, value, len(self._nodes))
        else:
            bindings = self._inference.bindings
            returned = ast.Tuple(
                [
                    self._fitting(self._variable(name), bindings[name], kind, len(self._nodes))
                    for name, kind in results.items()
                ],
                ast.Load(),
            )
        body: list[ast.stmt] = [ast.Expr(part) for part in parts]
        body.append(ast.Return(returned))
        handled = ast.parse("try:\n pass\nexcept CAUGHT as error:\n raise failed(error) from None").body[0]
        assert isinstance(handled, ast.Try)
        handled.body = body
        failed = _Failure(self._inference, self._nodes or [Literal(0, 0, "control", None)], self._names)
        reached = {**_REACHED, **self._constants, "failed": failed, "CAUGHT": _CAUGHT}
        return _function([self._names[name] for name in self._inputs], [handled], reached)

    # Nodes ----

    def _code(self, node: ExpressionNode) -> ast.expr:
        """Return what evaluates a node to a value of its type."""
        self._nodes.append(node)
        line = len(self._nodes)
        match node:
            case Literal():
                return self._literal(node)
            case PathReference():
                return self._reference(node, line)
            case Assigned():
                return self._assigned(node, line)
            case Made():
                return self._made(node, line)
            case Applied():
                return self._applied(node, line)

    def _literal(self, node: Literal) -> ast.expr:
        if type(node.value) in (type(None), bool, int, float, str, bytes):
            return ast.Constant(node.value)
        return self._constant(node.value)

    def _reference(self, node: PathReference, line: int) -> ast.expr:
        name, *fields = node.path
        found = self._variable(name)
        unknown = self._inference.types[node].kind == "any"
        for field in fields:
            if unknown:
                found = _filled("field(a, b)", line, found, ast.Constant(field))
            else:
                found = ast.Subscript(found, ast.Constant(field), ast.Load())
        return found

    def _assigned(self, node: Assigned, line: int) -> ast.expr:
        name, *fields = node.target.path
        kind = self._inference.types[node.value]
        code = self._code(node.value)
        variable = self._name(name)
        if not fields:
            return ast.NamedExpr(ast.Name(variable, ast.Store()), code)
        kept = f"kept{line}"
        value = self._fitting(ast.Name(kept, ast.Load()), kind, ANY, line)
        into = ast.Constant(None) if node in self._inference.fresh else self._variable(name)
        poked = _filled("poked(a, b, c)", line, into, self._constant(tuple(fields)), value)
        steps: list[ast.expr] = [
            ast.NamedExpr(ast.Name(kept, ast.Store()), code),
            ast.NamedExpr(ast.Name(variable, ast.Store()), poked),
        ]
        return ast.Subscript(ast.Tuple(steps, ast.Load()), ast.Constant(0), ast.Load())

    def _made(self, node: Made, line: int) -> ast.expr:
        types = self._inference.types
        items = [self._fitting(self._code(item), types[item], ANY, line) for item in node.items]
        if node.kind == "struct":
            return ast.Dict([ast.Constant(name) for name in node.names], items)
        if node.kind == "shared":
            return _filled("Shared(a, b)", line, ast.Constant(node.names[0]), items[0])
        if node.kind == "map":
            pairs = zip(items[::2], items[1::2], strict=True)
            items = [ast.Tuple([key, value], ast.Load()) for key, value in pairs]
        made = ast.Tuple(items, ast.Load())
        return made if node.kind == "list" else _filled(f"make_{node.kind}(a)", line, made)

    def _applied(self, node: Applied, line: int) -> ast.expr:
        overload = self._inference.chosen[node]
        wanted = ["any"] * len(node.operands) if overload is None else overload.operands
        found = [self._inference.types[operand] for operand in node.operands]
        order = range(len(node.operands))
        codes = {at: self._code(node.operands[at]) for at in order}
        operands = [self._fitting(codes[at], found[at], ValueType(wanted[at]), line) for at in order]
        if overload is not None:
            return _filled(overload.code, line, *operands)
        reverse = node.name in RIGHT_FIRST
        arguments = operands[::-1] if reverse else operands
        return _call(
            "applied_right_first" if reverse else "applied", line, ast.Constant(node.name), *arguments
        )

    # Pieces ----

    def _fitting(self, code: ast.expr, found: ValueType, wanted: ValueType, line: int) -> ast.expr:
        """Return code for the same value so that it is of the wanted type, or that says that it is not."""
        if wanted.kind == "any" and found.kind in _NESTED:
            return _call("shallow", line, code)
        if wanted.kind == "any":
            wrapper = SAYING.get(found.kind)
            return code if wrapper is None else _call(wrapper.__name__, line, code)
        if found.kind == "any":
            return _filled("expected(a, b)", line, code, self._constant(wanted))
        if wanted.kind == "struct" and wanted.fields and _unsure(found):
            return _filled("expected(a, b)", line, code, self._constant(wanted))
        return code

    def _name(self, binding: str) -> str:
        """Return the name that a binding has in the function."""
        return self._names.setdefault(binding, f"v{len(self._names)}")

    def _variable(self, binding: str) -> ast.expr:
        return ast.Name(self._name(binding), ast.Load())

    def _constant(self, value: object) -> ast.expr:
        name = f"constant{len(self._constants)}"
        self._constants[name] = value
        return ast.Name(name, ast.Load())


_NESTED = ("any", "list", "set", "map", "struct", "shared")
"""Kinds of values that may have others in them."""


def _unsure(kind: ValueType) -> bool:
    """Return whether fields of a struct are of types that are seen when they are there."""
    return kind.kind == "any" or any(_unsure(field) for _, field in kind.fields)


@cache
def _template(code: str) -> ast.expr:
    return ast.parse(code, mode="eval").body


def _filled(code: str, line: int, *operands: ast.expr) -> ast.expr:
    """Return a piece of code of our own with operands in place of ``a``, ``b``, ``c``."""
    filled = _Filling(dict(zip("abc", operands, strict=False)), line).visit(_template(code))
    assert isinstance(filled, ast.expr)
    return filled


def _call(name: str, line: int, *operands: ast.expr) -> ast.expr:
    function = ast.Name(name, ast.Load(), lineno=line, col_offset=0)
    return ast.Call(function, list(operands), [], lineno=line, col_offset=0)


_LOCATED = (ast.expr, ast.stmt, ast.arg, ast.keyword)
"""Nodes of a piece of code that have a line."""


class _Filling(ast.NodeTransformer):
    """Copies a piece of code with operands in it; the line says which operation it is of."""

    def __init__(self, operands: Mapping[str, ast.expr], line: int) -> None:
        self._operands = operands
        self._line = line

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.Name) and node.id in self._operands:
            return self._operands[node.id]
        copy = type(node)()
        for name, value in ast.iter_fields(node):
            setattr(copy, name, self._copied(value))
        if isinstance(copy, _LOCATED):
            copy.lineno, copy.col_offset = self._line, 0
        return copy

    def _copied(self, value: object) -> object:
        if isinstance(value, list):
            return [self._copied(one) for one in value]
        return self.visit(value) if isinstance(value, ast.AST) else value


# What functions of expressions call ----


def expected(value: XpnetValue, wanted: ValueType) -> XpnetValue:
    """Return a value that says its type by itself, and see that it is of this type."""
    if not is_of(value, wanted):
        raise Undefined(f"the value is of type {type_of(value)}, and {wanted} is needed")
    return value


def shallow(value: XpnetValue) -> XpnetValue:
    """Return a value that is to be put into another one, and see that it is not nested too deep."""
    waiting = [(value, 1)] if type(value) in NESTED_CLASSES else []
    while waiting:
        one, depth = waiting.pop()
        if depth >= DEPTH_MAX:
            raise Undefined(f"a value would be nested deeper than {DEPTH_MAX} levels")
        waiting += [(inner, depth + 1) for inner in inner_values(one) if type(inner) in NESTED_CLASSES]
    return value


def field(value: XpnetValue, name: str) -> XpnetValue:
    """Return a field of a value of which it is not known what it is."""
    if type(value) is not dict:
        raise Undefined(f"a value of type {type_of(value)} has no field {name}")
    if name not in value:
        raise Undefined(f"there is no field {name}; the fields are: {', '.join(value)}")
    return value[name]


def poked(value: XpnetValue, path: tuple[str, ...], inner: XpnetValue) -> XpnetValue:
    """Return a copy of a struct in which a field has another value; what is not there is made."""
    if value is None:
        value = {}
    if type(value) is not dict:
        raise Undefined(f"a value of type {type_of(value)} has no field {path[0]}")
    name, *rest = path
    return {**value, name: poked(value.get(name), tuple(rest), inner) if rest else inner}


def applied(name: str, *operands: XpnetValue) -> XpnetValue:
    """Return what an operator or a function has for values that say their types by themselves."""
    kinds = tuple(map(kind_of, operands))
    chosen = _overload(name, kinds)
    if chosen is None:
        raise Undefined(refusal(name, [ValueType(kind) for kind in kinds]))
    overload, function = chosen
    result = function(*operands)
    return saying(result, ValueType(overload.result)) if overload.result != "any" else result


def applied_right_first(name: str, right: XpnetValue, left: XpnetValue) -> XpnetValue:
    """Return what an operator has for two values, of which the right one comes first."""
    return applied(name, left, right)


@cache
def _overload(name: str, kinds: tuple[str, ...]) -> tuple[Overload, ValueFunction] | None:
    """Return what an operator or a function does with operands of these kinds, None if it takes none such."""
    types = [ValueType(kind) for kind in kinds]
    for overload in OPERATIONS[name]:
        if takes(overload, types):
            names = "abc"[: len(kinds)]
            code = _filled(overload.code, 1)
            return overload, _function(names, [ast.Return(code)], HELPERS)
    return None


def _function(parameters: Iterable[str], body: list[ast.stmt], reached: Mapping[str, object]) -> FunctionType:
    """Return a function that reaches nothing but what it is given."""
    arguments = ast.arguments(
        posonlyargs=[ast.arg(name) for name in parameters],
        args=[],
        kwonlyargs=[],
        kw_defaults=[],
        defaults=[],
    )
    module = ast.Module([ast.FunctionDef("expression", arguments, body, [])], [])
    for node in ast.walk(module):
        if isinstance(node, _LOCATED) and not hasattr(node, "lineno"):
            node.lineno, node.col_offset = 1, 0
    code = compile(module, "<xpnet>", "exec")
    (inner,) = (each for each in code.co_consts if isinstance(each, CodeType))
    return FunctionType(inner, dict(reached), "expression")


_REACHED = {
    **HELPERS,
    **{one.__name__: one for one in (expected, field, poked, shallow, applied, applied_right_first)},
    **{one.__name__: one for one in (make_map, make_set)},
    **{one.__name__: one for one in (Shared, *SAYING.values())},
}
"""All that the function of an expression can reach, besides its constants."""

_CAUGHT = (ArithmeticError, ValueError, LookupError, TypeError)


class _Failure:
    """Makes the error of an expression from what was raised in its function."""

    def __init__(self, inference: Inference, nodes: list[ExpressionNode], names: Mapping[str, str]) -> None:
        self._inference = inference
        self._nodes = nodes
        self._names = names

    def __call__(self, error: Exception) -> ExpressionError:
        trace = error.__traceback__
        assert trace is not None
        expression = self._inference.expression
        node = self._nodes[min(trace.tb_lineno, len(self._nodes)) - 1]
        locals_ = trace.tb_frame.f_locals
        values = {}
        for _, part in levels(node):
            if isinstance(part, PathReference):
                found, kind = self._value(part, locals_)
                if kind is not None:
                    values[str(part)] = show_short(found, kind)
        line, column = expression.source.place(node.begin)
        place = f"{expression.source.start.path}:{line}:{column}"
        return ExpressionError(place, expression.text_of(node), _reason(error), dict(sorted(values.items())))

    def _value(
        self, part: PathReference, there: Mapping[str, XpnetValue]
    ) -> tuple[XpnetValue, ValueType | None]:
        """Return the value of a reference when the error came, and its type; no type: it has none."""
        name, *fields = part.path
        if self._names[name] not in there:
            return None, None
        found = there[self._names[name]]
        for field in fields:
            if type(found) is not dict or field not in found:
                return None, None
            found = found[field]
        return found, self._inference.types[part]


def _reason(error: Exception) -> str:
    """Return what to say of what Python raised."""
    if isinstance(error, ZeroDivisionError):
        return "division by zero"
    if isinstance(error, OverflowError):
        return "the result is too large"
    return str(error) or type(error).__name__


# Values that are written ----


def read_value(text: str, wanted: ValueType, where: TextStart) -> XpnetValue:
    """Return the value that a text stands for, of a type that is known.

    The text is an expression without bindings, such as ``5L`` or ``List (1, 2)``.

    Args:
        text: what is written.
        wanted: of which type the value is; ``any``: the value says that by itself.
        where: the place of its first character.

    Raises:
        FormatError: it is no expression, or of another type; says where.
        ExpressionError: it has no value, as ``1 div 0``.
    """
    return compile_value(parse_expression(text, where), {}, wanted)()
