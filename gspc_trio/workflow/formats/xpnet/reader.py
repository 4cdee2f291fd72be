"""From the XML of an xpnet file, and of those that it includes, to a description."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from gspc_trio.core.similar import did_you_mean
from gspc_trio.workflow.formats.format import FormatError, Problem, Problems, Source
from gspc_trio.workflow.formats.xml_tree import parse_xml
from gspc_trio.workflow.formats.xpnet.description import (
    Body,
    Buffer,
    Connection,
    Defun,
    Module,
    Modules,
    NetBody,
    NetPlace,
    NetTransition,
    PlaceMap,
    Port,
    Properties,
    StructSpot,
    Text,
    Transfer,
)
from gspc_trio.workflow.formats.xpnet.scopes import Scope, Template, specialized
from gspc_trio.workflow.formats.xpnet.vocabulary import Spot, check_words

PRIORITY_MAX = 2**31 - 1

INCLUDES_MAX = 64
"""How deep files may include each other."""

FUNCTIONS_MAX = 100_000
FUNCTIONS_DEPTH_MAX = 60
"""How many functions there may be, and how deep in each other, with what is included and specialized."""

_TOO_MANY = (
    f"there are more than {FUNCTIONS_MAX:,} functions, or more than {FUNCTIONS_DEPTH_MAX} in each other, "
    "with what is included and specialized: do some of them contain themselves?"
)

_PORT_TAGS = ("in", "out", "inout", "tunnel")
_BODY_TAGS = ("expression", "module", "modules", "net")
_TRANSFER_TAGS = ("memory-get", "memory-put", "memory-getput")

LIBRARY = {
    "memory/global/handle.xpnet": b"""<structs>
  <struct name="global_memory_handle"><field name="name" type="string"/></struct>
</structs>""",
    "memory/global/range.xpnet": b"""<structs>
  <include-structs href="memory/global/handle.xpnet"/>
  <struct name="global_memory_range">
    <field name="handle" type="global_memory_handle"/>
    <field name="offset" type="unsigned long"/>
    <field name="size" type="unsigned long"/>
  </struct>
</structs>""",
    "memory/local/range.xpnet": b"""<structs>
  <struct name="local_memory_range">
    <field name="buffer" type="string"/>
    <field name="offset" type="unsigned long"/>
    <field name="size" type="unsigned long"/>
  </struct>
</structs>""",
}
"""Files that nets include without having them: the types of ranges of memory."""

NamedT = TypeVar("NamedT", Port, NetPlace, NetTransition)


class Reader:
    """Reads one file, and what it includes; notes what is wrong and goes on.

    Attributes:
        problems: what was wrong so far.
    """

    def __init__(self) -> None:
        self.problems: Problems = Problems()
        self._including: list[str] = []
        self._functions = self._depth = 0

    def report(self, problem: Problem) -> None:
        """Note a problem."""
        self.problems.append(problem)

    def read(self, source: Source) -> Defun:
        """Return what a file describes; what is wrong is noted.

        Raises:
            FormatError: it is no XML, or describes no workflow.
        """
        root = Spot(source, parse_xml(source))
        if root.tag != "defun":
            raise FormatError(
                [
                    root.problem(
                        f"a workflow is a <defun>, and this file is a <{root.tag}>; give the main file"
                    )
                ]
            )
        check_words(root, self.report)
        return self.defun(root, Scope())

    # Files

    def _included(self, spot: Spot, *roots: str) -> Spot | None:
        """Return the root of the file that an element includes, None if that is no use."""
        name = spot.get("href")
        if name in self._including or len(self._including) >= INCLUDES_MAX:
            chain = " includes ".join([*self._including, name])
            self.report(spot.problem(f"files include each other without end: {chain}"))
            return None
        data = spot.source.find(name) or LIBRARY.get(name)
        if data is None:
            self.report(
                spot.problem(
                    f"there is no file {name!r} beside the workflow, nor in any folder given with -I"
                )
            )
            return None
        source = Source(name, data, spot.source.find)
        try:
            root = Spot(source, parse_xml(source))
        except FormatError as error:
            for problem in error.problems:
                self.report(problem)
            return None
        if root.tag not in roots:
            wanted = " or ".join(f"<{tag}>" for tag in roots)
            self.report(root.problem(f"<{spot.tag}> needs a file with {wanted}, and this is a <{root.tag}>"))
            return None
        check_words(root, self.report)
        return root

    def _inside(self, spot: Spot, read: Callable[[], None]) -> None:
        self._including.append(spot.get("href"))
        try:
            read()
        finally:
            self._including.pop()

    # Functions

    def defun(self, spot: Spot, scope: Scope) -> Defun:
        """Return a function."""
        self._functions += 1
        self._depth += 1
        try:
            if self._depth > FUNCTIONS_DEPTH_MAX or self._functions > FUNCTIONS_MAX:
                raise FormatError([spot.problem(_TOO_MANY)])
            return self._defun(spot, scope)
        finally:
            self._depth -= 1

    def _defun(self, spot: Spot, scope: Scope) -> Defun:
        ports = self._by_name("port", [self._port(port, scope) for port in spot.all(*_PORT_TAGS)])
        scope = scope.with_structs(self._structs_in(spot, scope))
        bodies = list(spot.all(*_BODY_TAGS))
        if len(bodies) != 1:
            there = ", ".join(f"<{body.tag}>" for body in bodies) or "none"
            self.report(
                spot.problem(
                    f"a <defun> needs one of <expression>, <module>, <modules>, <net>; it has {there}"
                )
            )
        return Defun(
            name=spot.get("name"),
            ports=ports,
            body=self._body(bodies[0], scope) if bodies else None,
            conditions=tuple(Text(each.text, each) for each in spot.all("condition")),
            requires=tuple(each.get("key").strip() for each in spot.all("require")),
            structs=scope.structs,
            buffers=tuple(self._buffers(spot)),
            transfers=tuple(self._transfers(spot)),
            properties=self._properties(spot),
            types=scope.types,
            spot=spot,
        )

    def _port(self, spot: Spot, scope: Scope) -> Port:
        kind = scope.type_of(spot.get("type"))
        return Port(spot.get("name"), kind, spot.tag, spot.get("place"), spot)

    def _body(self, spot: Spot, scope: Scope) -> Body | None:
        if spot.tag == "expression":
            return Text(spot.text, spot)
        if spot.tag == "net":
            return self._net(spot, scope)
        if spot.tag == "module":
            return self._module(spot)
        return self._modules(spot)

    def _module(self, spot: Spot) -> Module:
        code, group = spot.first("code"), spot.first("eureka-group")
        if group is None and spot.get("eureka-group"):
            group_text: Text | None = Text(spot.get("eureka-group"), spot)
        else:
            group_text = Text(group.text, group) if group is not None else None
        return Module(
            name=spot.get("name"),
            function=spot.get("function"),
            target=spot.get("target").strip(),
            code=Text(code.text, code) if code is not None else None,
            eureka_group=group_text,
            includes=tuple(each.get("href") for each in spot.all("cinclude")),
            compiler_flags=tuple(each.get("flag") or each.get("flags") for each in spot.all("cxx")),
            linker_flags=tuple(each.get("flag") or each.get("flags") for each in spot.all("ld")),
            pass_context=spot.is_true("pass_context"),
            spot=spot,
        )

    def _modules(self, spot: Spot) -> Modules:
        modules = tuple(self._module(each) for each in spot.all("module"))
        preferences = spot.first("preferences")
        targets: tuple[str, ...] = ()
        if preferences is not None:
            targets = tuple(each.text.strip() for each in preferences.all("target"))
        if not targets:
            self.report(spot.problem("<modules> needs <preferences> with a <target> for each module"))
        for module in modules:
            if targets and module.target not in targets:
                known = ", ".join(targets)
                meant = did_you_mean(module.target, targets)
                self.report(
                    module.spot.problem(
                        f"the target {module.target!r} is no preference{meant}; there are: {known}"
                    )
                )
        for target in targets:
            count = sum(module.target == target for module in modules)
            if count != 1:
                self.report(spot.problem(f"the target {target!r} needs one module; there are {count}"))
        return Modules(targets, modules, spot)

    def _buffers(self, spot: Spot) -> Iterator[Buffer]:
        for each in spot.all("memory-buffer"):
            size, alignment = each.first("size"), each.first("alignment")
            if size is None:
                self.report(each.problem(f"the buffer {each.get('name')!r} needs a <size>"))
                continue
            stated = Text(alignment.text, alignment) if alignment is not None else None
            yield Buffer(each.get("name"), Text(size.text, size), stated, each.is_true("read-only"), each)

    def _transfers(self, spot: Spot) -> Iterator[Transfer]:
        for each in spot.all(*_TRANSFER_TAGS):
            outside, inside = each.first("global"), each.first("local")
            if outside is None or inside is None:
                self.report(each.problem(f"<{each.tag}> needs <global> and <local>"))
                continue
            kind = each.tag.removeprefix("memory-")
            texts = (Text(outside.text, outside), Text(inside.text, inside))
            flags = (each.is_true("allow-empty-ranges"), each.is_true("not-modified-in-module-call"))
            yield Transfer(kind, *texts, *flags, each)

    # Nets

    def _net(self, spot: Spot, scope: Scope) -> NetBody:
        scope = scope.with_structs(self._structs_in(spot, scope))
        for each in spot.all("template", "include-template"):
            self._template(each, scope)
        for each in spot.all("specialize"):
            scope = self._specialize(each, scope)
        places = [self._place(each, scope) for each in spot.all("place")]
        transitions = [
            made for each in spot.all("transition") if (made := self._transition(each, scope)) is not None
        ]
        return NetBody(
            self._by_name("place", places),
            self._by_name("transition", transitions),
            scope.structs,
            scope.types,
            spot,
        )

    def _template(self, spot: Spot, scope: Scope) -> None:
        if spot.tag == "include-template":
            root = self._included(spot, "template")
            if root is not None:
                self._inside(spot, lambda: self._define(root, scope))
            return
        self._define(spot, scope)

    def _define(self, spot: Spot, scope: Scope) -> None:
        defun = spot.first("defun")
        name = spot.get("name") or (defun.get("name") if defun is not None else "")
        if defun is None or not name:
            what = "a name" if defun is not None else "a <defun>"
            self.report(spot.problem(f"a <template> needs {what}"))
            return
        if name in scope.own_templates:
            self.report(spot.problem(f"there are two templates named {name!r}"))
        parameters = tuple(each.get("type") for each in spot.all("template-parameter"))
        scope.own_templates[name] = Template(name, parameters, defun, scope, tuple(self._including))

    def _specialize(self, spot: Spot, scope: Scope) -> Scope:
        """Return the scope with a function made of a template."""
        made = specialized(spot, scope, self.report)
        name = spot.get("name")
        if made is None:
            return scope.with_function(name, None)
        template, inner = made
        outside, self._including = self._including, list(template.including)
        try:
            function = self.defun(template.defun, inner)
        finally:
            self._including = outside
        if name in scope.functions:
            self.report(spot.problem(f"there are two specializations named {name!r}"))
        wanted = [each.get("name") for each in spot.all("type-get")]
        found = {each.name: each for each in function.structs}
        for each in wanted:
            if each not in found and each not in inner.types:
                known = ", ".join([*found, *inner.types]) or "none"
                self.report(
                    spot.problem(
                        f"the template {template.name!r} has no type {each!r}"
                        f"{did_you_mean(each, found)}; there are: {known}"
                    )
                )
        scope = scope.with_types({each: inner.types[each] for each in wanted if each in inner.types})
        scope = scope.with_structs(tuple(found[each] for each in wanted if each in found))
        return scope.with_function(name, function)

    def _place(self, spot: Spot, scope: Scope) -> NetPlace:
        tokens = tuple(Text(value.text, value) for token in spot.all("token") for value in token.all("value"))
        return NetPlace(
            name=spot.get("name"),
            type=scope.type_of(spot.get("type")),
            tokens=tokens,
            virtual=spot.is_true("virtual"),
            put_token=spot.is_true("put_token"),
            shared_sink=spot.is_true("shared_sink"),
            generator=spot.is_true("generator"),
            spot=spot,
        )

    def _transition(self, spot: Spot, scope: Scope) -> NetTransition | None:
        function = self._function(spot, scope)
        if function is None:
            return None
        connections = [
            Connection(
                each.tag.removeprefix("connect-"), each.get("port"), each.get("place") or each.get("to"), each
            )
            for each in spot.element_spots()
            if each.tag.startswith("connect-")
        ]
        shared = frozenset(
            word for word in ("produce", "consume", "passthrough") if spot.is_true(f"{word}_shared")
        )
        if "passthrough" in shared and len(shared) > 1:
            self.report(spot.problem("passthrough_shared excludes produce_shared and consume_shared"))
        return NetTransition(
            name=spot.get("name"),
            function=function,
            connections=tuple(connections),
            place_maps=tuple(
                PlaceMap(each.get("virtual"), each.get("real"), each) for each in spot.all("place-map")
            ),
            conditions=tuple(Text(each.text, each) for each in spot.all("condition")),
            priority=self._priority(spot),
            inline=spot.is_true("inline"),
            requires=tuple(each.get("key").strip() for each in spot.all("require")),
            shared=shared,
            properties=self._properties(spot),
            spot=spot,
        )

    def _function(self, spot: Spot, scope: Scope) -> Defun | None:
        """Return what a transition does, None if that cannot be said."""
        found = list(spot.all("defun", "include-function", "use"))
        if len(found) != 1:
            self.report(
                spot.problem(
                    f"transition {spot.get('name')!r} needs one of <defun>, <include-function>, <use>; "
                    f"it has {len(found)}"
                )
            )
            return None
        one = found[0]
        if one.tag == "defun":
            return self.defun(one, scope)
        if one.tag == "use":
            name = one.get("name")
            if name not in scope.functions:
                known = ", ".join(scope.functions) or "none"
                meant = did_you_mean(name, scope.functions)
                self.report(one.problem(f"nothing is specialized as {name!r}{meant}; there are: {known}"))
            return scope.functions.get(name)
        root = self._included(one, "defun")
        if root is None:
            return None
        self._including.append(one.get("href"))
        try:
            return self.defun(root, Scope())
        finally:
            self._including.pop()

    def _priority(self, spot: Spot) -> int | None:
        text = spot.get("priority").strip()
        if not text:
            return None
        if not text.isascii() or not text.isdigit() or int(text[:12]) > PRIORITY_MAX:
            self.report(spot.problem(f"a priority is a whole number from 0 to {PRIORITY_MAX}, not {text!r}"))
            return None
        return int(text)

    # Structures and properties

    def _structs_in(self, spot: Spot, scope: Scope) -> tuple[StructSpot, ...]:
        return tuple(StructSpot(each, scope.types) for each in self._structs(spot))

    def _structs(self, spot: Spot) -> Iterator[Spot]:
        for each in spot.all("struct", "include-structs"):
            if each.tag == "struct":
                yield each
                continue
            root = self._included(each, "structs")
            if root is not None:
                self._including.append(each.get("href"))
                yield from self._structs(root)
                self._including.pop()

    def _properties(self, spot: Spot, prefix: str = "") -> Properties:
        found: dict[str, str] = {}
        for each in spot.all("properties", "include-properties", "property"):
            if each.tag == "property":
                found[prefix + each.get("key")] = each.get("value") or each.text.strip()
            elif each.tag == "properties":
                found |= self._properties(each, f"{prefix}{each.get('name')}.")
            else:
                root = self._included(each, "props")
                if root is not None:
                    self._including.append(each.get("href"))
                    found |= self._properties(root, prefix)
                    self._including.pop()
        return found

    def _by_name(self, what: str, items: Sequence[NamedT]) -> dict[str, NamedT]:
        named: dict[str, NamedT] = {}
        for item in items:
            if item.name in named:
                line = named[item.name].spot.element.line
                self.report(
                    item.spot.problem(
                        f"there are two {what}s named {item.name!r}; the other is in line {line}"
                    )
                )
            named[item.name] = item
        return named
