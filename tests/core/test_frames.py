"""Where in the user's code an error came from."""

from __future__ import annotations

import inspect
import json

import pytest

from gspc_trio.core.frames import STACK_LINES_MAX, describe_crash, user_stack
from gspc_trio.protocol.values import loads

CRASH = """said before
Fatal Python error: Segmentation fault

Thread 0x00007f0000000002 (most recent call first):
  File "/a/other.py", line 9 in wait

Current thread 0x00007f0000000001 (most recent call first):
  File "/lib/ctypes/__init__.py", line 519 in string_at
  File "/home/me/tasks.py", line 3 in inner
  File "{ours}", line 100 in run
  File "<string>", line 1 in <module>

Extension modules: msgpack._cmsgpack (total: 1)
"""


def test_a_stack_begins_where_this_package_was_left() -> None:
    with pytest.raises(ValueError) as caught:
        json.loads("{'a'}")
    stack = user_stack(caught.value)
    assert stack.startswith(f'  File "{__file__}", line ')
    assert "in test_a_stack_begins_where_this_package_was_left" in stack


def test_causes_are_told_and_a_deep_stack_loses_its_middle() -> None:
    def odd(depth: int) -> int:
        return even(depth - 1)

    def even(depth: int) -> int:
        return odd(depth - 1) if depth else json.loads("{")

    def look_up() -> None:
        try:
            even(100)
        except ValueError as error:
            raise LookupError("no such thing") from error

    with pytest.raises(LookupError) as caught:
        look_up()
    lines = user_stack(caught.value).splitlines()
    [cause] = [line for line in lines if line.startswith("caused by")]
    assert cause.startswith("caused by JSONDecodeError: Expecting property name")
    assert len(lines) == STACK_LINES_MAX + 1
    assert any(line.startswith("  [... ") for line in lines)
    assert "decoder.py" in "".join(lines[-3:])


def test_an_error_of_this_package_has_no_stack_of_the_user() -> None:
    with pytest.raises(ValueError, match="no bytes") as caught:
        loads(b"")
    inside = caught.value.__traceback__.tb_next if caught.value.__traceback__ else None
    assert user_stack(caught.value.with_traceback(inside)) == ""


def test_a_crash_is_told_in_one_line() -> None:
    told = describe_crash(CRASH.format(ours=inspect.getfile(loads)))
    frames = "string_at (/lib/ctypes/__init__.py:519), called by inner (/home/me/tasks.py:3)"
    assert told == f"Segmentation fault in {frames}"
    assert describe_crash("Fatal Python error: Aborted") == "Aborted"
    assert (
        describe_crash("Fatal error: Aborted in module m (n.xpnet:3)\n") == "Aborted in module m (n.xpnet:3)"
    )
    assert describe_crash("nothing of the kind") == ""
