"""Templates of commands, the items that fill them, and journals of what was done."""

from __future__ import annotations

import json
import shlex
import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gspc_trio.integrations.command_lists import BadHalt, DoneBefore, Entry, Halt, Items, Template, words_of


@pytest.mark.parametrize(
    ("template", "command"),
    [
        ("convert {} out/{/.}.png", "convert in/a.tar.gz out/a.tar.png"),
        ("{.} {/} {//} {#}", "in/a.tar a.tar.gz in 7"),
        ("gzip", "gzip in/a.tar.gz"),
        ("{} '{}' \"{}\" \\'{}", "in/a.tar.gz 'in/a.tar.gz' \"in/a.tar.gz\" \\'in/a.tar.gz"),
        ("{...} {?}", "{...} {?} in/a.tar.gz"),
    ],
)
def test_replacement_strings_are_those_of_gnu_parallel(template: str, command: str) -> None:
    assert Template(template).fill("in/a.tar.gz", 7) == command


@pytest.mark.parametrize(
    ("item", "filled"),
    [("a", "a a a . a"), ("/a.b", "/a /a.b a.b / a"), ("d.e/f", "d.e/f d.e/f f d.e f"), (".bashrc", None)],
)
def test_names_without_extension_or_directory(item: str, filled: str | None) -> None:
    expected = ".bashrc .bashrc .bashrc . .bashrc" if filled is None else filled
    assert Template("{.} {} {/} {//} {/.}").fill(item, 1) == expected


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1), min_size=1))
@example(["a b", "$(touch x)", "'", '"', "\\", "`id`", "\n", "*", "-n", "~", "#"])
@settings(max_examples=30)
def test_an_item_stays_one_word_in_whatever_quotes(items: list[str]) -> None:
    for template in ("x {}", "x '{}'", "x a'b {}'c"):
        for item in items:
            words = shlex.split(Template(template).fill(item, 1), comments=True)
            assert len(words) == 2
            assert item in words[1]


def test_a_shell_takes_an_item_as_it_is() -> None:
    items = ["a b", "$(touch x)", "'", '"', "\\", "`id`", "*", "~", "#", "!", "a$b"]
    script = "\n".join(Template("printf '%s\\n' {} '{}' \"{}\"").fill(item, 1) for item in items)
    printed = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
    assert printed == "".join(f"{item}\n" * 3 for item in items)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("convert a.png  b.png", ["convert", "a.png", "b.png"]),
        ("make -j 2 CC=gcc", ["make", "-j", "2", "CC=gcc"]),
        *[
            (command, None)
            for command in ("a | b", "A=1 b", "exit 3", "echo $HOME", "a 'b'", "ls *", "a ~", "")
        ],
    ],
)
def test_plain_commands_need_no_shell(command: str, words: list[str] | None) -> None:
    assert words_of(command) == words


@given(st.lists(st.binary(max_size=5), max_size=20), st.sampled_from([b"\n", b"\0"]))
@settings(max_examples=30)
def test_items_do_not_depend_on_how_they_are_read(pieces: list[bytes], end: bytes) -> None:
    items = Items(end)
    read = [item for piece in (*filter(None, pieces), b"") for item in items.read(piece)]
    whole = [item.decode(errors="surrogateescape") for item in b"".join(pieces).split(end) if item.strip()]
    assert read == whole


def test_when_to_halt() -> None:
    assert not Halt().is_due(9)
    assert [Halt.parse("soon").is_due(failures) for failures in (0, 1)] == [False, True]
    assert [Halt.parse("now,fail=3").is_due(failures) for failures in (2, 3)] == [False, True]
    for wrong in ("", "later", "now,fail=0", "soon,fail=x"):
        with pytest.raises(BadHalt, match="never, soon or now"):
            Halt.parse(wrong)


def test_what_has_succeeded_before_is_left_out_as_often_as_it_has() -> None:
    entries = [
        Entry(1, "a", 0, 0.1),
        Entry(2, "b", 1, 0.1),
        Entry(3, "a", 0, 0.1),
        Entry(4, "c\udc80", 0, 1.0),
    ]
    done = DoneBefore([*(entry.text() for entry in entries), '{"number": 5, "comm', "[]\n", "5\n"])
    assert [done.take(command) for command in ("a", "b", "c\udc80", "a", "a")] == [
        True,
        False,
        True,
        True,
        False,
    ]
    assert not DoneBefore().take("a")
    assert json.loads(entries[0].text()) == {"number": 1, "command": "a", "status": 0, "seconds": 0.1}


def test_a_list_is_not_taken_for_a_journal() -> None:
    line = Entry(1, "true", 0, 0.1).text()
    assert all(Entry.may_be(line[:end]) for end in range(len(line) + 1)), "it was killed while it wrote"
    assert not any(Entry.may_be(other) for other in ("in/a.jpg\n", '{"n": 1}\n', "garbage", "[]\n"))
