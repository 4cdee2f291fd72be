"""Figures of co-allocation: how fast requests are read, ordered, placed, started and released.

    python bench/coallocation.py [--json] [--small]

``rsl.jobs_per_s``                 jobs of a request that are read from text, half names alone, half with two
                                   options each, in stages; CPU time of one core, best of five
``coallocation.client_frames``     messages at the connection of a client for 10,000 jobs, 1,000 of which end
                                   each second, run by a service with ten below
``coallocation.messages_per_job``  messages at all connections of services for each of these jobs
``coallocation.placed_jobs_per_s``  so many of these jobs all services together place, start and see end, in a
                                   second of one core: what they cost without connections and programs
``coallocation.jobs_per_s``        10,000 jobs in ten stages that run ``true`` on a run-time system here, from
                                   request to report
``coallocation.barrier_s``         from the last call of a barrier to the last answer, of 1,000 callers
``coallocation.stuck``             of 100 requests for two or three of three full run-time systems at a time,
                                   so many have not ended
"""

from __future__ import annotations

import math
import random
import sys
import tempfile
import time
from collections import Counter, deque
from contextlib import AsyncExitStack
from pathlib import Path

import trio
from figures import Figures, options_parser

from gspc_trio import open_coallocation, open_rts, parse_coallocation
from gspc_trio.components.coallocation.agents.service import (
    PARENT,
    ParentLinked,
    PeerSaid,
    ServiceMessage,
    SiteOffered,
    ToPeer,
)
from gspc_trio.components.coallocation.agents.words import (
    PartsAccepted,
    PartsDone,
    PartsGo,
    PartsReady,
    PartsRequest,
    RequestDone,
    SiteOffer,
    SubmitRequest,
)
from gspc_trio.components.coallocation.host import CoallocationHost, HostEvent, RequestRead
from gspc_trio.components.coallocation.jobs import jobs_with_options
from gspc_trio.components.coallocation.language import order_of
from gspc_trio.core.machine import Tick
from gspc_trio.nursery.scopes.collector import tuned_collector

JOBS = 40_000
PLACED_JOBS = 10_000
FAN_OUT = 10
ENDS_PER_S = 1000
RUN_JOBS = 10_000
CALLERS = 1000
REQUESTS = 100
CORES = 4
STUCK_S = 120.0

CALLS = """
import os, sys, threading, time
from gspc_trio.coallocation import barrier
count, flag = int(sys.argv[1]), sys.argv[2]
ends = []
def call():
    assert barrier()
    ends.append(time.monotonic())
threads = [threading.Thread(target=call) for _ in range(count - 1)]
for thread in threads: thread.start()
while not os.path.exists(flag): time.sleep(0.01)
time.sleep(1.0)
for thread in threads: thread.join()
print(max(ends))
"""
CALLS_LAST = """
import sys, time
from gspc_trio.coallocation import barrier
open(sys.argv[1], "w").close()
time.sleep(3.0)
begin_s = time.monotonic()
assert barrier()
print(begin_s)
"""


def jobs_per_s(jobs: int) -> float:
    """Return how many jobs are read in a second."""
    stage = "(*" + "(a)(b(count=2)(on_error=1))(c)(d(count=4 2)(attempts=2))" * 5 + ")"
    text = "*(a)" + stage * (jobs // 20)
    best_s = float("inf")
    for _ in range(5):
        begin_s = time.process_time()
        parse_coallocation(text)
        best_s = min(best_s, time.process_time() - begin_s)
    return jobs / best_s


class Tree:
    """A service with others below, each with a site that runs one program after the other; no connections."""

    def __init__(self) -> None:
        self.hosts = {name: CoallocationHost(name, "1") for name in ("top", *map(str, range(FAN_OUT)))}
        self.now = 0.0
        self.messages: Counter[str] = Counter()
        self.over = False
        self._waiting: deque[tuple[str, HostEvent]] = deque()
        self._ends: deque[tuple[float, str, str]] = deque()
        for name in self.hosts:
            if name != "top":
                offer = SiteOffer((f"site{name}",), {"core": 100_000}, {"core": 100_000})
                self._waiting.append((name, SiteOffered(offer)))
                self._waiting.append((name, ParentLinked()))
        self._deliver()

    def run(self, jobs: int) -> None:
        """Run a request of so many jobs to its end."""
        stage = "(*" + "(a)" * (jobs // FAN_OUT) + ")"
        told = SubmitRequest("request", "*" + stage * FAN_OUT, '{"a": {"executable": "true"}}')
        self.messages.clear()
        self._to("top", "client", told)
        while not self.over:
            self._deliver()
            due = [host.deadline() for host in self.hosts.values()]
            next_s = min(one for one in due if one is not None)
            if self._ends and self._ends[0][0] <= next_s:
                self.now, host, request = self._ends.popleft()
                self._to(host, f"site{host}", PartsDone(request, "", True))
            else:
                self.now = next_s
                for name, host_due in zip(self.hosts, due, strict=True):
                    if host_due is not None and host_due <= self.now:
                        self._waiting.append((name, Tick()))

    def _deliver(self) -> None:
        while self._waiting:
            name, event = self._waiting.popleft()
            for action in self.hosts[name].handle(event, self.now):
                if isinstance(action, ToPeer):
                    self._say(name, action)

    def _say(self, name: str, action: ToPeer) -> None:
        who, message = action.who, action.message
        if who == "client":
            self.messages["client"] += 1
            self.over = self.over or isinstance(message, RequestDone)
        elif who == PARENT:
            self._to("top", name, message)
        elif who in self.hosts:
            self._to(who, PARENT, message)
        else:
            self.messages["all"] += 1
            if isinstance(message, PartsRequest):
                self._to(name, who, PartsAccepted(message.request))
                self._to(name, who, PartsReady(message.request))
            elif isinstance(message, PartsGo):
                last_s = self._ends[-1][0] if self._ends else self.now
                self._ends.append((max(self.now, last_s) + 1 / ENDS_PER_S, name, message.request))

    def _to(self, name: str, who: str, message: ServiceMessage) -> None:
        self.messages["client" if who == "client" else "all"] += 1
        if isinstance(message, SubmitRequest):
            tree = parse_coallocation(message.text)
            jobs = jobs_with_options(tree, {"a": {"executable": "true"}})
            self._waiting.append((name, RequestRead(who, message, tree, jobs, order_of(tree))))
        else:
            self._waiting.append((name, PeerSaid(who, message)))


async def run_jobs_per_s(jobs: int) -> float:
    """Return how many jobs run in a second, from request to report."""
    best = 0.0
    with tuned_collector():  # as the commands do
        async with open_rts(cores=CORES) as rts:
            for count in (math.ceil(jobs / 10), jobs):
                begin_s = time.perf_counter()
                text = "*" + ("(*" + "(a)" * math.ceil(count / FAN_OUT) + ")") * FAN_OUT
                async with open_coallocation(text, jobs={"a": {"executable": "true"}}, rts=[rts]) as request:
                    ends = await request.wait()
                assert all(end.state == "finished" for end in ends), ends
                best = max(best, len(ends) / (time.perf_counter() - begin_s))
    return best


async def barrier_s(callers: int) -> float:
    """Return how long after the last call of a barrier the last answer comes."""
    with tempfile.TemporaryDirectory() as directory:
        flag = str(Path(directory) / "flag")
        jobs = {
            "many": {"executable": sys.executable, "arguments": ["-c", CALLS, str(callers), flag]},
            "last": {"executable": sys.executable, "arguments": ["-c", CALLS_LAST, flag]},
        }
        async with (
            open_rts(cores=2) as rts,
            open_coallocation("+(start=inside)(many)(last)", jobs=jobs, rts=[rts]) as request,
        ):
            (end,) = await request.wait()
    assert end.state == "finished", end
    answered_s, begun_s = map(float, end.output.split())
    return answered_s - begun_s


async def stuck(requests: int) -> int:
    """Return how many requests over full run-time systems have not ended."""
    shuffled = random.Random(0)
    ended = 0
    async with AsyncExitStack() as stack:
        names = ("a", "b", "c")
        rts = {name: await stack.enter_async_context(open_rts(cores=2)) for name in names}
        with trio.move_on_after(STUCK_S):
            text = "*"
            for _ in range(requests):
                sites = shuffled.sample(names, shuffled.choice((2, 3)))
                parts = (f"(&(executable=true)(count=2)(contact={name}))" for name in sites)
                text += f"(+{''.join(parts)})"
            async with open_coallocation(text, rts=rts) as request:
                ends = await request.wait()
                ended = sum(end.state == "finished" for end in ends)
    return requests - ended


def main() -> None:
    options = options_parser(__doc__).parse_args()
    figures = Figures(options.json)
    scale = 100 if options.small else 1
    figures.add("rsl.jobs_per_s", jobs_per_s(JOBS // scale), "jobs/s")
    tree, count = Tree(), PLACED_JOBS // scale
    begin_s = time.process_time()
    tree.run(count)
    placed_s = time.process_time() - begin_s
    figures.add("coallocation.client_frames", tree.messages["client"], "messages")
    figures.add("coallocation.messages_per_job", tree.messages.total() / count, "messages")
    figures.add("coallocation.placed_jobs_per_s", count / placed_s, "jobs/s")
    figures.add("coallocation.jobs_per_s", trio.run(run_jobs_per_s, math.ceil(RUN_JOBS / scale)), "jobs/s")
    figures.add("coallocation.barrier_s", trio.run(barrier_s, CALLERS // scale), "s")
    figures.add("coallocation.stuck", trio.run(stuck, REQUESTS // scale), "requests")


if __name__ == "__main__":
    main()
