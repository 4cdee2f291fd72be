"""Memory of modules: buffers, what is fetched before a call, and what is stored after it."""

from __future__ import annotations

import pickle
from contextvars import copy_context
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gspc_trio.core.published import NoNamedData, offer
from gspc_trio.workflow.formats.format import ForeignWorkflow
from gspc_trio.workflow.formats.in_tasks.native import address_of
from gspc_trio.workflow.formats.xpnet.memory import MemoryTask, aligned
from gspc_trio.workflow.formats.xpnet.modules import ModuleError
from tests.workflow.formats.support import run_to_end
from tests.workflow.formats.xpnet.nets import net, place
from tests.workflow.formats.xpnet.test_module_nets import OUT, problems, read, with_module

EXAMPLE = Path(__file__).parents[4] / "examples" / "xpnet" / "upper.xpnet"


class Layer:
    """Published data, as a task has it."""

    def __init__(self, **data: bytes) -> None:
        self.data = {name: bytearray(content) for name, content in data.items()}
        self.asked: list[tuple[object, ...]] = []

    def publish(self, name: str, value: object, copies: int = 1) -> None:
        raise NotImplementedError

    def read_published(self, name: str) -> object:
        raise NotImplementedError

    def map_range(self, name: str, offset: int, size_bytes: int) -> memoryview:
        self.asked.append(("get", name, offset, size_bytes))
        return memoryview(self.data[name][offset : offset + size_bytes])

    def put_range(self, name: str, offset: int, pieces: list[memoryview]) -> None:
        content = b"".join(pieces)
        self.asked.append(("put", name, offset, len(content)))
        self.data[name][offset : offset + len(content)] = content


def buffer(name: str = "x", size: str = "8UL", more: str = "", flags: str = "") -> str:
    return f'<memory-buffer name="{name}" {flags}><size>{size}</size>{more}</memory-buffer>'


def there(offset: int | str, size: int | str, name: str = "data") -> str:
    return f'Struct [handle := "{name}", offset := {offset}, size := {size}]'


def here(offset: int | str, size: int | str, name: str = "x") -> str:
    return f'Struct [buffer := "{name}", offset := {offset}, size := {size}]'


def transfer(kind: str, outside: str, inside: str, flags: str = "") -> str:
    return f"<memory-{kind} {flags}><global>{outside}</global><local>{inside}</local></memory-{kind}>"


def workflow(*more: str, arguments: str = "a, b, x") -> ForeignWorkflow:
    """A net with a module ``add``, which gets a buffer."""
    text = with_module(f'<module name="m" function="c add ({arguments})"/>', more="".join(more))
    names = arguments.split(", ")
    return read(text, {"add": lambda **given: work(*[given[name] for name in names])})


def work(a: int, b: int, x: memoryview) -> int:
    """Say how many bytes of a buffer are not 0, and write into it where that is allowed."""
    found = sum(byte != 0 for byte in x)
    if not x.readonly and len(x):
        x[0] = a * 10 + b
    return found


def task_of(foreign: ForeignWorkflow) -> MemoryTask:
    run = foreign.net.transitions["add"].run
    assert isinstance(run, MemoryTask)
    return run


def called(layer: Layer, *more: str) -> dict[str, object]:
    return task_of(workflow(*more)).called([2, 3], layer.map_range, layer.put_range)


def test_a_buffer_is_memory_for_one_call() -> None:
    assert called(Layer(), buffer()) == {"c": 0}
    assert called(Layer(), buffer(size="0UL")) == {"c": 0}


def test_ranges_are_fetched_before_and_stored_after() -> None:
    layer = Layer(data=b"abcdefgh", other=b"--------")
    outside = f"List ({there(1, 3)}, {there(7, 1)})"
    more = transfer("get", outside, here(2, 4)), transfer("put", there(0, 4, "other"), here(0, 4))
    assert called(layer, buffer(), *more) == {"c": 4}
    assert layer.data["other"] == b"\x17\0bc----"
    assert layer.asked == [("get", "data", 1, 3), ("get", "data", 7, 1), ("put", "other", 0, 4)]


def test_one_range_can_be_fetched_and_stored() -> None:
    layer = Layer(data=b"abcdefgh")
    assert called(layer, buffer(), transfer("getput", there("0UL", "${a} + 2"), here(0, "4UL"))) == {"c": 4}
    assert layer.data["data"] == b"\x17bcdefgh"


def test_what_is_read_only_is_the_range_itself() -> None:
    layer = Layer(data=bytes(4096) + b"abcdefgh")
    flags = 'read-only="true"'
    assert called(layer, buffer(flags=flags), transfer("get", there(4097, 7), here(1, 7))) == {"c": 7}
    seen: list[memoryview] = []
    run = task_of(workflow(buffer(flags=flags), transfer("get", there(4096, 8), here(0, 8))))
    views: list[memoryview] = []

    def get(name: str, offset: int, size_bytes: int) -> memoryview:
        views.append(layer.map_range(name, offset, size_bytes))
        return views[-1]

    native = MemoryTask("m", lambda *given: seen.append(given[2]) or {"c": 1}, run.inputs, run.memory, True)
    native.called([2, 3], get, layer.put_range)
    assert seen[0] is views[0]  # a pointer to it is no copy
    in_python = MemoryTask("m", lambda *given: given[2].__setitem__(0, 1), run.inputs, run.memory)
    with pytest.raises(TypeError):
        in_python.called([2, 3], get, layer.put_range)


def test_ranges_of_a_put_are_those_after_the_call_or_before() -> None:
    ranges = there("${c}", 1), here(0, 1)
    layer = Layer(data=bytes(10))
    called(layer, buffer(), transfer("put", *ranges))
    assert layer.asked == [("put", "data", 0, 1)]
    early = transfer("put", there("${a}", 1), here(0, 1), 'not-modified-in-module-call="true"')
    called(layer, buffer(), early)
    assert layer.asked[1:] == [("put", "data", 2, 1)]
    flags = 'not-modified-in-module-call="true"'
    (problem,) = problems(with_module(more=buffer() + transfer("put", *ranges, flags)), {"add": work})
    assert "${c} has no value here" in problem


def test_empty_ranges_have_to_be_allowed() -> None:
    allowed = 'allow-empty-ranges="true"'
    layer = Layer()
    assert called(layer, buffer(), transfer("getput", "List ()", here(0, 0), allowed)) == {"c": 0}
    assert layer.asked == []
    with pytest.raises(ModuleError, match='a range is empty: allow that by allow-empty-ranges="true"'):
        called(layer, buffer(), transfer("get", there(0, 0), here(0, 0)))


@pytest.mark.parametrize(
    ("outside", "inside", "message"),
    [
        (there(0, 8), here(1, 8), "the buffer 'x' has 8 bytes, and 8 at offset 1 are wanted"),
        (there(0, 8), here(0, 8, "z"), "there is no buffer 'z'; the buffers are: x"),
        (there(0, 8), here(0, 7), "ranges of 8 bytes of the memory layer do not go with 7 bytes of buffers"),
        (there(-1, 8), here(0, 8), "the offset of a range is -1: a whole number of bytes, 0 or more"),
        ("List (5)", here(0, 8), "a range is a struct with handle, offset and size, and this is 5"),
        (here(0, 8), here(0, 8), "with handle, offset and size, and this has buffer, offset, size"),
        (
            there(0, 8).replace('"data"', "7"),
            here(0, 8),
            "a handle is a name, or a struct with one, and this is 7",
        ),
    ],
)
def test_ranges_that_make_no_sense_are_told(outside: str, inside: str, message: str) -> None:
    with pytest.raises(ModuleError) as caught:
        called(Layer(data=bytes(8)), buffer(), transfer("get", outside, inside))
    assert str(caught.value).startswith("module m, <memory-get> (net.xpnet:4): ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (transfer("get", there(0, 1), here(0, 1)), "<memory-get> needs a <memory-buffer> beside it"),
        (
            buffer() + transfer("get", "1", here(0, 1)),
            "ranges are a struct or a list of them: this is of type int",
        ),
        (buffer("a"), "the buffer 'a' has the name of a port or of another one"),
        (buffer(size="${nix}"), "${nix} has no value here"),
        (buffer(more="<alignment>1.5</alignment>"), "an alignment is a whole number: this is of type double"),
    ],
)
def test_what_is_wrong_with_memory_is_a_problem_of_the_file(more: str, problem: str) -> None:
    told = problems(with_module(more=more), {"add": work})
    assert any(problem in one for one in told), told


def test_alignments_hold() -> None:
    for alignment in (1, 64, 4096, 3 * 4096):
        for size in (1, 100_000):
            assert address_of(aligned(size, alignment)) % alignment == 0
    seen: list[int] = []
    run = task_of(workflow(buffer(more="<alignment>65536</alignment>", flags='read-only="true"')))
    native = MemoryTask(
        "m", lambda *given: seen.append(address_of(given[2])) or {}, run.inputs, run.memory, True
    )
    native.called([2, 3], Layer().map_range, Layer().put_range)
    assert seen[0] % 65536 == 0
    with pytest.raises(ModuleError, match="the alignment of the buffer 'x' is 0: 1 to"):
        called(Layer(), buffer(more="<alignment>0</alignment>"))


SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=4)


@given(SIZES, SIZES)
@settings(max_examples=60)
def test_ranges_are_copied_as_if_they_stood_one_after_another(there_: list[int], here_: list[int]) -> None:
    size = min(sum(there_), sum(here_))
    outside, inside = cut(there_, size), cut(here_, size)
    layer = Layer(data=bytes(range(1, 100)))
    expected, spots = b"", []
    for number, one_size in enumerate(outside):
        spots.append(there(number * 10, one_size))
        expected += layer.data["data"][number * 10 : number * 10 + one_size]
    copied = [here(number * 6, one_size) for number, one_size in enumerate(inside)]
    seen: list[bytes] = []
    more = transfer("get", f"List ({', '.join(spots)})", f"List ({', '.join(copied)})")
    run = task_of(workflow(buffer(size="40"), more))
    watching = MemoryTask("m", lambda *given: seen.append(bytes(given[2])) or {}, run.inputs, run.memory)
    watching.called([2, 3], layer.map_range, layer.put_range)
    at = 0
    for number, one_size in enumerate(inside):
        assert seen[0][number * 6 : number * 6 + one_size] == expected[at : at + one_size]
        at += one_size
    assert sum(byte != 0 for byte in seen[0]) == size


def cut(sizes: list[int], total: int) -> list[int]:
    """Return sizes that are so much altogether."""
    found = []
    for size in sizes:
        if total:
            found.append(min(size, total))
            total -= found[-1]
    return found


def test_a_task_with_memory_can_be_sent_and_is_not_kept_in_a_cache() -> None:
    code = '<module name="m" function="c add (a, x)"><code>x[:] = b"z"\nreturn a</code></module>'
    python = '<properties name="gspc-trio"><property key="language">python</property></properties>'
    more = buffer(size="1") + transfer("put", there("${c}", 1), here(0, 1))
    foreign = read(with_module(code, properties=python, more=more))
    run = pickle.loads(pickle.dumps(foreign.net.transitions["add"].run))
    layer = Layer(data=b"abc")
    assert run.called([2, 3], layer.map_range, layer.put_range) == {"c": 2}
    assert layer.data["data"] == b"abz"
    assert foreign.net.transitions["add"].options.cache is False
    with pytest.raises(NoNamedData, match="gspc-jobserver run --iml"):
        run(2, 3)
    assert str(foreign.layer).endswith(
        "<memory-put> needs a memory layer: say --iml FILE (gspc-iml start makes one)"
    )
    assert read(with_module(code, properties=python, more=buffer())).layer == ""


def test_a_layer_is_needed_for_what_activities_do_as_well() -> None:
    module = '<module name="m" function="c add (a, x)"/>'
    transfers = transfer("get", there(0, 8), here(0, 8))
    inner = f"""
<defun><in name="a" type="int" place="a"/><out name="c" type="int" place="c"/><net>
  <place name="a" type="int"/><place name="c" type="int"/>
  <transition name="add">
    <defun><in name="a" type="int"/><out name="c" type="int"/>{buffer()}{transfers}{module}</defun>
    <connect-in port="a" place="a"/><connect-out port="c" place="c"/>
  </transition>
</net></defun>"""
    connected = '<connect-in port="a" place="a"/><connect-out port="c" place="c"/>'
    outer = f'<transition name="outer">{inner}{connected}</transition>'
    found = read(net(place("a", tokens=("2",)) + place("c") + outer, OUT), {"add": lambda a, x: a + len(x)})
    assert "<memory-get> needs a memory layer: say --iml" in found.layer
    assert [str(note) for note in found.notes] == [found.layer]


def test_the_example_writes_all_blocks() -> None:
    foreign = read(EXAMPLE.read_text())
    text = b"so it goes, all of it"

    def run() -> list[object]:
        layer = Layer(text=b"--" + text, capitals=bytes(30))
        offer(layer)
        ranges = f'Struct [handle := Struct [name := "{{}}"], offset := {{}}UL, size := {len(text)}UL]'
        told = [f"text={ranges.format('text', 2)}", f"target={ranges.format('capitals', 5)}", "block=6UL"]
        found = run_to_end(foreign.workflow(told))["letters"]
        assert layer.data["capitals"] == bytes(5) + text.upper() + bytes(4)
        return list(found)

    assert copy_context().run(run) == [15]
