"""The identity of code and of values: the same bytes in every process for what does, or is, the same.

A function's identity is made of its instructions and of all that they can reach: constants, defaults, cells,
globals, and in turn the functions, classes and modules among those, as far as they are the user's own. What
is installed or comes with Python counts by its name. Comments, line numbers, docstrings and names of local
functions are no part of it.
"""

from __future__ import annotations

import builtins
import copyreg
import dis
import importlib.util
import os
import pickle
import re
import sys
import weakref
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from hashlib import blake2b
from importlib.machinery import SourceFileLoader
from itertools import pairwise
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CellType,
    ClassMethodDescriptorType,
    CodeType,
    EllipsisType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    NoneType,
    NotImplementedType,
    WrapperDescriptorType,
)
from typing import NamedTuple, TypeAlias

FileIdentity: TypeAlias = Callable[[str], bytes]

IDENTITY_BYTES = 16
"""Length of an identity."""

_ATOMS = frozenset({NoneType, bool, int, float, complex, str, EllipsisType, NotImplementedType})
_DESCRIPTORS = frozenset(
    {
        *(ClassMethodDescriptorType, GetSetDescriptorType, MemberDescriptorType, MethodDescriptorType),
        *(MethodWrapperType, WrapperDescriptorType),
    }
)
_ALL_ALIKE = frozenset(
    {
        *(("_thread", "lock"), ("_thread", "RLock"), ("_weakrefset", "WeakSet"), ("weakref", "KeyedRef")),
        *(("weakref", "ReferenceType"), ("weakref", "WeakKeyDictionary"), ("weakref", "WeakValueDictionary")),
    }
)
"""Types whose instances are no part of what is computed: locks, and what remembers objects as they live."""

_ARGUMENT_FLAGS = 0x04 | 0x08 | 0x20 | 0x80 | 0x200  # *args, **kwargs, generator, coroutine, async generator
_SKIPPED = frozenset({"CACHE", "EXTENDED_ARG", "NOP"})
_SAID_IN_CLASSES = frozenset({"__doc__", "__qualname__", "__firstlineno__", "__static_attributes__"})
_NOT_OF_CLASSES = _SAID_IN_CLASSES | {
    *("__module__", "__dict__", "__weakref__", "__annotations__", "__annotate_func__", "_abc_impl"),
    *("__annotations_cache__", "__annotate__"),
}
_NOT_OF_MODULES = frozenset(
    {
        *("__name__", "__doc__", "__package__", "__loader__", "__spec__", "__path__", "__file__"),
        *("__cached__", "__builtins__", "__warningregistry__", "__annotations__", "__annotate__"),
        *("__annotations_cache__", "__conditional_annotations__"),
    }
)
_ATTRIBUTE_OPERATIONS = frozenset({"LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR"})
_GLOBAL_OPERATIONS = frozenset({"LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME"})
_PROGRAMS = frozenset({"__main__", "__mp_main__"})
_OURS = __name__.partition(".")[0]
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_MISSING = object()
_names_of_code: weakref.WeakKeyDictionary[CodeType, tuple[str, ...]] = weakref.WeakKeyDictionary()


class Unidentifiable(ValueError):
    """Something is part of the code or the value that is no value: an open file, a socket, a generator."""


def code_identity(function: Callable[..., object]) -> bytes:
    """Return the identity of a function's code: ``IDENTITY_BYTES`` bytes.

    Args:
        function: a function, a method, a class, or any other object that can be called.

    Raises:
        Unidentifiable: it uses something that cannot be told from others like it; the message says what.
    """
    return value_identity(function)


def value_identity(value: object, file: FileIdentity | None = None) -> bytes:
    """Return the identity of a value: the same for equal ones, whatever the order of their sets.

    Of two equal lists in it one may not stand for the other: whoever changes one would change both.

    Args:
        value: any.
        file: returns the identity of what a :class:`pathlib.Path` names; None: paths count by their names.

    Raises:
        Unidentifiable: something in it cannot be told from others like it; the message says what.
    """
    try:
        return _Digest({}, file).of(value)
    except RecursionError:
        raise Unidentifiable("it is nested too deeply") from None


def source_identity(text: str, path: str, function: str) -> bytes:
    """Return the identity of a function of a source file: that of all of the file, and of what it imports.

    Raises:
        SyntaxError, ValueError: the text is no Python.
        Unidentifiable: as :func:`code_identity`.
    """
    code = compile(text, path, "exec", dont_inherit=True)
    digest = _Digest({}, None)
    digest.add_imports(code, "")
    return digest.of((function, code))


def global_names(code: CodeType) -> tuple[str, ...]:
    """Return the names of globals that a code uses, and the codes in it."""
    names = _names_of_code.get(code)
    if names is None:
        used = {each.argval: None for each in dis.get_instructions(code) if each.opname in _GLOBAL_OPERATIONS}
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                used.update(dict.fromkeys(global_names(constant)))
        names = _names_of_code[code] = tuple(map(sys.intern, used))
    return names


def is_own(module_name: str) -> bool:
    """Return whether a module is the user's own: not installed, and no part of Python."""
    top = module_name.partition(".")[0]
    if top in _PROGRAMS:
        return True
    if top == _OURS or top in sys.builtin_module_names:
        return False
    module = sys.modules.get(module_name)
    path = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), "")
    if not isinstance(path, str) or not path:
        return top not in sys.stdlib_module_names  # modules that were made by hand
    return not _is_library_file(path)


class _Digest:
    """Takes in a value and its parts; the order in which it meets them is always the same.

    Args:
        sets: ids of the sets that are being looked at further out.
        file: as :func:`value_identity`.
    """

    def __init__(self, sets: dict[int, object], file: FileIdentity | None) -> None:
        self._hash = blake2b(digest_size=IDENTITY_BYTES)
        self._met: dict[object, int] = {}
        self._kept: list[object] = []  # lest others get the ids of those that were met
        self._pending: deque[object] = deque()
        self._sets = sets
        self._file = file

    def of(self, value: object) -> bytes:
        """Return the identity of a value."""
        self.add(value)
        while self._pending:
            self._add_parts(self._pending.popleft())
        return self._hash.digest()

    def _say(self, *texts: str) -> None:
        for text in texts:
            self._raw(text.encode(errors="surrogatepass"))

    def _raw(self, data: bytes | bytearray | memoryview) -> None:
        self._hash.update(len(data).to_bytes(8, "big"))
        self._hash.update(data)

    def _is_again(self, key: object, value: object) -> bool:
        number = self._met.get(key)
        if number is None:
            self._met[key] = len(self._met)
            self._kept.append(value)
            return False
        self._say("again", str(number))
        return True

    def add(self, value: object) -> None:
        """Take a value in."""
        kind = type(value)
        if kind in _ATOMS:
            self._say(kind.__name__, repr(value))
        elif isinstance(value, tuple) and kind is tuple:
            self._add_all("tuple", value)
        elif isinstance(value, bytes | bytearray) and kind in (bytes, bytearray):
            self._say(kind.__name__)
            self._raw(value)
        elif isinstance(value, set | frozenset) and kind in (set, frozenset):
            self._add_set(kind.__name__, value)
        elif not self._is_again(id(value), value):
            self._say("later")  # it is here, and its parts come later: long chains are no deep recursion
            self._pending.append(value)

    def _add_all(self, what: str, values: Iterable[object]) -> None:
        values = tuple(values)
        self._say(what, str(len(values)))
        for value in values:
            self.add(value)

    def _add_set(self, what: str, values: set[object] | frozenset[object]) -> None:
        if id(values) in self._sets:
            raise Unidentifiable("a set is a part of its own elements")
        self._sets[id(values)] = values
        parts = [_Digest(self._sets, self._file).of(value) for value in values]
        del self._sets[id(values)]
        self._say(what)
        self._raw(b"".join(sorted(parts)))

    def _add_parts(self, value: object) -> None:
        kind = type(value)
        if isinstance(value, list) and kind is list:
            self._add_all("list", value)
        elif isinstance(value, dict | MappingProxyType) and kind in (dict, MappingProxyType):
            self._add_mapping(value)
        elif isinstance(value, FunctionType):
            self._add_function(value)
        elif isinstance(value, type):
            self._add_class(value)
        elif isinstance(value, ModuleType):
            self._add_whole_module(value)
        elif isinstance(value, CodeType):
            self._add_code(value)
        elif isinstance(value, MethodType):
            self._add_all("method", (value.__func__, value.__self__))
        elif isinstance(value, staticmethod | classmethod):
            self._add_all(kind.__name__, (value.__func__,))
        elif isinstance(value, property) and kind is property:
            self._add_all("property", (value.fget, value.fset, value.fdel))
        elif isinstance(value, CellType):
            self._add_cell(value)
        elif isinstance(value, BuiltinFunctionType) or kind in _DESCRIPTORS:
            self._say(
                kind.__name__, str(getattr(value, "__module__", "")), getattr(value, "__qualname__", "")
            )
            if not isinstance(owner := getattr(value, "__self__", None), NoneType | ModuleType):
                self.add(owner)
        elif isinstance(value, pickle.PickleBuffer):
            self._say("buffer")
            self._raw(value.raw())
        else:
            self._add_object(value)

    def _add_mapping(self, values: Mapping[object, object]) -> None:
        self._say("dict", str(len(values)))
        for key, value in tuple(values.items()):
            self.add(key)
            self.add(value)

    def _add_cell(self, cell: CellType) -> None:
        try:
            content = cell.cell_contents
        except ValueError:
            self._say("empty cell")
        else:
            self._add_all("cell", (content,))

    def _add_object(self, value: object) -> None:
        """Take in any other object: what pickle would make it of."""
        kind = type(value)
        name = f"{kind.__module__}.{kind.__qualname__}"
        if (kind.__module__, kind.__name__) in _ALL_ALIKE:
            self._say(name)
            return
        if self._file is not None and isinstance(value, Path):
            self._raw(self._file(str(value)))
        try:
            reduce = copyreg.dispatch_table.get(kind)
            made_of = value.__reduce_ex__(5) if reduce is None else reduce(value)
        except RecursionError:
            raise
        except Exception as error:  # methods of the user's classes
            raise Unidentifiable(f"an object of type {name} cannot be told from others: {error}") from error
        if isinstance(made_of, str):
            self._say("global", str(getattr(value, "__module__", "")), made_of)
            self._add_all("wrapped", (getattr(value, "__wrapped__", None),))
            return
        self._say("object", name)
        make, arguments, *rest = made_of
        self.add(make)
        self.add(arguments)
        for part in rest:
            self.add(list(part) if isinstance(part, Iterator) else part)

    # Code

    def _add_function(self, function: FunctionType) -> None:
        if _is_of_library(function):
            self._say("function", function.__module__, function.__qualname__)
            return
        name = str(function.__globals__.get("__name__", ""))
        if is_own(name):
            self._say("own function")
            self._add_code(function.__code__)
            self._add_globals(function)
        else:  # made by a library, of something of the user's perhaps
            self._say("made function", name, function.__code__.co_qualname)
        self.add(function.__defaults__)
        self._add_items(function.__kwdefaults__ or {})
        for cell in function.__closure__ or ():
            self.add(cell)
        self._add_items(function.__dict__)

    def _add_items(self, values: Mapping[str, object]) -> None:
        names = sorted(name for name in tuple(values) if isinstance(name, str))
        self._say("items", str(len(names)))
        for name in names:
            self._say(name)
            self.add(values.get(name))

    def _add_class(self, kind: type) -> None:
        if not is_own(kind.__module__):
            self._say("class", kind.__module__, kind.__qualname__)
            return
        self._say("own class")
        self._add_all("bases", kind.__bases__)
        self.add(type(kind))
        namespace = {name: value for name, value in vars(kind).items() if name not in _NOT_OF_CLASSES}
        if _is_made_by_attrs(namespace.get("__hash__")):
            del namespace["__hash__"]  # it has the hash of a text in it, which is another one in each process
        self._add_items(namespace)
        annotations = vars(kind).get("__annotations__", {})
        for name, stated in annotations.items() if isinstance(annotations, dict) else ():
            self._say(str(name), re.sub(" at 0x[0-9a-fA-F]+", "", repr(stated)))

    def _add_globals(self, function: FunctionType) -> None:
        """Take in what the globals stand for that a function uses, and what it imports when it runs."""
        namespace, names = function.__globals__, _names_in(function.__code__)
        own = vars(builtins)
        for name in sorted(global_names(function.__code__)):
            self._say(name)
            value = namespace.get(name, own.get(name, _MISSING))
            if isinstance(value, ModuleType) and name not in names.values:
                self._add_module(value, names)
            elif value is _MISSING:
                self._say("missing")
            else:
                self.add(value)
        self.add_imports(function.__code__, str(namespace.get("__package__") or ""), names)

    def add_imports(self, code: CodeType, package: str, names: _Names | None = None) -> None:
        """Take in what a code imports when it runs; of modules that are loaded what has one of these names.

        Args:
            code: the instructions.
            package: in which they are.
            names: None: those that the code has.
        """
        if names is None:
            names = _names_in(code)
        for name in sorted(_imported_names(code, package)):
            self._add_import(name, names)

    def _add_whole_module(self, module: ModuleType) -> None:
        """Take in all that a module has: nobody knows what is looked up in it; of a library its name."""
        self._say("module", module.__name__)
        if is_own(module.__name__):
            values = tuple(vars(module).items())
            self._add_items({name: value for name, value in values if name not in _NOT_OF_MODULES})

    def _add_module(self, module: ModuleType, names: _Names) -> None:
        """Take in what a module has of these names; of a library its name."""
        self._say("module", module.__name__)
        if not is_own(module.__name__) or self._is_again((id(module), names), module):
            return
        for name in (*names.looked_up, "__getattr__"):
            value = vars(module).get(name, _MISSING)
            if value is _MISSING:
                continue
            self._say(name)
            if isinstance(value, ModuleType) and name not in names.values:
                self._add_module(value, names)
            else:
                self.add(value)

    def _add_import(self, name: str, names: _Names) -> None:
        """Take in a module that is imported when the function runs; nothing is imported for that."""
        self._say("import", name)
        module = sys.modules.get(name)
        if module is not None:
            if name.rpartition(".")[2] in names.values:
                self.add(module)
            else:
                self._add_module(module, names)
            return
        parent = name.rpartition(".")[0]
        if (parent and parent not in sys.modules) or self._is_again(("import", name), name):
            return
        try:
            spec = importlib.util.find_spec(name)
            loader = None if spec is None else spec.loader
            if not isinstance(loader, SourceFileLoader) or _is_library_file(loader.path):
                return
            code = loader.get_code(name)
        except (ImportError, ValueError, SyntaxError, OSError):
            return  # importing it will fail, too
        if code is not None:
            self._add_code(code)
            self.add_imports(code, name if loader.is_package(name) else parent)

    def _add_code(self, code: CodeType) -> None:
        """Take in instructions, with constants, names and targets in place of numbers."""
        self._say("code", str(code.co_argcount), str(code.co_posonlyargcount), str(code.co_kwonlyargcount))
        self._say(str(code.co_flags & _ARGUMENT_FLAGS), *code.co_varnames[: _count_arguments(code)])
        instructions = _instructions(code)
        offsets = [each.offset for each in instructions]
        jumps = {*dis.hasjrel, *dis.hasjabs}
        for each in instructions:
            self._say(each.opname)
            if each.opcode in jumps:
                self._say(str(bisect_left(offsets, each.argval)))
            elif each.opcode in dis.hasconst and isinstance(each.argval, CodeType):
                self._add_code(each.argval)
            else:
                self.add(each.argval)
        for start, end, target, depth in _handlers(code.co_exceptiontable):
            places = (bisect_left(offsets, place) for place in (start, end, target))
            self._say(*map(str, places), str(depth))


def _is_made_by_attrs(function: object) -> bool:
    return isinstance(function, FunctionType) and function.__code__.co_filename.startswith("<attrs generated")


def _is_library_file(path: str) -> bool:
    path = os.path.abspath(path)
    return not _INSTALLED.isdisjoint(path.split(os.sep)) or path.startswith(_standard())


@cache
def _standard() -> tuple[str, ...]:
    """Return the directories of Python's own modules."""
    import sysconfig  # only here: it takes a while, and few need it

    return tuple({os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib")})


def _is_of_library(function: FunctionType) -> bool:
    """Return whether a function is found by importing what is not the user's own."""
    module = function.__module__
    if not isinstance(module, str) or is_own(module):
        return False
    found: object = sys.modules.get(module)
    for part in function.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is function


def _count_arguments(code: CodeType) -> int:
    return code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)


def _instructions(code: CodeType) -> list[dis.Instruction]:
    """Return the instructions that do something; not those of a class that say what it is called."""
    found: list[dis.Instruction] = []
    for each in dis.get_instructions(code):
        if each.opname in _SKIPPED:
            continue
        if each.opname == "STORE_NAME" and each.argval in _SAID_IN_CLASSES and found:
            found.pop()  # what loads it
            continue
        found.append(each)
    return found


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


class _Names(NamedTuple):
    """The names in a code, and in those in it.

    Attributes:
        looked_up: all that may be looked up in a module, sorted.
        values: names of variables, attributes and imported modules of which not only an attribute is used at
            once: what they stand for may go anywhere.
    """

    looked_up: tuple[str, ...]
    values: frozenset[str]


def _names_in(code: CodeType) -> _Names:
    looked_up: set[str] = set()
    values: set[str] = set()
    imported: list[tuple[object, str]] = []
    for part in _codes(code):
        looked_up.update(part.co_names)
        last = ""  # imported, and to be stored
        for each, following in pairwise(_instructions(part)):
            if each.opname in ("IMPORT_NAME", "IMPORT_FROM"):
                last = str(each.argval).rpartition(".")[2]
            elif last and each.opname not in ("SWAP", "POP_TOP"):
                imported.append((each.argval, last))
                last = ""
            *others, name = _loaded_names(each) or ("",)
            values.update(others)
            if following.opname not in _ATTRIBUTE_OPERATIONS or following.argval == "__dict__":
                values.add(name)
    values.update(module for variable, module in imported if variable in values)
    return _Names(tuple(sorted(looked_up)), frozenset(values))


def _loaded_names(instruction: dis.Instruction) -> tuple[str, ...]:
    """Return the names of what an instruction loads: variables or an attribute."""
    name, opcode = instruction.opname, instruction.opcode
    if "LOAD_" not in name or name == "LOAD_CLOSURE":
        return ()
    if opcode not in dis.hasname and opcode not in dis.haslocal and opcode not in dis.hasfree:
        return ()
    names = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
    return tuple(map(str, names[1:] if name.startswith("STORE_") else names))


def _imported_names(code: CodeType, package: str) -> set[str]:
    """Return the names of modules that a code, and those in it, import."""
    names: set[str] = set()
    for part in _codes(code):
        before: list[object] = []
        for each in dis.get_instructions(part):
            if each.opname == "IMPORT_NAME":
                level, wanted = (*before, 0, ())[:2] if len(before) < 2 else before[-2:]
                if isinstance(level, int) and level:
                    base = package.rsplit(".", level - 1)[0] if level > 1 else package
                    name = f"{base}.{each.argval}" if each.argval else base
                else:
                    name = str(each.argval)
                names.add(name)
                for one in wanted if isinstance(wanted, tuple) else ():
                    if f"{name}.{one}" in sys.modules:
                        names.add(f"{name}.{one}")
            before.append(each.argval)
    return names


def _handlers(table: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield (start, end, target, depth) of each entry of an exception table; places are offsets."""
    numbers = _numbers(table)
    for start in numbers:
        length, target, depth = next(numbers), next(numbers), next(numbers)
        yield 2 * start, 2 * (start + length), 2 * target, depth


def _numbers(table: bytes) -> Iterator[int]:
    """Yield numbers of 6 bits a byte, the highest first; bit 6 says that more follow."""
    value = 0
    for byte in table:
        value = value << 6 | byte & 63
        if not byte & 64:
            yield value
            value = 0
