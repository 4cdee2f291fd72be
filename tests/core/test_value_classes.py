"""Classes of values are what attrs would make."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from gspc_trio.core.exchange import Grant
from gspc_trio.core.task import CORE
from gspc_trio.core.value import frozen, maker


def made_by(make: Any) -> Any:
    fields = {"token": attrs.field(default=b"", repr=False), "note": attrs.field(default="", eq=False)}
    kinds = {"number": int, "token": bytes, "note": str}
    return make(type("Told", (), {"__annotations__": kinds, **fields}))


OURS, THEIRS = made_by(frozen), made_by(attrs.frozen)


@pytest.mark.parametrize("cls", [OURS, THEIRS])
def test_a_value_is_equal_to_one_of_its_class_with_the_same_fields(cls: Any) -> None:
    assert cls(1, b"t", "a") == cls(1, b"t", "b")
    assert cls(1) != cls(2)
    assert cls(1, b"t") != cls(1)
    assert cls(1) != (OURS if cls is THEIRS else THEIRS)(1)
    assert len({cls(1), cls(1, note="other"), cls(2)}) == 2
    assert repr(cls(1, b"secret", "n")) == "Told(number=1, note='n')"


def test_a_value_cannot_be_changed() -> None:
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        OURS(1).number = 2
    assert attrs.evolve(OURS(1), number=2) == OURS(2)


def test_a_maker_makes_what_the_class_makes() -> None:
    make = maker(Grant)
    assert make("j1", CORE, (1, 2), ("r1.core0",)) == Grant("j1", CORE, (1, 2), ("r1.core0",))
    whole = make("j1", CORE, (1, 2), ("r1.core0",), memories=(("r1.node", 64),))
    assert whole == Grant("j1", CORE, (1, 2), ("r1.core0",), (("r1.node", 64),))
    assert type(whole) is Grant
    with pytest.raises(TypeError):
        make("j1")  # type: ignore[call-arg]
