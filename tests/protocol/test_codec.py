"""Messages come back from bytes as they were; whatever else the bytes are is one clear error."""

from __future__ import annotations

import gc
import tracemalloc
import types
from contextlib import suppress
from enum import Enum
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Meta
from msgspec.structs import replace

from gspc_trio.components.job.messages import ApplicationCall
from gspc_trio.components.rm.messages import Demand, Grant, Interrupt, Recall, Release
from gspc_trio.components.rts.messages import (
    Bootstrap,
    BootstrapReport,
    Explain,
    GetStatus,
    HostToResource,
    RegisterJob,
)
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.components.wire.registry import WIRE_TYPES
from gspc_trio.components.worker.messages import Finished, Submission, Submit
from gspc_trio.core.messages import Done
from gspc_trio.core.task import (
    CORE,
    Outcome,
    Reason,
    Requirement,
    Shape,
    TaskError,
    TaskOptions,
    TaskState,
)
from gspc_trio.protocol.codec import READ_AGAIN_BYTES_MAX, DecodeError, EncodeError
from gspc_trio.protocol.envelope import Beat, Call, Failure, Reply
from gspc_trio.protocol.hooks import NUMBER_MAX, class_writer, make_converter
from gspc_trio.protocol.limits import Limits
from gspc_trio.records.facts import RECORD_TYPES, Record, TaskChanged
from gspc_trio.records.messages import RecordBatch

LIMITS = Limits(
    message_bytes_max=64 * 1024,
    frame_bytes_gather=1024,
    array_items_max=2000,
    map_items_max=100,
    frame_items_max=20,
)
CODEC = wire_codec(limits=LIMITS)
NUMBERS = {kind: number for number, kind in enumerate(WIRE_TYPES)}

# Whatever a type allows ----

INTEGERS = st.integers(min_value=-NUMBER_MAX, max_value=NUMBER_MAX)
FLOATS = st.floats(-NUMBER_MAX, NUMBER_MAX)
TEXTS = st.text(st.characters(), max_size=6)  # surrogates too: file names that are not UTF-8
LEAVES: dict[Any, st.SearchStrategy[Any]] = {
    int: INTEGERS,
    str: TEXTS,
    bytes: st.binary(max_size=6),
    bool: st.booleans(),
    float: FLOATS,
    type(None): st.none(),
}


def _allowed(kind: Any, said: Meta) -> st.SearchStrategy[Any]:
    """Return a strategy for the values of a kind within what is said of them."""
    if said.min_length is not None:
        return instances(kind).filter(lambda value: len(value) >= said.min_length)
    low = -NUMBER_MAX if said.ge is None else said.ge
    high = NUMBER_MAX if said.le is None else said.le
    return st.floats(low, high) if kind is float else st.integers(low, high)


def instances(kind: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for the values that a type annotation allows."""
    if kind in LEAVES:
        return LEAVES[kind]
    arguments = get_args(kind)
    origin = get_origin(kind)
    if origin is Annotated:
        return _allowed(arguments[0], arguments[1])
    if origin in (Union, types.UnionType):
        return st.one_of([instances(member) for member in arguments])
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(instances(arguments[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(instances, arguments))
    if origin is frozenset:
        return st.frozensets(instances(arguments[0]), max_size=2)
    if origin is dict:
        return st.dictionaries(instances(arguments[0]), instances(arguments[1]), max_size=2)
    if issubclass(kind, Enum):
        return st.sampled_from(list(kind))
    hints = get_type_hints(kind, include_extras=True)
    fields = {name: instances(hints[name]) for name in kind.__match_args__}
    if kind is Requirement:  # which checks itself
        fields["patience_s"] = st.none() | st.floats(0, NUMBER_MAX)
        fields["features"] = st.lists(st.sampled_from(["avx2", "rack:a"]), max_size=2, unique=True).map(tuple)
    return st.builds(kind, *fields.values())


MESSAGES = {kind: instances(kind) for kind in WIRE_TYPES}


@pytest.mark.parametrize("kind", WIRE_TYPES, ids=lambda kind: kind.__name__)
@settings(max_examples=8)
@given(data=st.data())
def test_every_message_comes_back_as_it_was(kind: type, data: st.DataObject) -> None:
    message = data.draw(MESSAGES[kind])
    assert CODEC.decode_batch(CODEC.encode_batch([message])) == [message]


@pytest.mark.parametrize(
    "kind",
    [
        *(Submit, Submission, Finished, Outcome, TaskOptions, Shape),
        *(Demand, Grant, Release),
    ],
    ids=lambda k: k.__name__,
)
@settings(max_examples=10)
@given(data=st.data())
def test_the_hooks_by_hand_read_what_the_general_ones_write(kind: type, data: st.DataObject) -> None:
    general = make_converter({Record: RECORD_TYPES})
    by_hand = CODEC.converter
    message = data.draw(instances(kind))
    written = msgpack.unpackb(
        msgpack.packb(class_writer(kind, general)(message), unicode_errors="surrogatepass"),
        use_list=False,
        unicode_errors="surrogatepass",
    )
    assert by_hand.structure(written, kind) == message
    again = msgpack.unpackb(
        msgpack.packb(by_hand.unstructure(message, kind), unicode_errors="surrogatepass"),
        use_list=False,
        unicode_errors="surrogatepass",
    )
    assert general.structure(again, kind) == message


def test_envelopes_travel_among_messages_in_order() -> None:
    batch = [
        Done(),
        Call(7, GetStatus()),
        Reply(3, BootstrapReport({"h1": "r1"}, {})),
        Failure(4, "ValueError", "no such host"),
        Beat(),
        Interrupt("j1"),
    ]
    assert CODEC.decode_batch(CODEC.encode_batch(batch)) == batch


def test_an_encoded_message_is_the_body_of_any_call() -> None:
    body = CODEC.encode(GetStatus())
    assert CODEC.encode_item(Call(1, body)) == CODEC.encode_item(Call(1, GetStatus()))


def test_defaults_cost_no_bytes() -> None:
    short = CODEC.encode(Submit("j1", (1, 2), ("r1.core0",), (Submission(1, 1, 0),)))
    shape = CODEC.encode(Demand("j1", CORE, 1, (0, 0)))
    assert msgpack.unpackb(shape.data) == [NUMBERS[Demand], "j1", [], 1, [0, 0]]
    assert len(short.data) <= 25


def test_a_whole_number_will_do_for_a_float() -> None:
    entry = RegisterJob("wordcount", 1, "here", weight=2)
    assert CODEC.decode_batch(CODEC.encode_batch([entry])) == [entry]


def test_states_and_reasons_come_back_as_what_they_are() -> None:
    records = RecordBatch((TaskChanged(1.0, "j1", 1, TaskState.FAILED),))
    finished = [
        Finished("j1", "c", (Outcome(1, 1, Reason.LOST),)),
        Finished("j1", "c", (Outcome(1, 1, Reason.FAILED, error=TaskError("E", "m")),)),
    ]
    batch = CODEC.decode_batch(CODEC.encode_batch([records, *finished]))
    assert type(batch[0].records[0].state) is TaskState
    assert [type(message.outcomes[0].reason) for message in batch[1:]] == [Reason, Reason]


# What must not be sent ----


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (object(), "object is not a message"),
        (CORE, "Shape is not a message"),
        (ApplicationCall("f", object()), "cannot be encoded"),  # type: ignore[arg-type]
        (Release("j1", (1, 2**70)), "cannot be encoded"),
        (Recall("j", ((1, 1),) * 2001), "Recall is too large: .*2001"),
        (
            Finished("j", "c", (Outcome(1, 1, Reason.FINISHED, ((b"",) * 2001,)),)),
            "Finished is too large",
        ),
        (HostToResource({str(number): () for number in range(101)}), "too large: .*101"),
        (ApplicationCall("f", bytes(65 * 1024)), "65536 are allowed: pass large data by file"),
    ],
)
def test_what_cannot_travel_is_refused_where_it_is_sent(message: Any, says: str) -> None:
    with pytest.raises(EncodeError, match=says):
        CODEC.encode(message)
    # and leaves nothing behind
    assert CODEC.decode_batch(CODEC.encode_batch([Done()])) == [Done()]


def test_a_question_with_a_field_of_a_wrong_type_is_refused_where_it_is_asked() -> None:
    with pytest.raises(EncodeError, match=r"^Explain cannot be sent: Explain.job: not str but int$"):
        CODEC.encode_question(Explain(3))  # type: ignore[arg-type]
    for question in (Explain("j1"), ApplicationCall("f", bytes(READ_AGAIN_BYTES_MAX))):
        assert CODEC.encode_question(question) == CODEC.encode(question)


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (
            Finished("j", "c", (Outcome(1, 1, Reason.FINISHED, ((b"",), (bytes(64 * 1024),))),)),
            "a result of 65536 bytes, 64512 can travel with a task: return less, write it to a file and .*",
        ),
        (
            Finished("j", "c", (Outcome(1, 1, Reason.FINISHED, ((b"", bytes(64 * 1024)),)),)),
            r"2 results of 65536 bytes, 64512 .*: take fewer items in a task \(batch=\), return less",
        ),
        (
            Submit("j", (1, 1), ("c",), (Submission(1, 1, 0, (bytes(64 * 1024), b"")),)),
            "arguments of 65536 bytes, 64512 can travel with a task: pass less, .* or keep it in a memory",
        ),
    ],
)
def test_a_task_that_is_too_large_is_refused_before_it_is_copied(message: Any, says: str) -> None:
    codec = wire_codec(limits=LIMITS)
    codec._packer = None  # type: ignore[assignment]
    with pytest.raises(EncodeError, match=says):
        codec.encode(message)


# What must not get in ----


def frame_of(kind: type, *fields: Any) -> bytes:
    packed: bytes = msgpack.packb([[NUMBERS[kind], *fields]])
    return packed


SUBMISSION = [1, 1, 0, [b"x"]]
OUTCOME = [1, 1, "finished", [[b"x"]], None, b"", b"", 0.0, 0.5]


def changed(fields: list[Any], place: int, value: Any) -> list[Any]:
    return [*fields[:place], value, *fields[place + 1 :]]


@pytest.mark.parametrize(
    "frame",
    [
        *[frame_of(Submit, "j", [1, 2], ["c"], [changed(SUBMISSION, place, {})]) for place in range(4)],
        frame_of(Submit, "j", [1, 2], ["c"], [changed(SUBMISSION, 0, True)]),
        frame_of(Submit, "j", [1, 2], ["c"], [changed(SUBMISSION, 3, ["text"])]),
        frame_of(Submit, "j", [1, 2], ["c"], [[*SUBMISSION, ["many"]]]),
        frame_of(Submit, "j", [1, 2], ["c"], [[1, 1]]),
        frame_of(Submit, "j", [1, 2], ["c"], [SUBMISSION], 5),
        frame_of(Submit, "j", [1, 2], [b"c"], [SUBMISSION]),
        frame_of(Submit, "j", [1, 2, 3], ["c"], [SUBMISSION]),
        frame_of(Submit, "j", [1, "2"], ["c"], [SUBMISSION]),
        frame_of(Submit, "j", [1, 2], ["c"], {}),
        frame_of(Submit, "j", [1, 2], ["c"]),
        *[frame_of(Finished, "j", "c", [changed(OUTCOME, place, {1: 2})]) for place in range(9)],
        frame_of(Finished, "j", "c", [changed(OUTCOME, 2, "happy")]),
        frame_of(Finished, "j", "c", [changed(OUTCOME, 3, [b"x"])]),
        frame_of(Finished, "j", "c", [changed(OUTCOME, 3, [["x"]])]),
        frame_of(Finished, "j", "c", [changed(OUTCOME, 4, ["kind", 3])]),
        frame_of(Finished, "j", b"c", []),
        frame_of(Demand, "j", [[["core", [], 1]]], 1, [0, 0]),
        frame_of(Demand, "j", [], 1.0, [0, 0]),
        frame_of(Demand, "j", [], True, [0, 0]),
        frame_of(Demand, "j", [], 1, [0, 0.0]),
        frame_of(Demand, b"j", [], 1, [0, 0]),
        frame_of(Demand, "j", {}, 1, [0, 0]),
        frame_of(Demand, "j", [], 1),
        frame_of(Release, "j", [1, 2, 3]),
        frame_of(Release, "j", "12"),
        frame_of(Release, 1, [1, 2]),
        frame_of(Release, "j", [1, 2], ["c", 1]),
        frame_of(Release, "j", [1, 2], [], 1),
        frame_of(Grant, "j", [], [1, True], ["c"]),
        frame_of(Grant, "j", [], [1, 2], ["c", b"d"]),
        frame_of(Grant, "j", [], [1, 2], "c"),
        frame_of(Grant, "j", [[["core", 5]]], [1, 2], ["c"]),
        frame_of(Grant, "j", [], [1, 2], ["c"], [["m", "0"]]),
        msgpack.packb([[-1, 1, [-4]]]),
        msgpack.packb([[-1, 1, []]]),
        msgpack.packb([[True, 1]]),
        frame_of(RecordBatch, [[2, 1.0, "j", 1, "asleep"]]),
        frame_of(RecordBatch, [[99, 1.0]]),
        frame_of(RecordBatch, [[-1, 1.0]]),
        frame_of(Done, 1),
        msgpack.packb([[len(NUMBERS)]]),
        msgpack.packb([[-9]]),
        msgpack.packb([[1.0]]),
        msgpack.packb([[None]]),
        msgpack.packb([[]]),
        msgpack.packb([5]),
        msgpack.packb([[-1, 1]]),
        msgpack.packb([[-1, "1", [25]]]),
        msgpack.packb([[-2, 1, [-1, 1, [25]]]]),
        msgpack.packb([[-3, 1, "kind"]]),
        msgpack.packb([[-4, 1]]),
        msgpack.packb({"a": 1}),
        msgpack.packb([[NUMBERS[ApplicationCall], "f", msgpack.Timestamp(1)]]),
        msgpack.packb([[NUMBERS[ApplicationCall], "f", msgpack.ExtType(5, b"x")]]),
        b"",
        b"\xc1",
        b"\x91" * 5000 + b"\x00",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        msgpack.packb([[25]] * (LIMITS.frame_items_max + 1)),
        frame_of(Recall, "j", [[1, 1]] * (LIMITS.array_items_max + 1)),
        frame_of(Bootstrap, [], "local", 0, {str(i): "" for i in range(LIMITS.map_items_max + 1)}),
        bytes(LIMITS.frame_bytes_max + 1),
        CODEC.encode_batch([Done()]) + b"\x00",
    ],
    ids=lambda frame: frame[:16].hex(),
)
def test_a_hostile_frame_is_one_clear_error(frame: bytes) -> None:
    with pytest.raises(DecodeError) as caught:
        CODEC.decode_batch(frame)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 300


def test_the_error_names_the_field() -> None:
    with pytest.raises(DecodeError, match=r"Demand\.credit: not int but str"):
        CODEC.decode_batch(frame_of(Demand, "j", [], "3", [0, 0]))


def test_text_longer_than_allowed_is_refused() -> None:
    codec = wire_codec(limits=Limits(string_bytes_max=10))
    with pytest.raises(DecodeError):
        codec.decode_batch(frame_of(Interrupt, "j" * 11))
    assert codec.decode_batch(frame_of(Interrupt, "j" * 10)) == [Interrupt("j" * 10)]


def test_a_value_that_equals_another_of_a_wrong_type_is_not_let_in_by_the_cache() -> None:
    right = frame_of(Demand, "j", [[["core", [], True]], 1], 1, [0, 0])
    wrong = frame_of(Demand, "j", [[["core", [], 1]], True], 1, [0, 0])
    shape = Shape((Requirement(hard=True),), 1)
    assert CODEC.decode_batch(right) == [Demand("j", shape, 1, (0, 0))]
    # Equal keys find the value that was read properly before: whatever comes out has the right types.
    try:
        (demand,) = CODEC.decode_batch(wrong)
    except DecodeError:
        return
    assert type(demand.shape.memory_bytes) is int
    assert type(demand.shape.requirements[0].hard) is bool


def test_a_patience_that_is_no_time_is_refused() -> None:
    frame = frame_of(Demand, "j", [[["core", [], False, 1.5]]], 1, [0, 0])
    shape = Shape((Requirement(patience_s=1.5),))
    assert CODEC.decode_batch(frame) == [Demand("j", shape, 1, (0, 0))]
    for patience_s in (-1.0, float("nan"), float("inf"), "1"):
        with pytest.raises(DecodeError):
            CODEC.decode_batch(frame_of(Demand, "j", [[["core", [], False, patience_s]]], 1, [0, 0]))


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_random_bytes_never_do_worse_than_an_error(data: bytes) -> None:
    for frame in (data, b"\x91" + data, b"\x91\x92\x0e" + data):
        with suppress(DecodeError):
            CODEC.decode_batch(frame)


SAMPLE = CODEC.encode_batch(
    [
        Submit("j1", (1, 2), ("r1.core0",), (Submission(1, 1, 0, (b"abc",), TaskOptions(2)),)),
        Finished("j1", "r1.core0", (Outcome(1, 1, Reason.FAILED, error=TaskError("E", "m", "t", b"p")),)),
        RecordBatch((TaskChanged(1.0, "j1", 1, TaskState.READY),)),
        Call(1, GetStatus()),
    ]
)


@settings(max_examples=300)
@given(st.integers(0, len(SAMPLE) - 1), st.integers(0, 255))
def test_a_frame_with_a_flipped_byte_has_well_typed_messages_or_is_an_error(place: int, value: int) -> None:
    frame = SAMPLE[:place] + bytes((value,)) + SAMPLE[place + 1 :]
    try:
        batch = CODEC.decode_batch(frame)
    except DecodeError:
        return
    assert CODEC.decode_batch(CODEC.encode_batch(batch)) == batch


@given(st.integers(0, len(SAMPLE) - 1))
@settings(max_examples=60)
def test_a_truncated_frame_is_an_error(length: int) -> None:
    with pytest.raises(DecodeError):
        CODEC.decode_batch(SAMPLE[:length])


def test_a_long_message_leaves_no_memory_behind() -> None:
    codec = wire_codec()
    codec.encode(Interrupt(""))
    tracemalloc.start()
    try:
        for _ in range(2):
            codec.encode(Interrupt("x" * 8 * 2**20))
        gc.collect()
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 2**20


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), -float("inf"), 1e300, 2 * NUMBER_MAX, 2**64 - 1]
)
@pytest.mark.parametrize("place", [0, 7])
def test_numbers_that_no_sum_could_carry_are_neither_sent_nor_taken(value: float, place: int) -> None:
    record = TaskChanged(0.0, "j1", 1, TaskState.READY, 0, "work", "", "", 0.0)
    name = TaskChanged.__struct_fields__[0 if place == 0 else 8]
    wrong = RecordBatch((replace(record, **{name: value}),))
    with pytest.raises(EncodeError, match="no finite number"):
        CODEC.encode(wrong)
    fields = [0.0, "j1", 1, "ready", 0, "work", "", "", 0.0]
    fields[0 if place == 0 else 8] = value
    kind = RECORD_TYPES.index(TaskChanged)
    frame = msgpack.packb([[NUMBERS[RecordBatch], [[kind, *fields]]]])
    with pytest.raises(DecodeError, match="no finite number"):
        CODEC.decode_batch(frame)


@pytest.mark.parametrize(
    ("kind", "fields", "what"),
    [
        (RecordBatch, [[[7, 0.0, "j1", {"bogus": 1}]]], "no TaskState is 'bogus'"),
        (RecordBatch, [[[7, 0.0, "j1", {"ready": -1}]]], "-1 is not within 0"),
        (Submit, ["j1", [1, 1], [], []], "there must be 1 or more"),
        (Demand, ["j1", [[]], 1, [0, 0]], "there must be 1 or more"),
        (Demand, ["j1", [], -1, [0, 0]], "-1 is not within 0"),
        (Demand, ["j1", [], 1, [0, -1]], "-1 is not within 0"),
        (Release, ["j1", [1, 2**60]], "larger than any number may be"),
    ],
)
def test_what_a_type_states_of_its_values_is_checked(kind: type, fields: list[Any], what: str) -> None:
    with pytest.raises(DecodeError, match=what):
        CODEC.decode_batch(msgpack.packb([[NUMBERS[kind], *fields]]))
