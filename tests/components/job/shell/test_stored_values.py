"""Large values of a journal: durable in files of their own, and there again for a job that is resumed."""

from __future__ import annotations

from pathlib import Path

import pytest

from gspc_trio.components.job.journal import Outcomes, Reusable, Snapshot
from gspc_trio.components.job.shell.journal_files import JournalDirectory
from gspc_trio.components.job.shell.stored_values import StoredValues
from gspc_trio.core.task import Task
from gspc_trio.iml.errors import NoRoom
from gspc_trio.protocol.values import TrackedReference, decode_reference, dumps, is_reference, loads, spread

KEY = ("make", b"digest", ())


class Keep:
    """Stands for what keeps data in a layer."""


class Layer:
    """Values in a memory layer, as references."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}

    def put(self, view: memoryview) -> str:
        name = f"d{len(self.data)}"
        self.data[name] = bytes(view)
        return name

    def value(self, value: object) -> TrackedReference:
        parts = spread(value, 0)
        assert not isinstance(parts, bytes)
        tracked = TrackedReference(parts.reference(self.put(memoryview(b"".join(parts.pieces))), "anna"))
        tracked.reference, tracked.keep = decode_reference(tracked), Keep()
        return tracked

    def open(self, data_id: str) -> memoryview:
        return memoryview(self.data[data_id])


VALUES = [b"plain bytes", ["a", {"list": (1, 2)}], bytearray(b"an object"), {1, 2, 3}]


@pytest.mark.parametrize("value", VALUES)
def test_a_value_is_there_again_without_its_layer(tmp_path: Path, value: object) -> None:
    layer, small = Layer(), dumps(7)
    rows = StoredValues(JournalDirectory(tmp_path)).store([(1, ((layer.value(value), small),))], layer.open)
    assert [path.name for path in tmp_path.iterdir()] == ["value.000001"]
    again = StoredValues(JournalDirectory(tmp_path))
    ((_, ((stored, same),)),) = again.restored([Outcomes(tuple(rows), (KEY,))])[0].rows  # type: ignore[union-attr]
    assert (loads(stored), same) == (value, small)
    (argument,) = again.with_values(Task(1, "t", 1, (stored,))).arguments
    assert not is_reference(argument)
    assert loads(argument) == value
    new = Layer()
    again.move(new.put)
    (argument,) = again.with_values(Task(1, "t", 1, (stored,))).arguments
    assert decode_reference(argument).data_id == "d0"
    assert new.data["d0"] == layer.data["d0"]


def test_what_has_no_room_in_the_new_layer_travels_with_its_task(tmp_path: Path) -> None:
    layer = Layer()
    rows = StoredValues(JournalDirectory(tmp_path)).store([(1, ((layer.value(b"x" * 9),),))], layer.open)
    again = StoredValues(JournalDirectory(tmp_path))
    ((_, ((stored,),)),) = again.restored([Outcomes(tuple(rows))])[0].rows  # type: ignore[union-attr]

    def full(_: memoryview) -> str:
        raise NoRoom("full")

    again.move(full)
    assert loads(again.with_values(Task(1, "t", 1, (stored,))).arguments[0]) == b"x" * 9


def test_a_snapshot_refers_to_files_and_those_that_nobody_needs_go(tmp_path: Path) -> None:
    layer, disk = Layer(), JournalDirectory(tmp_path)
    stored = StoredValues(disk)
    kept, gone = layer.value(b"kept"), layer.value(b"gone")
    stored.store([(1, ((kept,),)), (2, ((gone,),))], layer.open)
    state = {"tokens": {"place": [[1, kept], [2, dumps(5)]]}}
    written = stored.written(Snapshot(state)).state["tokens"]["place"]
    assert decode_reference(written[0][1]).data_id == "journal:value.000001"
    assert written[1] == [2, dumps(5)]
    del gone
    stored.sweep()
    assert disk.values() == ["value.000001"]
    again = StoredValues(disk)
    read = again.restored([Snapshot({"tokens": {"place": written}})])[0]
    assert isinstance(read, Snapshot)
    assert loads(read.state["tokens"]["place"][0][1]) == b"kept"
    assert again.has_some
    again.sweep()
    assert disk.values() == ["value.000001"]
    del read
    again.sweep()
    assert disk.values() == []


def test_results_of_before_whose_files_have_gone_are_left_out(tmp_path: Path) -> None:
    layer, disk = Layer(), JournalDirectory(tmp_path)
    stored = StoredValues(disk)
    rows = stored.store([(1, ((layer.value(b"one"),),)), (2, ((layer.value(b"two"),),))], layer.open)
    disk.remove_value("value.000001")
    records = [Outcomes(tuple(rows), (KEY, KEY)), Reusable((rows[0][1], rows[1][1]), (KEY, KEY), True)]
    outcomes, reusable = StoredValues(disk).still_there(records)
    assert isinstance(outcomes, Outcomes)
    assert isinstance(reusable, Reusable)
    assert [task_id for task_id, _ in outcomes.rows] == [2]
    assert [loads(values[0][0]) for values in reusable.rows] == [b"two"]
    assert len(outcomes.keys) == len(reusable.keys) == 1
