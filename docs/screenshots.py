"""Makes the pictures of docs/tui.md, and the recorded run of examples/, from a real run.

    python docs/screenshots.py

It starts a run-time system with two logical hosts of this machine, runs two workflows on it, attaches
gspc-top without a terminal, and saves what it shows as SVG below docs/pictures.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from gspc_trio.tui.app import TopApp
from gspc_trio.tui.live import Follower, LiveSource, connector
from gspc_trio.tui.model import Model

DOCS = Path(__file__).parent
PICTURES = DOCS / "pictures"
RECORDED = DOCS.parent / "examples" / "recorded-run.jsonl"

FIT = '''
"""Fits samples, some of which are no good, and sums up what came out."""
import random
import time

from gspc_trio import Net, Workflow, take


def fit(sample):
    time.sleep(0.2 + random.Random(sample).random())
    print(f"sample {sample}: converged after {sample % 13 + 3} steps")
    if sample % 29 == 11:
        raise ValueError(f"sample {sample} does not converge")
    return sample * sample


def summarise(values):
    time.sleep(0.4)
    return sum(values)


def workflow(n: int = 150):
    net = Net("fit")
    samples, fitted, sums = net.input("samples"), net.place("fitted", may_keep=True), net.output("sums")
    net.transition("fit", fit, [samples], [fitted])
    net.transition("summarise", summarise, [take(fitted, least=5, most=5)], [sums])
    return Workflow(net, {"samples": list(range(n))})
'''

RENDER = '''
"""Renders frames, a whole host at a time."""
import time

from gspc_trio import Workflow, farm


def render(frame):
    time.sleep(1.5)
    return frame


def workflow(n: int = 40):
    return Workflow(farm(render, name="render", requires="node"), {"items": list(range(n))})
'''

READER = '''
"""Reads a large file in small pieces."""
import random
import time

import gspc_trio
from gspc_trio import Workflow, farm


def read(path):
    gspc_trio.event("begins to read")
    with open(path, "rb", buffering=0) as file:
        for _ in range(5000):
            file.seek(random.randrange(2**20))
            file.read(64)
    with open(path + ".sums", "ab") as file:
        file.write(bytes(200_000))
    time.sleep(0.5)
    return 1


def workflow(path: str, n: int = 40):
    return Workflow(farm(read, name="read"), {"items": [path] * n})
'''

VIEWS = {
    "overview": ("1",),
    "resources": ("2",),
    "queues": ("3",),
    "tasks": ("4", "slash", *"fit", "enter"),
    "workers": ("escape", "5", "z", "z", "z"),
    "workflow": ("6",),
    "io": ("9",),
}
"""Picture -> keys that lead to it."""


def command(name: str, *arguments: str) -> list[str]:
    """Return a command of this package."""
    return [sys.executable, "-m", f"gspc_trio.cli.{name}", *arguments]


@contextmanager
def running_system(folder: Path) -> Iterator[Path]:
    """A run-time system with two logical hosts; yields its connection file."""
    file = folder / "rts.json"
    options = ("--cores", "2", "--host", "alpha", "--host", "beta", "--connection-file", str(file))
    options += ("--monitor", str(folder / "metrics"), "--io", "calls")
    process = subprocess.Popen(command("rts", "start", *options), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.readline()
    try:
        yield file
    finally:
        process.terminate()
        process.wait()


async def take_pictures(file: Path) -> None:
    """Attach, wait until there is something to be seen, and save a picture of each view."""
    app = TopApp(LiveSource(Follower(connector(file), Model()), str(file), print))
    async with app.run_test(size=(104, 30)) as pilot:
        await pilot.pause(25)
        for name, keys in VIEWS.items():
            for key in keys:
                await pilot.press(key)
            await pilot.pause(2)
            app.draw()
            await pilot.pause()
            save(app, name)
        await pilot.press("t", "0", "1")
        await pilot.pause(2)
        save(app, "light")


def save(app: TopApp, name: str) -> None:
    """Save what is on the screen, without fonts from elsewhere."""
    picture = re.sub(r"@font-face \{.*?\}", "", app.export_screenshot(title="gspc-top"), flags=re.DOTALL)
    (PICTURES / f"{name}.svg").write_text(picture)
    print(f"docs/pictures/{name}.svg")


def main() -> None:
    """Make the pictures and the recorded run."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fit, render = folder / "fit.py", folder / "render.py"
        fit.write_text(FIT)
        render.write_text(RENDER)
        reader, large = folder / "reader.py", folder / "large"
        reader.write_text(READER)
        large.write_bytes(bytes(2**20))
        with running_system(folder) as file:
            where = ("--rts", str(file), "--keep-going")
            record = ("--records", str(folder / "run.jsonl"), "--set", "n=150")
            quiet = partial(subprocess.Popen, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            first = quiet(command("jobserver", "run", str(fit), *where, *record))
            second = quiet(command("jobserver", "run", str(render), *where))
            third = quiet(command("jobserver", "run", str(reader), *where, "--set", f"path={large}"))
            asyncio.run(take_pictures(file))
            first.wait()
            third.wait()
            second.terminate()
            second.wait()
        RECORDED.write_text((folder / "run.jsonl").read_text())
        print("examples/recorded-run.jsonl")


if __name__ == "__main__":
    main()
