"""Arrays of NumPy that tasks make in shared memory."""

from __future__ import annotations

import pytest

from tests.bridges.support import run_program
from tests.e2e.support import World

pytest.importorskip("numpy")

ARRAYS = """
import os
import sys

import numpy

from gspc_trio import Executor, TaskOptions, empty

MIB = 1 << 20


def fill(number, how):
    array = empty((3, 4 * MIB // 8))
    array[:] = number
    sys.kept = [array]  # a function of the main program brings its own variables
    if how == "dies":
        os._exit(3)
    if how == "fails":
        raise ValueError("it fails")
    return {"whole": array, "view": array[1:], "beside": {"a": array[:2], "b": [number]}, "none": None}[how]


def shapes():
    lengths = numpy.array([2, 3])
    made = [empty(shape).shape for shape in (lengths.sum(), lengths, [4], (), 5)]
    for wrong in 2.5, -1, (2, -1), 10**30:
        try:
            made.append(empty(wrong))
        except (TypeError, ValueError) as error:
            made.append(type(error).__name__)
    return made


def change():
    kept = vars(sys).pop("kept", [])
    for array in kept:
        array[:] = -1  # of this process alone
    with open("/proc/self/maps") as maps:
        found = sum("rw-p" in line and "gspc-iml" in line for line in maps)
    return found


def look(value):
    while isinstance(value, dict):
        value = value["a"]
    return float(value.sum() / value.size), value.flags.writeable, value.flags.aligned, len(value)


if __name__ == "__main__":
    assert empty(3, "i2").shape == (3,)
    with Executor(1, data_bytes=40 * MIB, options=TaskOptions(loss_attempts=1)) as executor:
        for turn in range(2):
            for how in "whole", "view", "beside", "none", "fails", "dies":
                made = executor.submit(fill, turn, how)
                error = made.exception()
                print(how, type(error).__name__, executor.submit(change).result() if how != "dies" else -1)
                if error is None and how != "none":
                    print(*executor.submit(look, made).result())
        print(executor.submit(shapes).result())
        many = [executor.submit(fill, n, "whole") for n in range(5)]
        print([float(executor.submit(look, one).result()[0]) for one in many])
    for options in {"data_bytes": 0}, {"threads": True, "data_bytes": 100 * MIB}:
        with Executor(2, **options) as executor:
            print(executor.submit(look, executor.submit(fill, 7, "whole")).result())
"""

TURN = """\
whole NoneType 1
{0}.0 False True 3
view NoneType 1
{0}.0 False True 2
beside NoneType 1
{0}.0 False True 2
none NoneType 0
fails ValueError 0
dies TaskFailed -1
"""


def test_arrays_pass_without_a_copy_and_nothing_of_them_is_left(world: World) -> None:
    told = [TURN.format(turn) for turn in range(2)]
    told += ["[(5,), (2, 3), (4,), (), (5,), 'TypeError', 'ValueError', 'ValueError', 'ValueError']\n"]
    told += ["[0.0, 1.0, 2.0, 3.0, 4.0]\n", "(7.0, True, True, 3)\n", "(7.0, False, True, 3)\n"]
    assert run_program(world, ARRAYS) == "".join(told)
