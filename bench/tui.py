"""What watching costs: gspc-top beside a run of no-op tasks, and how fast it answers with many hosts.

    python bench/tui.py [--json] [--small]

``tui.attached_loss``    by what part the CPU time for each task of all processes but the terminals
                         rises when two of them are attached (median of pairs of runs)
``tui.cpu_share``        CPU time of one terminal of 80x24 while the tasks run, as a part of a core
``tui.wide_cpu_share``   the same at 250x70
``tui.key_p95_ms``       95th percentile of the time from a key to the first change on the screen, with
                         10,000 hosts in a run that is being replayed
``tui.key_cpu_ms``       CPU time of the terminal for each of these keys, the replay included
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from pathlib import Path

from figures import Figures, cpu_s, descendants, options_parser

FLOW = """
from gspc_trio import Workflow, farm

def noop(item):
    return item

def workflow(n: int = 1000):
    return Workflow(farm(noop, name="noop"), {"items": list(range(n))}, lambda outputs: None)
"""


class Terminal:
    """A command in a terminal of its own, whose output is read and thrown away.

    Attributes:
        changed_s: when the last output came.
    """

    def __init__(self, command: list[str], columns: int = 80, lines: int = 24) -> None:
        self._fd, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
        )
        os.close(theirs)
        self.changed_s = 0.0
        self.bytes_read = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._fd, 65536)
            except OSError:
                return
            if not data:
                return
            self.bytes_read += len(data)
            self.changed_s = time.perf_counter()

    def press(self, keys: bytes) -> None:
        """Type these keys."""
        os.write(self._fd, keys)

    def wait_settled(self, at_least: int, timeout_s: float = 60.0) -> None:
        """Wait until so many bytes have come."""
        end = time.monotonic() + timeout_s
        while self.bytes_read < at_least:
            if time.monotonic() > end or self.process.poll() is not None:
                raise RuntimeError("the terminal shows nothing")
            time.sleep(0.05)

    def close(self) -> None:
        """End the command."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self._fd)


class System:
    """A run-time system of its own for the measurements."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "rts.json"
        self.flow = folder / "noop_flow.py"
        self.flow.write_text(FLOW)
        command = [sys.executable, "-m", "gspc_trio.cli.rts", "start", "--cores", "2"]
        self.process = subprocess.Popen(
            [*command, "--connection-file", str(self.file)], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def run(self, tasks: int) -> tuple[float, float]:
        """Run so many no-op tasks; return CPU seconds of all its processes, and seconds."""
        before = cpu_s(descendants(self.process.pid))
        command = [sys.executable, "-m", "gspc_trio.cli.jobserver", "run", str(self.flow), "--json"]
        begun = time.perf_counter()
        child = subprocess.Popen(
            [*command, "--rts", str(self.file), "--set", f"n={tasks}"], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        told = json.loads(child.stdout.read())
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        elapsed_s = time.perf_counter() - begun
        assert told["tasks"]["finished"] == tasks
        after = cpu_s(descendants(self.process.pid))
        return after - before + usage.ru_utime + usage.ru_stime, elapsed_s

    def top(self, columns: int = 80, lines: int = 24) -> Terminal:
        """Attach a terminal and wait until it shows the system."""
        command = [sys.executable, "-m", "gspc_trio.cli.top", "--rts", str(self.file)]
        terminal = Terminal(command, columns, lines)
        terminal.wait_settled(4000)
        return terminal

    def close(self) -> None:
        """Take the system down."""
        self.process.terminate()
        self.process.wait(20)


def measure_attached(figures: Figures, tasks: int, pairs: int) -> None:
    """Compare runs without and with two terminals."""
    losses, shares = [], []
    with tempfile.TemporaryDirectory() as folder:
        system = System(Path(folder))
        try:
            system.run(tasks)
            for _ in range(pairs):
                alone_s, _ = system.run(tasks)
                tops = [system.top(), system.top()]
                own_s = [cpu_s([top.process.pid]) for top in tops]
                watched_s, elapsed_s = system.run(tasks)
                own_s = [cpu_s([top.process.pid]) - before for top, before in zip(tops, own_s, strict=True)]
                for top in tops:
                    top.close()
                losses.append(watched_s / alone_s - 1)
                shares.append(max(own_s) / elapsed_s)
            wide = system.top(250, 70)
            before_s = cpu_s([wide.process.pid])
            _, elapsed_s = system.run(tasks)
            wide_share = (cpu_s([wide.process.pid]) - before_s) / elapsed_s
            wide.close()
        finally:
            system.close()
    figures.add("tui.attached_loss", statistics.median(losses), "ratio")
    figures.add("tui.cpu_share", statistics.median(shares), "ratio")
    figures.add("tui.wide_cpu_share", wide_share, "ratio")


def write_run(path: Path, hosts: int, seconds: int) -> None:
    """Write the records of a run on many hosts; each second a twentieth of the tasks end and others begin."""
    from gspc_trio.core.task import TaskState
    from gspc_trio.records.facts import (
        GrantChanged,
        JobChanged,
        Record,
        ResourceChanged,
        RifChanged,
        StreamOpened,
        TaskChanged,
    )
    from gspc_trio.records.lines import encode_record

    with path.open("w") as file:

        def put(record: Record) -> None:
            file.write(encode_record(record) + "\n")

        put(StreamOpened(0.0, 1.7e9, "bench"))
        put(JobChanged(0.0, "j1", "running", "many"))
        for host in range(hosts):
            name, node = f"host{host}", f"r{host}.node"
            put(RifChanged(0.0, f"r{host}", name, "up"))
            put(ResourceChanged(0.0, node, "node", "added", name))
            put(ResourceChanged(0.0, f"r{host}.core0", "core", "added", name, (node,)))
            put(GrantChanged(0.5, "j1", (1, host), (f"r{host}.core0",), True))
        task_id = 0
        for host in range(hosts):
            task_id += 1
            put(TaskChanged(0.6, "j1", task_id, TaskState.RUNNING, 1, "work", f"r{host}.core0"))
        share = max(1, hosts // 20)
        for second in range(1, seconds):
            for number in range(share):
                at_s, host = second + number / share, (second * share + number) % hosts
                where = f"r{host}.core0"
                put(
                    TaskChanged(
                        at_s, "j1", task_id - hosts + 1, TaskState.FINISHED, 1, "work", where, "", 1.7e9, 9.0
                    )
                )
                task_id += 1
                put(TaskChanged(at_s, "j1", task_id, TaskState.RUNNING, 1, "work", where))


def measure_keys(figures: Figures, hosts: int, keys: int) -> None:
    """Press keys in a replay with many hosts, in every view."""
    times_ms = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "many.records"
        write_run(path, hosts, 600)
        terminal = Terminal([sys.executable, "-m", "gspc_trio.cli.top", "--replay", str(path)], 120, 40)
        try:
            terminal.wait_settled(4000)
            time.sleep(3)
            terminal.press(b"\x1b[B")
            before_s = cpu_s([terminal.process.pid])
            for number in range(keys):
                key = (b"2", b"\x1b[B", b"\x1b[6~", b"4", b"\x1b[B", b"5", b"\x1b[B", b"1")[number % 8]
                quiet_since = time.perf_counter()
                while time.perf_counter() - max(quiet_since, terminal.changed_s) < 0.02:
                    select.select([], [], [], 0.002)
                pressed_s = time.perf_counter()
                terminal.press(key)
                while terminal.changed_s < pressed_s and time.perf_counter() - pressed_s < 5:
                    time.sleep(0.0005)
                times_ms.append(1e3 * (time.perf_counter() - pressed_s))
            own_s = cpu_s([terminal.process.pid]) - before_s
        finally:
            terminal.close()
    times_ms.sort()
    figures.add("tui.key_cpu_ms", 1e3 * own_s / keys, "ms")
    figures.add("tui.key_p50_ms", times_ms[len(times_ms) // 2], "ms")
    figures.add("tui.key_p95_ms", times_ms[int(len(times_ms) * 0.95)], "ms")


def main() -> None:
    """Measure and print."""
    options = options_parser(__doc__).parse_args()
    figures = Figures(options.json)
    measure_attached(figures, *((3_000, 1) if options.small else (100_000, 5)))
    measure_keys(figures, *((1_000, 16) if options.small else (10_000, 200)))


if __name__ == "__main__":
    main()
