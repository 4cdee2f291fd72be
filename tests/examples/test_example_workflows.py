"""The examples do what they say, in real processes and through the real command."""

from __future__ import annotations

import math
import re
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.support import ROOT, World

EXAMPLES = ROOT / "examples"


def run(world: World, name: str, *settings: str) -> dict[str, Any]:
    sets = [word for setting in settings for word in ("--set", setting)]
    result: dict[str, Any] = world.run_json(
        "jobserver", "run", str(EXAMPLES / f"{name}.py"), "--cores", "2", *sets
    )
    assert result["tasks"]["failed"] == result["tasks"]["cancelled"] == 0
    assert result["elapsed_s"] > 0
    return result


def refusal(world: World, name: str, setting: str) -> str:
    """Return what an example says of a bad setting; where it does so follows."""
    done = world.run("jobserver", "run", str(EXAMPLES / f"{name}.py"), "--json", "--set", setting)
    assert done.returncode == 1
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert lines[1].startswith("  File "), done.stderr
    return lines[0]


def test_sleepers(world: World) -> None:
    result = run(world, "sleepers", "n=20", "seconds=0.001")
    assert result["outputs"] == {"results": [0.001] * 20}
    assert result["tasks"]["finished"] == 20


def test_sleepers_report(world: World) -> None:
    path = str(EXAMPLES / "sleepers.py")
    done = world.run("jobserver", "run", path, "--set", "n=3", "--set", "seconds=0.1")
    assert done.returncode == 0
    first, second = done.stdout.splitlines()
    assert first == "slept 0.3 s altogether"
    assert re.fullmatch(r"3 tasks in [\d.]+ s", second)


def test_pi_is_near_and_the_same_for_the_same_seed(world: World) -> None:
    settings = ("samples=20000", "tasks=9")
    first, again, other = (run(world, "pi", *settings, f"seed={seed}")["outputs"]["pi"] for seed in (1, 1, 2))
    assert first == again != other
    for (estimate,) in (first, other):
        assert 0 < abs(estimate - math.pi) < 1e-5


def test_pi_refuses_more_tasks_than_samples(world: World) -> None:
    assert "3 samples" in refusal(world, "pi", "samples=3")


# The picture -----------------------------------------------------------------------------------------------


def read_png(path: Path) -> tuple[int, int, list[bytes], list[tuple[int, ...]]]:
    """Return width, height, rows of pixels and palette of a picture with one byte for each pixel."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks = []
    at = 8
    while at < len(data):
        (size,) = struct.unpack_from(">I", data, at)
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        assert struct.unpack_from(">I", data, at + 8 + size) == (zlib.crc32(kind + body),)
        chunks.append((kind, body))
        at += 12 + size
    assert [kind for kind, _ in chunks] == [b"IHDR", b"PLTE", b"IDAT", b"IEND"]
    header, palette, image, end = (body for _, body in chunks)
    width, height, *rest = struct.unpack(">IIBBBBB", header)
    assert rest == [8, 3, 0, 0, 0]
    assert end == b""
    rows = zlib.decompress(image)
    assert len(rows) == height * (width + 1)
    lines = [rows[start : start + width + 1] for start in range(0, len(rows), width + 1)]
    assert all(line[0] == 0 for line in lines)
    colours = [tuple(palette[at : at + 3]) for at in range(0, len(palette), 3)]
    return width, height, [line[1:] for line in lines], colours


def steps_to_escape(c: complex, most: int) -> int | None:
    z = 0j
    for step in range(most):
        z = z**2 + c
        if abs(z) > 2:
            return step
    return None


def test_mandelbrot_draws_the_set(world: World) -> None:
    out = world.folder / "a picture.png"
    result = run(world, "mandelbrot", "width=97", "height=61", "tile=20", "iterations=50", f"out={out}")
    assert result["outputs"] == {"file": [str(out)]}
    assert result["tasks"]["finished"] == 5 * 4 + 1
    width, height, rows, colours = read_png(out)
    assert (width, height, len(colours), colours[0]) == (97, 61, 256, (0, 0, 0))
    levels: dict[int, set[int]] = {}
    for y, row in enumerate(rows):
        for x, pixel in enumerate(row):
            c = complex(-0.65 + (x - 97 / 2) * 3.2 / 97, (61 / 2 - y) * 3.2 / 97)
            steps = steps_to_escape(c, 50)
            assert (pixel == 0) == (steps is None), (x, y)
            if steps is not None:
                levels.setdefault(steps, set()).add(pixel)
    assert all(len(pixels) == 1 for pixels in levels.values()), "as many steps, the same colour"
    in_order = [min(levels[steps]) for steps in sorted(levels)]
    assert in_order == sorted(in_order)
    assert len(in_order) > 20


def test_mandelbrot_is_the_same_in_tiles_of_any_size(world: World) -> None:
    for tile in ("7", "1000"):
        run(world, "mandelbrot", "width=40", "height=33", f"tile={tile}", "iterations=30", f"out={tile}.png")
    seven, thousand = ((world.folder / f"{tile}.png").read_bytes() for tile in ("7", "1000"))
    assert seven == thousand


@pytest.mark.parametrize("setting", ["out=no/such/folder/picture.png", "tile=0", "width=-1"])
def test_mandelbrot_refuses_bad_settings_before_it_computes(world: World, setting: str) -> None:
    assert refusal(world, "mandelbrot", setting)


# External programs -----------------------------------------------------------------------------------------


def test_programs_find_the_words_that_python_finds(world: World) -> None:
    texts = world.folder / "some texts"
    texts.mkdir()
    (texts / "it's a file.txt").write_bytes(b"The quick brown fox, the lazy dog\xff\n")
    (texts / "zwei.txt").write_text("  Fünf Füchse: THE end", encoding="utf-8")
    (texts / "empty.txt").write_bytes(b"")
    (texts / "-n.txt").write_text("dash\n")
    (texts / "other.md").write_text("not me")
    (texts / "folder.txt").mkdir()
    result = run(world, "programs", f"path={texts}", "pattern=*.txt", "folder=the words")
    expected = sorted(
        {
            word.decode().lower()
            for path in texts.glob("*.txt")
            if path.is_file()
            for word in re.findall(rb"[A-Za-z]+", path.read_bytes())
        }
    )
    assert "fox" in expected
    assert (world.folder / "the words" / "words").read_text().split("\n") == [*expected, ""]
    (count,) = result["outputs"]["count"]
    assert count.split() == [str(len(expected)), "words"]
    assert result["tasks"]["finished"] == 4 + 3
    assert [path.name for path in (world.folder / "the words").iterdir()] == ["words"], "the parts are gone"


def test_programs_without_files_say_so(world: World) -> None:
    assert "there is no file nowhere/*.py" in refusal(world, "programs", "path=nowhere")


# Scripts ---------------------------------------------------------------------------------------------------


def no_root() -> str:
    """Return what this Python says of the square root of -1."""
    with pytest.raises(ValueError) as caught:
        math.sqrt(-1)
    return str(caught.value)


def test_embedded(world: World) -> None:
    done = world.run_program(sys.executable, str(EXAMPLES / "embedded.py"))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == f"factorials: {[math.factorial(number) for number in range(10)]}"
    assert "1 of its tasks failed" in lines[1]
    assert "task 2 (sqrt), attempt 1" in lines[2]
    assert lines[3].strip() == f"ValueError: {no_root()}"
    assert sorted(lines[4:6]) == [
        f"sum of {function.__name__}: {math.fsum(map(function, range(100))):.6f}"
        for function in (math.cos, math.sin)
    ]
    assert lines[6:] == ["everything is taken down"]


def test_futures(world: World) -> None:
    done = world.run_program(sys.executable, str(EXAMPLES / "futures.py"))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "1,000,003 is prime: True",
        "prime or not: {97: True, 98: False, 99: False}",
        "prime numbers below 50,000: 5133",
        "prime numbers below 1,000: 168",
        f"no square root: {no_root()}",
    ]


def test_every_example_has_a_test() -> None:
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    for path in EXAMPLES.glob("*.py"):
        assert f'"{path.stem}"' in tests or f'"{path.name}"' in tests, f"nobody tests {path.name}"
