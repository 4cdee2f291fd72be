"""What an xpnet file describes: functions, nets, places, transitions, as plain data with their positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct, field

from gspc_trio.workflow.formats.xpnet.vocabulary import Spot

Properties: TypeAlias = Mapping[str, str]
"""Names joined by dots -> text."""


class StructSpot(Struct, frozen=True):
    """Where a structure is written, and what names of types stand for there."""

    spot: Spot
    types: Mapping[str, str]

    @property
    def name(self) -> str:
        """As written."""
        return self.spot.get("name")


class Port(Struct, frozen=True):
    """A port of a function.

    Attributes:
        name, type: as written.
        direction: ``in``, ``out``, ``inout`` or ``tunnel``.
        place: of the function's net, "" if none is named.
        spot: where it is written.
    """

    name: str
    type: str
    direction: str
    place: str
    spot: Spot

    @property
    def is_input(self) -> bool:
        """Whether a value comes in here."""
        return self.direction in ("in", "inout")

    @property
    def is_output(self) -> bool:
        """Whether a value goes out here."""
        return self.direction in ("out", "inout")


class Text(Struct, frozen=True):
    """An expression as it is written, and where."""

    text: str
    spot: Spot


class NetPlace(Struct, frozen=True):
    """A place of a net.

    Attributes:
        name, type: as written.
        tokens: expressions of the tokens that are there at the beginning.
        virtual: it stands for a place of the net around.
        put_token: tokens may come from outside while the net runs.
        shared_sink: values whose last reference is gone come here.
        generator: there is always one token, of another value each time.
        spot: where it is written.
    """

    name: str
    type: str
    tokens: tuple[Text, ...]
    virtual: bool
    put_token: bool
    shared_sink: bool
    generator: bool
    spot: Spot


class Connection(Struct, frozen=True):
    """A connection of a port with a place.

    Attributes:
        kind: the tag without ``connect-``.
        port: of the transition's function.
        place: of the net; for a response the port whose token asked, for eureka "".
        spot: where it is written.
    """

    kind: str
    port: str
    place: str
    spot: Spot


class PlaceMap(Struct, frozen=True):
    """A place of an inner net that is a place of the net around it."""

    virtual: str
    real: str
    spot: Spot


class Module(Struct, frozen=True):
    """Code in another language.

    Attributes:
        name, function: as written.
        target: the resource class that it is for, "" for any.
        code: the body, None if there is none.
        eureka_group: expression of the group of its tasks, or None.
        includes, compiler_flags, linker_flags: as written.
        pass_context: whether the function gets the engine's own context.
        spot: where it is written.
    """

    name: str
    function: str
    target: str
    code: Text | None
    eureka_group: Text | None
    includes: tuple[str, ...]
    compiler_flags: tuple[str, ...]
    linker_flags: tuple[str, ...]
    pass_context: bool
    spot: Spot


class Modules(Struct, frozen=True):
    """A module for each of several targets, the preferred ones first."""

    targets: tuple[str, ...]
    modules: tuple[Module, ...]
    spot: Spot

    @property
    def preferred(self) -> list[Module]:
        """The modules in the order of their targets."""
        return [module for target in self.targets for module in self.modules if module.target == target]


class Buffer(Struct, frozen=True):
    """Memory that a module works on.

    Attributes:
        name: an argument of the module's function.
        size, alignment: expressions, bytes.
        read_only: whether the module leaves it as it is.
        spot: where it is written.
    """

    name: str
    size: Text
    alignment: Text | None
    read_only: bool
    spot: Spot


class Transfer(Struct, frozen=True):
    """What is copied between the memory layer and a buffer.

    Attributes:
        kind: ``get``, ``put`` or ``getput``.
        outside: expression of a range of the memory layer, or of a list of them.
        inside: expression of ranges of buffers.
        allow_empty: whether there may be nothing to copy.
        not_modified: whether the ranges of a put are those that the ports say before the call, not after it.
        spot: where it is written.
    """

    kind: str
    outside: Text
    inside: Text
    allow_empty: bool
    not_modified: bool
    spot: Spot


class Defun(Struct, eq=False):
    """A function: its ports, and what it does.

    Attributes:
        name: as written, or "".
        ports: name -> port.
        body: an expression, a module, several, or a net.
        conditions: all of them have to hold for the inputs.
        requires: resource classes.
        structs: those that it defines.
        buffers, transfers: memory of its module.
        properties: of it.
        types: what names of types stand for in it, of a template.
        spot: where it is written.
    """

    name: str
    ports: dict[str, Port]
    body: Body | None
    conditions: tuple[Text, ...]
    requires: tuple[str, ...]
    structs: tuple[StructSpot, ...]
    buffers: tuple[Buffer, ...]
    transfers: tuple[Transfer, ...]
    properties: Properties
    types: Mapping[str, str]
    spot: Spot


class NetTransition(Struct, eq=False):
    """A transition of a net.

    Attributes:
        name: as written.
        function: what it does.
        connections, place_maps: of its ports and of its function's net with the places around.
        conditions: further ones.
        priority: as written, None if it is not.
        inline: whether it is unfolded.
        requires: further resource classes.
        shared: ``produce``, ``consume`` and ``passthrough``, as far as they are said.
        properties: of it.
        spot: where it is written.
    """

    name: str
    function: Defun
    connections: tuple[Connection, ...]
    place_maps: tuple[PlaceMap, ...]
    conditions: tuple[Text, ...]
    priority: int | None
    inline: bool
    requires: tuple[str, ...]
    shared: frozenset[str]
    properties: Properties
    spot: Spot


class NetBody(Struct, eq=False):
    """A net.

    Attributes:
        places, transitions: by name.
        structs: those that are known in it.
        types: what names of types stand for in it, of a template.
        spot: where it is written.
    """

    places: dict[str, NetPlace] = field(default_factory=dict)
    transitions: dict[str, NetTransition] = field(default_factory=dict)
    structs: tuple[StructSpot, ...] = ()
    types: Mapping[str, str] = field(default_factory=dict)
    spot: Spot | None = None


Body: TypeAlias = Text | Module | Modules | NetBody
