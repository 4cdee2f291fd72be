"""Large values of a job in the memory layer: shared by its tasks, opened by its user, freed by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from gspc_trio import Executor, Net
from gspc_trio.components.embed import open_rts
from gspc_trio.components.embedded_job import open_job
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.iml.data_layer import DataLayer
from gspc_trio.iml.shell.layer import join_layer
from gspc_trio.nursery.connections.network import Network
from gspc_trio.protocol.values import BadValue, decode_reference, dumps, gather, is_reference, loads, spread
from tests.components.tasks.values import (
    Array,
    describe_array,
    length_of,
    make_and_die,
    make_array,
    make_bytes,
    make_list,
    sum_of,
    total,
)
from tests.support import until

# ruff: noqa: ASYNC110 - jobs are watched from outside
pytestmark = pytest.mark.process

MIB = 1 << 20
BYTES_MIN = DataLayer("").bytes_min
HANG_S = 60.0


@pytest.fixture(scope="module")
def roomy() -> Iterator[Executor]:
    """An executor whose layer has room for whatever these tests have at one time."""
    with Executor(cores=2, data_bytes=64 * MIB) as shared:
        yield shared


@pytest.fixture(scope="module")
def narrow() -> Iterator[Executor]:
    """An executor whose layer has no room for a large value."""
    with Executor(cores=1, data_bytes=MIB) as shared:
        yield shared


def test_a_task_sees_the_buffers_of_another_where_they_lie(roomy: Executor) -> None:
    made = roomy.submit(make_array, 2 * MIB)
    described = roomy.submit(describe_array, made)
    assert described.result(HANG_S) == (2 * MIB, True, b"\xfe\xff\x00\x01", True)
    assert made.result(HANG_S).content.readonly
    assert bytes(made.result(HANG_S).content[:3]) == b"\0\1\2"


def test_any_large_value_goes_through_the_layer_and_comes_back_the_same(roomy: Executor) -> None:
    content = roomy.submit(make_bytes, MIB)
    numbers = roomy.submit(make_list, 100_000)
    assert roomy.submit(length_of, content).result(HANG_S) == MIB
    assert roomy.submit(total, numbers).result(HANG_S) == sum(range(100_000))
    assert type(content.result(HANG_S)) is bytes
    assert numbers.result(HANG_S) == list(range(100_000))


def test_what_a_layer_that_is_full_has_no_room_for_travels_with_its_task(narrow: Executor) -> None:
    made = narrow.submit(make_bytes, 2 * MIB)
    assert narrow.submit(length_of, made).result(HANG_S) == 2 * MIB
    assert len(made.result(HANG_S)) == 2 * MIB
    assert narrow.submit(length_of, b"small").result(HANG_S) == 5


def test_what_nobody_refers_to_is_freed() -> None:
    """Much more than fits goes through, because nobody keeps it."""
    with Executor(cores=1, data_bytes=8 * MIB) as executor:
        for _ in range(40):
            made = executor.submit(make_bytes, MIB)
            assert executor.submit(length_of, made).result(HANG_S) == MIB
            del made


async def test_data_of_an_attempt_that_was_lost_is_freed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gspc_trio.components.job.shell.data.SWEEP_S", 0.2)
    net = Net("lost")
    net.input("marker", [str(tmp_path / "marker")])
    for name in ("large", "other"):
        net.output(name)
    net.transition("make", make_and_die, inputs=["marker"], outputs={"large": "large", "other": "other"})
    async with open_rts(cores=1, data_bytes=64 * MIB) as rts:
        assert rts.data is not None
        async with (
            join_layer(Network(wire_codec, rts.data.token), rts.data.address) as iml,
            open_job(net, rts=rts) as job,
        ):
            await until(lambda: job.status().tasks.get("finished", 0))
            with trio.fail_after(HANG_S):
                while sorted(entry.size_bytes for entry in (await iml.status()).data) != [MIB]:
                    await trio.sleep(0.05)
            result = await job.wait()
            assert len(result.outputs["large"][0]) == MIB


def test_a_large_argument_is_data_of_the_layer_too(roomy: Executor) -> None:
    content = Array(bytes(range(256)) * 8192)
    size, readonly, some, is_shared = roomy.submit(describe_array, content).result(HANG_S)
    assert (size, readonly, some, is_shared) == (2 * MIB, True, b"\xfe\xff\0\1", True)
    assert roomy.submit(length_of, b"x" * MIB).result(HANG_S) == MIB
    assert list(roomy.map(length_of, [b"x" * MIB] * 100)) == [MIB] * 100  # more than fits at one time


def test_large_arguments_that_find_no_room_travel_with_their_tasks(narrow: Executor) -> None:
    assert narrow.submit(length_of, b"x" * (2 * MIB)).result(HANG_S) == 2 * MIB


async def test_a_workflow_passes_large_tokens_and_returns_them() -> None:
    net = Net("large")
    net.input("sizes")
    net.place("made")
    net.output("lengths")
    net.output("last")
    net.place("sized")
    net.transition("make", make_bytes, inputs=["sizes"], outputs=["made"])
    net.transition("measure", length_of, inputs=["made"], outputs=["lengths", "sized"])
    net.transition("again", make_bytes, inputs=["sized"], outputs=["last"])
    async with open_rts(cores=2, data_bytes=64 * MIB) as rts:
        async with open_job(net, rts=rts, values={"sizes": [MIB, 2 * MIB, 70_000]}) as job:
            result = await job.wait()
        assert sorted(result.outputs["lengths"]) == [70_000, MIB, 2 * MIB]
        assert sorted(map(len, result.outputs["last"])) == [70_000, MIB, 2 * MIB]
        assert rts.data is not None
        async with join_layer(Network(wire_codec, rts.data.token), rts.data.address) as iml:
            assert (await iml.status()).data == ()  # the job took its data with it


@pytest.mark.parametrize(
    "value", [b"x" * BYTES_MIN, [0] * BYTES_MIN, Array(b"y" * BYTES_MIN), {"a": b"z" * BYTES_MIN}]
)
def test_a_large_value_is_taken_apart_and_put_together(value: Any) -> None:
    parts = spread(value, BYTES_MIN)
    assert not isinstance(parts, bytes)
    reference = parts.reference("d1", "a")
    assert is_reference(reference)
    data = b"".join(parts.pieces)
    back = gather(decode_reference(reference), memoryview(data))
    assert type(back) is type(value)
    if isinstance(value, Array):
        assert bytes(back.content) == bytes(value.content)
    else:
        assert back == value
    with pytest.raises(BadValue, match="lies in a memory layer"):
        loads(reference)


async def test_a_range_is_a_value_that_a_task_sees_as_memory() -> None:
    net = Net("ranges")
    net.input("ranges")
    net.output("sums")
    net.transition("sum", sum_of, inputs=["ranges"], outputs=["sums"])
    async with open_rts(cores=2, data_bytes=64 * MIB) as rts:
        assert rts.data is not None
        async with join_layer(Network(wire_codec, rts.data.token), rts.data.address) as iml:
            data = await iml.alloc(3000, bytes([1]) * 1000 + bytes([2]) * 1000 + bytes([3]) * 1000)
            ranges = [await iml.placed(data.range(begin, 1000)) for begin in (0, 1000, 2000)]
            async with open_job(net, rts=rts, values={"ranges": ranges}) as job:
                result = await job.wait()
    assert sorted(result.outputs["sums"]) == [(1000, True), (2000, True), (3000, True)]


@pytest.mark.parametrize("value", [None, 5, b"small", [1, 2], Array(b"small"), "text"])
def test_a_small_value_travels_as_ever(value: Any) -> None:
    assert spread(value, BYTES_MIN) == dumps(value)


@pytest.mark.parametrize("size_bytes", [0, 100, BYTES_MIN, 3 * BYTES_MIN])
def test_a_view_travels_as_the_bytes_that_it_shows(size_bytes: int) -> None:
    content = bytes(range(256)) * (size_bytes // 256 + 1)
    for view in (memoryview(content)[:size_bytes], memoryview(content + content)[: 2 * size_bytes : 2]):
        parts = spread(view, BYTES_MIN)
        if isinstance(parts, bytes):
            assert parts == dumps(view) == dumps(bytes(view))
            assert loads(parts) == bytes(view)
        else:
            reference = decode_reference(parts.reference("d1", "a"))
            back = gather(reference, memoryview(b"".join(parts.pieces)))
            assert type(back) is bytes
            assert back == bytes(view)


@pytest.mark.parametrize("data", [b"\xc1\0", b"\xc1\0\xff", b"\xc1\0\x91\1"])
def test_bytes_that_are_no_reference_are_a_bad_value(data: bytes) -> None:
    with pytest.raises(BadValue):
        loads(data)
