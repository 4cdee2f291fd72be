"""How well and how soon anomalies of a host are found that are put into it for real.

    python bench/anomalies.py [--json] [--small] [--record FILE] [--only KIND,KIND:STRENGTH]
    python bench/anomalies.py [--json] --work SECONDS [--record FILE]
    python bench/anomalies.py [--json] --replay FILE [FILE ...]

``anomaly.f1``        mean over classes of the harmonic mean of precision and recall: an anomaly is found if
                      its class is on while it is there, and wrongly if its class is on and it is not
``anomaly.detect_s``  the longest time until an anomaly other than a leak was found
``anomaly.leak_s``    the same for a leak
``anomaly.false``     what was found while only tasks worked, for a minute
``anomaly.false_per_day``  what was found wrongly, over the time that was watched: a day of one host

``--work`` puts nothing in: for so long jobs of ours compute, take memory, write and read files, and run
thousands of short tasks (``bench/real_work.py``), one after the other; all that is found then is wrong.
``--record`` keeps the frames and what was in them; ``--replay`` lets the rules as they are now look at them,
at several runs as at hosts of their own. ``bench/recorded/*.json.gz`` are runs of all classes.
The host is one of a few processes on this machine (``bench/contained_root.py``): what others do
here is not seen, except by how fast the probe is. What puts anomalies into it are real processes, which need
a core for themselves: on a shared machine give it real-time priority. Slow processors and failing memory are
written into the files of that host; writes fail by a library that is loaded first. The probe asks over a
connection of its own; the process at its other end can take its time, as a slow link does.
"""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import msgspec
import trio
from contained_root import ContainedRoot
from figures import Figures, options_parser
from trio.testing import MockClock

from gspc_trio.components.monitor.detector import Detector, Finding
from gspc_trio.components.monitor.messages import MonitorTold, NodeFrame
from gspc_trio.components.monitor.shell.probe import waited_for_cpu_s
from gspc_trio.components.monitor.shell.sampling import sample
from gspc_trio.testing.anomalies import failing_io

THROTTLED = "throttled"
"""How strong a ``cpufreq`` is of which the kernel counts that it has slowed processors down."""

CASES = (
    *(("work", "", 60.0), ("dial", "", 40.0), ("ddot", "5", 40.0), ("ddot", "0.9", 40.0), ("copy", "", 40.0)),
    *(("ddot", "10", 40.0), ("leak", "40", 90.0)),
    *(("memeater", "", 60.0), ("leak", "160", 90.0), ("cpufreq", "0.5", 30.0), ("cpufreq", "0.7", 30.0)),
    *(
        ("cpufreq", THROTTLED, 30.0),
        ("pagefail", "", 30.0),
        ("ioerr", "25", 30.0),
        ("ioerr", "50", 30.0),
        ("linklog", "20", 30.0),
    ),
)
"""Class, how strong, and for so many seconds; ``work`` is none: tasks work."""

SMALL = (("ioerr", "50", 25.0),)
LATE_S = 10.0
"""So long after an anomaly has ended it may be found."""

REAL, REAL_WORK = "real", Path(__file__).with_name("real_work.py")
"""How strong work is that consists of jobs of ours, and the program that runs them."""

CLEAN_S, PAUSE_S, STEP_S = 45.0, 38.0, 0.5
ORDER = "GSPC_FAILING"


class Link:
    """A connection to something that answers, by a link that may be slow.

    Attributes:
        delay_s: so long an answer is under way.
    """

    def __init__(self) -> None:
        self.delay_s: float = 0.0
        self._stream: trio.SocketStream | None = None

    async def answer(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Answer until cancelled."""

        async def one(stream: trio.SocketStream) -> None:
            async for data in stream:
                await trio.sleep(self.delay_s)
                await stream.send_all(data)

        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(trio.serve_tcp, one, 0)
            address = listeners[0].socket.getsockname()
            self._stream = await trio.open_tcp_stream("127.0.0.1", address[1])
            task_status.started()
            await trio.sleep_forever()

    async def ask(self) -> bool:
        """Ask, and wait for the answer."""
        assert self._stream is not None
        await self._stream.send_all(b"?")
        return bool(await self._stream.receive_some())


def as_of_5_s(frame: NodeFrame, rate: int) -> NodeFrame:
    """Return what a frame of 5 s says that was as busy as this one of 5/rate seconds."""
    levels = dict(frame.levels)
    if "probe_round_trip_us" in levels:
        levels["probe_round_trip_us"] /= rate
    counts = {name: number * rate for name, number in frame.counts.items()}
    return msgspec.structs.replace(frame, counts=counts, levels=levels)


class Host:
    """A host of a few processes, with its sampler and its detector."""

    def __init__(self, folder: Path, rate: int = 1) -> None:
        self._rate = rate
        self._cpus = tuple(sorted(os.sched_getaffinity(0)))
        self.root = ContainedRoot(folder, {os.getpid()}, self._cpus)
        self.findings: list[Finding] = []
        self.link = Link()
        self._detector = Detector()
        self._folder = folder
        self.frames: list[NodeFrame] = []
        self._works: list[subprocess.Popen[bytes]] = []

    def take(self, told: MonitorTold) -> None:
        """Take in what the sampler tells."""
        if told.hardware is not None:
            self._detector.joined("here", len(os.sched_getaffinity(0)))
        for frame in told.nodes:
            frame = as_of_5_s(frame, self._rate)
            self.frames.append(frame)
            for found in self._detector.take("here", frame):
                self.findings.append(found)
                print(
                    f"{found.at_s:.0f} {found.kind} {found.subject} {found.is_on}: {found.evidence}",
                    file=sys.stderr,
                )

    async def keep(self) -> None:
        """Keep its files up to date."""
        while True:
            await trio.to_thread.run_sync(self.root.update)
            await trio.sleep(STEP_S)

    def work(self) -> None:
        """Let tasks of ours use the CPUs, one of them with the priority that this has."""
        words = [sys.executable, "-c", "while True: sum(range(1000))"]
        usual = ["chrt", "--other", "0", *words]
        self._works = [subprocess.Popen(usual if number else words) for number in range(len(self._cpus))]

    def rest(self) -> None:
        """End what works for us."""
        for one in self._works:
            one.kill()
            one.wait()
        self._works = []

    async def put_in(self, kind: str, strength: str, last_s: float) -> None:
        """Put an anomaly into it for so long."""
        order = Path(os.environ[ORDER])
        if strength == REAL:
            with trio.move_on_after(last_s):
                while True:
                    await trio.run_process([sys.executable, str(REAL_WORK)], check=False)
        elif kind == "work":
            self.work()
            await trio.sleep(last_s)
            self.rest()
        elif strength == THROTTLED:
            with trio.move_on_after(last_s):
                while True:
                    self.root.throttles += 1
                    await trio.sleep(1)
        elif kind == "cpufreq":
            self.work()
            await trio.sleep(CLEAN_S)  # what is usual under load
            self.root.speed = float(strength)
            await trio.sleep(last_s)
            self.root.speed = 1.0
            self.rest()
        elif kind == "linklog":
            self.link.delay_s = float(strength) / 1000
            await trio.sleep(last_s)
            self.link.delay_s = 0.0
        elif kind == "pagefail":
            for _ in range(int(last_s / 5)):
                self.root.failures += 1
                await trio.sleep(5)
        elif kind == "ioerr":
            await trio.Path(order).write_text(f"{strength} {tempfile.gettempdir()}")
            await trio.sleep(last_s)
            await trio.Path(order).unlink()
        else:
            words = [sys.executable, "-m", "gspc_trio.testing.anomalies", kind, "--for-s", str(last_s)]
            words += ["--each-mib" if kind == "leak" else "--caches", strength] if strength else []
            # Its parent ends at once: what is below this process would be of tasks.
            told = await trio.run_process(
                ["sh", "-c", '"$@" >/dev/null 2>&1 & echo $!', "sh", *words],
                capture_stdout=True,
            )
            self.root.members.add(int(told.stdout))
            await trio.sleep(last_s)


async def found(
    cases: tuple[tuple[str, str, float], ...], folder: Path, rate: int = 1
) -> tuple[list[tuple[str, float, float]], Host]:
    """Put anomalies into a host, one after the other; return when each was there, and the host."""
    host, when = Host(folder, rate), list[tuple[str, float, float]]()
    begun_s, begun = time.time(), trio.current_time()

    def wall() -> float:
        return begun_s + trio.current_time() - begun

    def waited() -> float:
        return rate * waited_for_cpu_s()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(host.keep)
        await nursery.start(host.link.answer)
        ask = host.link.ask
        nursery.start_soon(partial(sample, host.take, root=folder, wall=wall, round_trip=ask, waited=waited))
        await trio.sleep(CLEAN_S)
        for number, (kind, strength, last_s) in enumerate(cases, 1):
            begin_s = wall() + (CLEAN_S if kind == "cpufreq" and strength != THROTTLED else 0.0)
            print(f"{begin_s:.0f} == {kind} {strength}", file=sys.stderr)
            await host.put_in(kind, strength, last_s)
            when.append((kind, begin_s, wall()))
            await trio.sleep(PAUSE_S if number < len(cases) else LATE_S)
        nursery.cancel_scope.cancel()
    return when, host


def score(
    when: list[tuple[str, float, float]], findings: list[Finding]
) -> tuple[float, dict[str, list[float]], int]:
    """Return the mean of F1 over classes, class -> seconds until each was found, and what work has caused."""
    on = [one for one in findings if one.is_on and one.subject == "host" and not one.is_urgent]
    kinds = dict.fromkeys(kind for kind, _, _ in when if kind != "work")
    soon: dict[str, list[float]] = {kind: [] for kind in kinds}
    f1, during_work = [], 0
    for kind in kinds:
        there = [(begin_s, end_s) for name, begin_s, end_s in when if name == kind]
        hits = 0
        for begin_s, end_s in there:
            times = [
                one.at_s - begin_s for one in on if one.kind == kind and begin_s <= one.at_s <= end_s + LATE_S
            ]
            hits += bool(times)
            soon[kind] += times[:1]
        wrong = sum(
            one.kind == kind and not any(begin_s <= one.at_s <= end_s + LATE_S for begin_s, end_s in there)
            for one in on
        )
        f1.append(2 * hits / (2 * hits + wrong + len(there) - hits))
    for name, begin_s, end_s in when:
        during_work += sum(name == "work" and begin_s <= one.at_s <= end_s + LATE_S for one in on)
    return sum(f1) / max(1, len(f1)), soon, during_work


class Recorded(msgspec.Struct):
    """A run: when anomalies were there, and what its host told."""

    cpus: int
    when: list[tuple[str, float, float]]
    frames: list[NodeFrame]


def recorded(path: Path) -> Recorded:
    """Return a run that was recorded; its file may be compressed (``.gz``)."""
    content = path.read_bytes()
    return msgspec.json.decode(gzip.decompress(content) if path.suffix == ".gz" else content, type=Recorded)


def look_again(runs: list[Recorded]) -> tuple[Recorded, list[Finding]]:
    """Return several runs as one, and what the rules find in the frames of each."""
    whole, findings = Recorded(0, [], []), list[Finding]()
    for run in runs:
        detector = Detector()
        detector.joined("here", run.cpus)
        findings += [found for frame in run.frames for found in detector.take("here", frame)]
        whole.when += run.when
        whole.frames += run.frames
    return whole, findings


def wrong(when: list[tuple[str, float, float]], findings: list[Finding]) -> int:
    """Return how often a class was found that was not there."""
    on = [one for one in findings if one.is_on and one.subject == "host" and not one.is_urgent]
    return sum(
        not any(one.kind == kind and begin_s <= one.at_s <= end_s + LATE_S for kind, begin_s, end_s in when)
        for one in on
    )


def tell(figures: Figures, run: Recorded, findings: list[Finding]) -> None:
    """Print the figures of a run."""
    f1, soon, during_work = score(run.when, findings)
    for kind, times in soon.items():
        print(kind, "found after", ", ".join(f"{one:.0f} s" for one in times) or "never", file=sys.stderr)
    if soon:
        figures.add("anomaly.f1", f1, "")
    others = [one for kind, times in soon.items() for one in times if kind != "leak"]
    if others:
        figures.add("anomaly.detect_s", max(others), "s")
    if soon.get("leak"):
        figures.add("anomaly.leak_s", max(soon["leak"]), "s")
    if any(kind == "work" for kind, _, _ in run.when):
        figures.add("anomaly.false", float(during_work), "")
    watched_s = sum(frame.covered_s for frame in run.frames)
    figures.add("anomaly.false_per_day", wrong(run.when, findings) * 86400 / max(1.0, watched_s), "")


def main() -> None:
    """Measure and print."""
    parser = options_parser(__doc__)
    parser.add_argument("--record", type=Path, help="file for what was measured")
    parser.add_argument("--replay", type=Path, nargs="+", help="files with what was measured before")
    parser.add_argument("--only", default="", help="classes or class:strength, with commas; all by default")
    parser.add_argument("--work", type=float, help="let jobs work for so many seconds, and nothing else")
    parser.add_argument("--rate", type=int, default=1, help="of --work: how fast time passes")
    chosen = parser.parse_args()
    if chosen.replay is not None:
        runs = list(map(recorded, chosen.replay))
        tell(Figures(chosen.json), *look_again(runs))
        return
    if ORDER not in os.environ:  # all that follows is read and written by the library
        folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
        (folder / "tmp").mkdir()  # nothing else is written there
        more = {ORDER: str(folder / "order"), "LD_PRELOAD": str(failing_io()), "TMPDIR": str(folder / "tmp")}
        os.environ |= more
        os.execv(sys.executable, [sys.executable, *sys.argv])
    only = set(filter(None, chosen.only.split(",")))
    cases = tuple(
        case
        for case in (SMALL if chosen.small else CASES)
        if not only or only & {case[0], f"{case[0]}:{case[1]}"}
    )
    if chosen.work is not None:
        cases = (("work", REAL, chosen.work),)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        clock = MockClock(rate=chosen.rate)
        when, host = trio.run(found, cases, Path(name), chosen.rate, clock=clock)
    run = Recorded(len(os.sched_getaffinity(0)), when, host.frames)
    if chosen.record is not None:
        content = msgspec.json.encode(run)
        is_short = chosen.record.suffix == ".gz"
        chosen.record.write_bytes(gzip.compress(content) if is_short else content)
    tell(Figures(chosen.json), run, host.findings)
    shutil.rmtree(Path(os.environ[ORDER]).parent)


if __name__ == "__main__":
    main()
