"""By what a cache finds results, and entries as bytes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gspc_trio.components.job.cache import (
    CacheCounts,
    CacheEntry,
    CacheSettings,
    Counting,
    NotCacheable,
    decode_entry,
    encode_entry,
)
from gspc_trio.components.job.cache_keys import CacheKey, CacheKeys
from gspc_trio.compute.code import function_code, program_code, source_code
from gspc_trio.core.code import Program
from gspc_trio.core.staging import FilePlan, Gather
from gspc_trio.core.task import CORE, Task, TaskOptions
from gspc_trio.protocol.values import bytes_reference, dumps


@pytest.mark.parametrize("wrong", [{"size_bytes": 0}, {"size_bytes": "1GiB"}, {"files": "date"}])
def test_settings_without_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(
        ValueError, match=f"{next(iter(wrong))} of a cache .* not {next(iter(wrong.values()))!r}"
    ):
        CacheSettings("cache", **wrong)


def double(x: int) -> int:
    return 2 * x


def triple(x: int) -> int:
    return 3 * x


class Files:
    """What each file has in it, by name."""

    def __init__(self, **texts: str) -> None:
        self.texts = texts

    def identity(self, name: str) -> bytes:
        return self.texts.get(name, "absent").encode().ljust(16)

    def plain_identity(self, name: str) -> bytes | None:
        return self.identity(name) if name in self.texts else None


def key(
    code: bytes,
    *arguments: bytes,
    files: Files | None = None,
    options: TaskOptions | None = None,
    initializer: bytes = b"",
) -> CacheKey:
    keys = CacheKeys(lambda _: code, files or Files(), initializer)
    return keys.key_of(Task(1, "work", 7, arguments, CORE, options or TaskOptions()))


def test_the_same_code_and_arguments_have_the_same_key() -> None:
    one = dumps(1)
    assert key(function_code(double), one) == key(function_code(double), one)
    different = [
        key(function_code(double), one),
        key(function_code(triple), one),
        key(function_code(double), dumps(2)),
        key(function_code(double), dumps(1.0)),
        key(function_code(double), one, one),
        key(function_code(double, ("x",)), one),
        key(function_code(lambda x: x), one),
        key(function_code(double), one, initializer=function_code(print)),
        key(source_code("a.py", "def main(x): return x"), one),
        key(source_code("a.py", "def main(x): return -x"), one),
    ]
    assert len({each.key for each in different}) == len(different)
    assert key(source_code("a.py", "def main(x): return x"), one) == key(
        source_code("b.py", "# a comment\ndef main(x): return x"), one
    )


def test_pickles_count_by_what_they_are_of() -> None:
    one, other = {"a", "b", "c"}, {"c", "b", "a"}
    first, second = (b"\xc1" + pickle.dumps(each, protocol) for each, protocol in ((one, 5), (other, 4)))
    assert first != second
    assert key(function_code(double), first) == key(function_code(double), second)


def test_functions_as_arguments_count_by_their_code() -> None:
    def made(number: int) -> Callable[[], int]:
        return lambda: number

    assert key(function_code(double), dumps(made(1))) == key(function_code(double), dumps(made(1)))
    assert key(function_code(double), dumps(made(1))) != key(function_code(double), dumps(made(2)))


def test_paths_count_with_the_file() -> None:
    data = function_code(double), dumps([Path("a.txt")])
    name = str(Path.cwd() / "a.txt")
    before = key(*data, files=Files(**{name: "one"}))
    assert before == key(*data, files=Files(**{name: "one", "b.txt": "two"}))
    assert before.key != key(*data, files=Files(**{name: "two"})).key
    assert before.read == ((name, b"one".ljust(16)),)


def test_a_program_counts_with_its_arguments_and_its_files() -> None:
    code = program_code(Program(["wc", "-l", "text"]))
    plan = FilePlan(0, (("text", "a.txt"),)).encoded()
    before = key(code, plan, files=Files(**{"a.txt": "one"}))
    assert before.key != key(code, plan, files=Files(**{"a.txt": "two"})).key
    other = program_code(Program(["wc", "-c", "text"]))
    assert before.key != key(other, plan, files=Files(**{"a.txt": "one"})).key
    script = program_code(Program(["sh", "/srv/count.sh", "text"]))
    before = key(script, plan, files=Files(**{"/srv/count.sh": "wc -l"}))
    assert before.key != key(script, plan, files=Files(**{"/srv/count.sh": "wc -c"})).key
    sets = FilePlan(0, gather=(Gather("texts/", ("a/*.txt", "b/")),)).encoded()
    known = key(code, sets, files=Files(**{"a/*.txt": "some", "b/": "others"}))
    assert [name for name, _ in known.read] == ["a/*.txt", "b/"]
    assert known.key != key(code, sets, files=Files(**{"a/*.txt": "some"})).key
    with pytest.raises(NotCacheable, match="what a program reads and writes is not known"):
        key(code)
    assert key(code, options=TaskOptions(cache=True)) == key(code, options=TaskOptions(cache=True))


@pytest.mark.parametrize(
    ("program", "script"),
    [
        (Program(["sh", "count.sh"]), "count.sh"),
        (Program(["sh", "count.sh"], working_directory="bin"), "bin/count.sh"),
        (Program(["./count.sh", "{word}"]), "count.sh"),
        (Program(["sh", "/srv/count.sh"]), "/srv/count.sh"),
    ],
)
def test_a_script_counts_by_its_content_wherever_it_lies(program: Program, script: str) -> None:
    code, options = program_code(program, ("word",)), TaskOptions(cache=True)
    path = str(Path.cwd() / script)
    texts = ("wc -l", "wc -l", "wc -c")
    first, same, edited = (
        key(code, dumps("x"), files=Files(**{path: text}), options=options) for text in texts
    )
    assert first == same
    assert first.key != edited.key
    assert [name for name, _ in first.read] == [path]


def test_a_relative_name_is_no_file_of_the_job_where_the_task_has_a_directory() -> None:
    """Of what a program makes and stores there may be an earlier version beside the job."""
    code, plan = program_code(Program(["cc", "-o", "a.out"])), FilePlan(0, (("a.c", "a.c"),)).encoded()
    stored = Files(**{str(Path.cwd() / "a.out"): "made"})
    assert key(code, plan) == key(code, plan, files=stored)


@pytest.mark.parametrize(
    ("argument", "reason"),
    [
        (bytes_reference("d1", 10, "host"), "an argument lies in a memory layer"),
        (b"\xc1not a pickle", "an argument: "),
    ],
)
def test_what_has_no_identity_has_no_key(argument: bytes, reason: str) -> None:
    with pytest.raises(NotCacheable, match=reason):
        key(function_code(double), argument)


class Live:
    """It travels, but only as itself."""

    is_there = True

    def __reduce_ex__(self, _: object) -> tuple[object, ...]:
        if not Live.is_there:
            raise TypeError("it is gone")
        return Live, ()


def test_code_that_uses_live_objects_has_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    live = Live()
    data = function_code(lambda: live)
    monkeypatch.setattr(Live, "is_there", False)
    with pytest.raises(NotCacheable, match=r"its code: .*Live cannot be told from others: it is gone"):
        key(data)


def test_counts_say_why() -> None:
    counting = Counting(found=12, kept=3)
    assert str(counting.counts()) == "12 from the cache, 3 kept"
    counting.refuse("work: an argument lies in a memory layer")
    text = "12 from the cache, 3 kept, 1 not cacheable: work: an argument lies in a memory layer"
    assert str(counting.counts()) == text
    counting.refuse("other")
    counting.refuse("other")
    assert counting.counts() == CacheCounts(
        12, 3, 3, (("other", 2), ("work: an argument lies in a memory layer", 1))
    )
    text = "3 not cacheable: other (2); work: an argument lies in a memory layer (1)"
    assert str(counting.counts()).endswith(text)


entries = st.builds(
    CacheEntry,
    st.text(),
    st.lists(st.lists(st.binary()).map(tuple)).map(tuple),
    st.lists(st.tuples(st.text(), st.binary())).map(tuple),
    st.floats(0, 1e9),
)


@given(entries, st.data())
def test_an_entry_comes_back_whole_or_not_at_all(entry: CacheEntry, data: st.DataObject) -> None:
    encoded = encode_entry(entry)
    assert decode_entry(encoded) == entry
    assert decode_entry(encoded[: data.draw(st.integers(0, len(encoded) - 1))]) is None
    place = data.draw(st.integers(0, len(encoded) - 1))
    damaged = bytearray(encoded)
    damaged[place] ^= 1
    assert decode_entry(bytes(damaged)) is None
