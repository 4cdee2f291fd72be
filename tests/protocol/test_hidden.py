from __future__ import annotations

from typing import ClassVar

from msgspec.structs import replace

from gspc_trio.protocol.hidden import HidesFields


class Key(HidesFields, frozen=True):
    hidden: ClassVar[frozenset[str]] = frozenset({"secret"})

    name: str
    secret: bytes
    size: int = 0


def test_what_is_hidden_is_in_no_text_and_counts_all_the_same() -> None:
    key = Key("host", b"secret", 3)
    assert repr(key) == str(key) == "Key(name='host', size=3)"
    assert key.__rich_repr__() == [("name", "host"), ("size", 3)]
    assert key != replace(key, secret=b"another")
    assert replace(key, size=4).secret == b"secret"
