"""The Mandelbrot set as a PNG, computed tile by tile.

gspc-jobserver run examples/mandelbrot.py --set width=1200 --set height=900 --set out=mandelbrot.png
"""

import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gspc_trio import Net, Workflow, take

CENTRE, VIEW_WIDTH = -0.65, 3.2  # of what is seen, in the plane of complex numbers
COLOURS = [(0, 0, 0)] + [(min(255, 2 * n), n * n // 255, 96 - abs(n - 96) * 96 // 160) for n in range(255)]

Box = tuple[int, int, int, int]
"""Left, top, right and bottom in pixels; right and bottom are outside."""

Picture = dict[str, Any]
"""Settings that all tasks share: width, height, iterations, out."""


def compute_tile(box: Box, picture: Picture) -> tuple[Box, bytes]:
    """Return the colour of each pixel in the box, row by row."""
    left, top, right, bottom = box
    width, height = picture["width"], picture["height"]
    scale = VIEW_WIDTH / width
    return box, bytes(
        colour_of(complex(CENTRE + (x - width / 2) * scale, (height / 2 - y) * scale), picture["iterations"])
        for y in range(top, bottom)
        for x in range(left, right)
    )


def colour_of(c: complex, iterations: int) -> int:
    """Return 0 if ``c`` seems to be in the set, else 1 to 255: the longer it stayed near, the more."""
    z = 0j
    for n in range(iterations):
        z = z * z + c
        if z.real * z.real + z.imag * z.imag > 4:
            return 1 + int(254 * math.sqrt(n / iterations))
    return 0


def write_png(tiles: list[tuple[Box, bytes]], picture: Picture) -> str:
    """Put the tiles together, write the picture and return the name of the file."""
    width, height = picture["width"], picture["height"]
    rows = [bytearray(width) for _ in range(height)]
    for (left, top, right, bottom), pixels in tiles:
        for y in range(top, bottom):
            start = (y - top) * (right - left)
            rows[y][left:right] = pixels[start : start + right - left]
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)  # 8 bits, with a palette
    image = zlib.compress(b"".join(b"\0" + row for row in rows))  # 0: the row is not filtered
    palette = bytes(sum(COLOURS, ()))
    with open(picture["out"], "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n")
        for kind, data in (b"IHDR", header), (b"PLTE", palette), (b"IDAT", image), (b"IEND", b""):
            file.write(struct.pack(">I", len(data)) + kind + data)
            file.write(struct.pack(">I", zlib.crc32(kind + data)))
    return str(file.name)


def boxes(width: int, height: int, tile: int) -> Iterator[Box]:
    for top in range(0, height, tile):
        for left in range(0, width, tile):
            yield left, top, min(left + tile, width), min(top + tile, height)


def workflow(
    width: int = 800,
    height: int = 600,
    tile: int = 100,
    iterations: int = 200,
    out: Path = Path("mandelbrot.png"),
) -> Workflow:
    """Draw the Mandelbrot set in tiles of ``tile`` times ``tile`` pixels."""
    if min(width, height, tile, iterations) < 1:
        raise ValueError("width, height, tile and iterations must be at least 1")
    if not out.absolute().parent.is_dir():
        raise ValueError(f"there is no directory for the picture {out}")
    wanted = list(boxes(width, height, tile))
    picture = {"width": width, "height": height, "iterations": iterations, "out": str(out.absolute())}

    net = Net("mandelbrot")
    todo, tiles, shared = net.input("boxes"), net.place("tiles"), net.place("picture", [picture])
    net.transition("tile", compute_tile, {"box": todo}, tiles, reads={"picture": shared})
    net.transition(
        "write", write_png, {"tiles": take(tiles, len(wanted)), "picture": shared}, net.output("file")
    )
    return Workflow(net, {"boxes": wanted}, report=lambda outputs: print("wrote", outputs["file"][0]))
