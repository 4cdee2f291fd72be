"""Modules of xpnet as tasks: a function in Python, a body in the net, or C++ that is compiled."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from gspc_trio.workflow.formats.format import Function, Problem
from gspc_trio.workflow.formats.in_tasks.native import CompileError, CppSource
from gspc_trio.workflow.formats.xpnet.cpp import CppBody, CppTask, split_flags
from gspc_trio.workflow.formats.xpnet.description import Defun, Module
from gspc_trio.workflow.formats.xpnet.memory import MemoryMaking, MemoryTask
from gspc_trio.workflow.formats.xpnet.modules import (
    BadSignature,
    ModuleTask,
    PythonBody,
    Signature,
    check_arguments,
    parse_signature,
)
from gspc_trio.workflow.formats.xpnet.types import ValueType

LANGUAGE = "gspc-trio.language"
"""Property of a function that says in which language the body of its module is."""

_SAID = re.compile(r"^(.*?):(\d+):(?:(\d+):)? (?:fatal )?error: (.*)$", re.MULTILINE)


class ModuleLanguages(Struct, frozen=True):
    """What the user has given for modules.

    Attributes:
        functions: name -> function in Python, None if there is no file of them.
        file: path of that file, or of the one in which they would be looked for.
        compile: makes a library of a source, None if nothing is to be compiled.
    """

    functions: Mapping[str, Function] | None
    file: str
    compile: Callable[[CppSource], Callable[[bytes], bytes]] | None


class ModuleMaking:
    """Makes what the tasks of one module run; reports what is wrong with it.

    Args:
        module: as the net has it.
        function: whose body it is.
        types: port -> type.
        inputs: input ports in the order in which a task gets their values.
        languages: see above.
        report: is told each problem.
    """

    def __init__(
        self,
        module: Module,
        function: Defun,
        types: Mapping[str, ValueType],
        inputs: Sequence[str],
        languages: ModuleLanguages,
        report: Callable[[Problem], None],
    ) -> None:
        self._module = module
        self._function = function
        self._types = types
        self._inputs = tuple(inputs)
        self._languages = languages
        self._report = report
        self._elements: Mapping[str, ValueType] = {}

    def made(self, elements: Mapping[str, ValueType]) -> ModuleTask | CppTask | MemoryTask | None:
        """Return what a task calls with the values of the input ports; None if there is a problem.

        It returns a dict with the values of the output ports.

        Args:
            elements: output port whose list falls apart -> the type of its elements.
        """
        self._elements = elements
        signature = self._signature()
        if not (self._function.buffers or self._function.transfers):
            return None if signature is None else self._called(signature)
        memory = MemoryMaking(self._function, self._types, self._inputs, self._report).made()
        inputs = self._inputs
        if signature is None or memory is None:
            return None
        self._inputs = (*inputs, *(buffer.name for buffer in memory.buffers))
        run = self._called(signature)
        if run is None:
            return None
        return MemoryTask(self._module.name, run, inputs, memory, isinstance(run, CppTask))

    def _called(self, signature: Signature) -> ModuleTask | CppTask | None:
        """Return what calls the function with the values of the input ports, and the buffers after them."""
        ports, buffers = self._function.ports, {buffer.name for buffer in self._function.buffers}
        read = tuple(name for name in signature.parameters if name in buffers or ports[name].is_input)
        named = (signature.returned, *signature.parameters) if signature.returned else signature.parameters
        written = tuple(name for name in dict.fromkeys(named) if name in ports and ports[name].is_output)
        function = (self._languages.functions or {}).get(signature.name)
        if function is not None:
            why = check_arguments(function, read)
            if why:
                self._problem(f"{self._languages.file} has no {signature.name} ({', '.join(read)}): {why}")
                return None
            return self._in_python(function, read, written)
        language = self._function.properties.get(LANGUAGE, "").strip().lower()
        if language == "python":
            return self._python_body(signature, read, written)
        if language not in ("", "c++"):
            self._problem(f"its {LANGUAGE} is {language!r}, and python and c++ are what there is")
            return None
        return self._in_cpp(signature, read, written)

    def _problem(self, message: str) -> None:
        self._report(self._module.spot.problem(f"module {self._module.name!r}: {message}"))

    def _signature(self) -> Signature | None:
        """Return how the module is called, if all ports have a type and a value."""
        try:
            signature = parse_signature(self._module.function)
        except BadSignature as error:
            self._problem(str(error))
            return None
        ports = {port.name for port in self._function.ports.values() if port.direction != "tunnel"}
        buffers = {buffer.name for buffer in self._function.buffers}
        named = {*signature.parameters} - buffers | ({signature.returned} if signature.returned else set())
        for name in sorted(named - ports):
            known = ", ".join(sorted(ports)) or "none"
            known += f"; the buffers are: {', '.join(sorted(buffers))}" if buffers else ""
            self._problem(f"{signature} names {name!r}, which is no port; the ports are: {known}")
        if signature.returned in ports and not self._function.ports[signature.returned].is_output:
            self._problem(f"{signature} returns {signature.returned!r}, which is no output port")
        unnamed = [name for name in ports - named if self._function.ports[name].direction == "out"]
        for name in sorted(unnamed):
            self._problem(f"{signature} gives the output port {name!r} no value")
        is_whole = named <= ports and not unnamed and ports <= self._types.keys()
        return signature if is_whole else None

    def _outputs(self) -> tuple[tuple[str, ValueType], ...]:
        ports = self._function.ports.values()
        return tuple((port.name, self._types[port.name]) for port in ports if port.is_output)

    def _in_python(self, function: Function, read: tuple[str, ...], written: tuple[str, ...]) -> ModuleTask:
        name, outputs = self._module.name, self._outputs()
        return ModuleTask(name, function, self._inputs, read, written, outputs, self._elements)

    def _python_body(
        self, signature: Signature, read: tuple[str, ...], written: tuple[str, ...]
    ) -> ModuleTask | None:
        code = self._module.code
        if code is None:
            self._problem("it is in Python and has no <code>")
            return None
        path, line = code.spot.source.path, code.spot.element.text_line
        body = PythonBody(signature.name, read, written, code.text, _name_of(path), line)
        try:
            body.compiled()
        except BadSignature as error:
            self._report(Problem(path, line + error.line, 0, f"module {self._module.name!r}: {error}"))
            return None
        return self._in_python(body, read, written)

    def _in_cpp(
        self, signature: Signature, read: tuple[str, ...], written: tuple[str, ...]
    ) -> CppTask | None:
        """Return a call of C++ that has been compiled."""
        module, types = self._module, self._types
        code = module.code
        body = CppBody(
            module=module.name,
            signature=signature,
            inputs={name: types[name] for name in read if name in types},
            buffers={one.name: one.read_only for one in self._function.buffers if one.name in read},
            outputs={name: types[name] for name in written},
            code="" if code is None else code.text,
            path=_name_of(module.spot.source.path),
            line=module.spot.element.line if code is None else code.spot.element.text_line,
            includes=module.includes,
            compiler_flags=split_flags(module.compiler_flags),
            linker_flags=split_flags(module.linker_flags),
        )
        refusals = body.refusals()
        if module.pass_context:
            refusals.insert(0, "it needs pass_context")
        if code is None:
            refusals.insert(0, "it has no <code>")
        make = self._languages.compile
        if make is None and not refusals:
            refusals.append("it is in C++, and nothing is to be compiled")
        advice = f"give a function {signature.name} ({', '.join(read)}) in {self._languages.file}"
        for why in refusals:
            self._problem(f"{why}: {advice}")
        if refusals or make is None:
            return None
        try:
            function = make(body.source())
        except CompileError as error:
            self._compile_problems(str(error), advice)
            return None
        passed = tuple((name, types.get(name)) for name in body.inputs_and_buffers)
        returned = tuple((name, types[name]) for name in written)
        outputs = tuple(name for name, _ in self._outputs())
        return CppTask(module.name, function, self._inputs, passed, returned, outputs)

    def _compile_problems(self, said: str, advice: str) -> None:
        """Report what a compiler says, at the lines of the net where it can."""
        path = self._module.spot.source.path
        found = [match.groups() for match in _SAID.finditer(said)]
        for file, line, column, message in found:
            is_here = file == _name_of(path)
            where = "" if is_here else f" ({file}, line {line})"
            at = (int(line), int(column or 0)) if is_here else (self._module.spot.element.line, 0)
            self._report(Problem(path, *at, f"module {self._module.name!r}: {message}{where}"))
        if not found:
            lines = [line for line in said.splitlines() if line.strip()]
            self._problem(f"{lines[0] if lines else 'the compiler has failed'}: {advice}")


def _name_of(path: str) -> str:
    """Return what errors of code call its file: a run that is resumed has another path of the same file."""
    return path.rpartition("/")[2]
