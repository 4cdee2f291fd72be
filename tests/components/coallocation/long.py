"""Long runs of what the tests show in short: broken texts, order of random trees, cuts at each message, kills
at each record of the journal.

Run as ``make coallocation-long``: some twelve minutes of a core. A part runs alone with the others at 0:
``python -m tests.components.coallocation.long --texts 500000 --trees 0 --cuts 0 --seed 1``.
"""

from __future__ import annotations

import argparse
import time
from random import Random

from gspc_trio.components.coallocation.flow import (
    BeginFlow,
    CoJobEnded,
    FlowAction,
    FlowEnded,
    NotRun,
    RequestFlow,
    StartCoJobs,
)
from gspc_trio.components.coallocation.language import order_of, parse_coallocation
from gspc_trio.components.coallocation.text import print_text
from gspc_trio.components.coallocation.tree import Multistage, NamedJob, Option, Request, RslError, jobs_of
from gspc_trio.components.coallocation.xml_form import print_xml
from gspc_trio.testing.coallocation_requests import RequestsWorld

SAMPLES = (
    "*(*(*(*(a))(b)(c))(d))(e)",
    "*(a)(b)(c(wait=2))(d(wait=1,2))",
    "+(&(executable=climate.out)(contact=hot))(cold(count=4 2 1)(memory>=1GiB))(on_error=n)",
    "*(on_error=2)(&(executable='it''s')(environment=(A \"b\")(C d))\n(max_time<=60))(*(+(a)(b)))",
    '<coallocate><resource name="hot" executable="a"/><resource ref="b"><count op="=">'
    "<value>4</value><value>2</value></count></resource></coallocate>",
    '<coallocate on_error="n">\n<coallocate><job ref="a" wait="2"/></coallocate>'
    '<job executable="b"/></coallocate>',
)
PIECES = (
    *"()*+&=!<>\"'^$#? \n\t,|~/aA1\0\r\x85é\u2028\ufeff\ud800\U0001f600",
    *("", " ", "x", "(b)", "(a(wait=1))", "wait=", "count=", "(wait=1,2)", "(" * 70, "*(" * 70),
    *("<!DOCTYPE a [", "<!ENTITY b 'c'>", "&b;", "&#0;", "<job ref='a'/>", "</coallocate>", "<!--", "<?xml"),
    *("<!-- c -->", "<value>", "<coallocate>" * 70, "]]>", "<![CDATA[", "xmlns='x'"),
)


def random_text(random: Random) -> str:
    """Return a text that is almost a request, or nothing like one."""
    if random.random() < 0.2:
        return "".join(random.choices(PIECES, k=random.randint(0, 12)))
    text = random.choice(SAMPLES)
    for _ in range(random.choice((1, 1, 2, 3))):
        at = random.randint(0, len(text))
        text = text[:at] + random.choice(PIECES) + text[at + random.choice((0, 0, 1, 3)) :]
    return text


def look_at_text(text: str, random: Random) -> bool:
    """Read a text, or its bytes; return whether it is a request. Whatever else is raised is a fault."""
    tree = _read(text, random)
    if isinstance(tree, RslError):
        lines = text.count("\n") + text.count("\r") + 1
        assert 1 <= tree.line <= lines, f"{tree} is in none of the {lines} lines of {text!r}"
        assert tree.column >= 1, text
        return False
    assert parse_coallocation(print_text(tree)) == tree, text
    assert parse_coallocation(print_xml(tree)) == tree, text
    return True


def _read(text: str, random: Random) -> Request | RslError:
    source = (
        text if random.random() < 0.5 else text.encode("utf-8", random.choice(("surrogatepass", "replace")))
    )
    try:
        return parse_coallocation(source)
    except RslError as error:
        return error


def random_tree(random: Random, jobs_max: int = 30) -> Request:
    """Return stages of jobs; half of them imply their order, and half say it."""
    if random.random() < 0.5:
        return _stages(random, random.randint(1, 4))
    count = random.randint(1, jobs_max)
    rank = random.sample(range(count), count)
    jobs: list[Request] = []
    for number in range(count):
        earlier = [other + 1 for other in range(count) if rank[other] < rank[number]]
        awaited = random.sample(earlier, min(len(earlier), random.randint(0, 3)))
        waits = (Option("wait", (",".join(map(str, awaited)),)),) if awaited else ()
        jobs.append(NamedJob("a", waits))
    cut = random.randint(0, count - 1)
    below = (Multistage(tuple(jobs[:cut])),) if cut else ()
    return Multistage((*below, *jobs[cut:]))


def _stages(random: Random, depth: int) -> Request:
    if not depth or random.random() < 0.3:
        return NamedJob("a")
    return Multistage(tuple(_stages(random, depth - 1) for _ in range(random.randint(1, 4))))


def naive_waits(request: Request) -> dict[int, set[int]]:
    """Return what each job waits for, from the words of the language: all jobs, and none left out."""
    jobs = list(jobs_of(request))
    if any(job.options for job in jobs):
        stated = [str(job.options[0].values[0]).split(",") if job.options else [] for job in jobs]
        return {number: set(map(int, texts)) for number, texts in enumerate(stated, 1)}
    waits: dict[int, set[int]] = {}
    counter = iter(range(1, len(jobs) + 1))

    def visit(one: Request) -> set[int]:
        if not isinstance(one, Multistage):
            return {next(counter)}
        under = [(stage, visit(stage)) for stage in one.stages]
        below = set[int]().union(*(numbers for stage, numbers in under if isinstance(stage, Multistage)))
        for stage, numbers in under:
            if not isinstance(stage, Multistage):
                waits[min(numbers)] = below
        return set[int]().union(*(numbers for _, numbers in under))

    visit(request)
    return {number: waits.get(number, set()) for number in range(1, len(jobs) + 1)}


class NaiveFlow:
    """A model of the order that asks of each job anew what it may do; compares itself with the machine.

    Args:
        request: its jobs.
    """

    def __init__(self, request: Request) -> None:
        self.waits = naive_waits(request)
        self.flow = RequestFlow(order_of(request))
        self.state = dict.fromkeys(self.waits, "waiting")
        self._compare(self.flow.handle(BeginFlow(), 0))

    @property
    def running(self) -> list[int]:
        """The jobs that run, in rising order."""
        return sorted(number for number, it in self.state.items() if it == "running")

    def end(self, number: int, failure: str) -> None:
        """A job ends."""
        self.state[number] = failure or "finished"
        self._compare(self.flow.handle(CoJobEnded(number, failure), 0))

    def _compare(self, actions: list[FlowAction]) -> None:
        self.flow.check()
        started, answered = set[int](), set[int]()
        for action in actions:
            if isinstance(action, StartCoJobs):
                started |= set(action.numbers)
            elif isinstance(action, NotRun):
                assert action.number not in answered, "a dependent is answered once"
                assert self.state[action.cause] == "failed"
                answered.add(action.number)
        assert answered == self._not_run()
        self.state |= dict.fromkeys(answered, "not run")
        assert started == self._ready()
        self.state |= dict.fromkeys(started, "running")
        assert (FlowEnded() in actions) is not bool(set(self.state.values()) & {"waiting", "running"})

    def _not_run(self) -> set[int]:
        """Return the jobs that wait and never can run."""
        failed = {number for number, it in self.state.items() if it in ("failed", "not run")}
        found = set[int]()
        while True:
            more = {number for number, it in self.waits.items() if it & (failed | found)}
            more = {number for number in more if self.state[number] == "waiting"} - found
            if not more:
                return found
            found |= more

    def _ready(self) -> set[int]:
        """Return the jobs that wait, and need not wait any more."""
        done = {number for number, it in self.state.items() if it == "finished"}
        return {number for number, it in self.waits.items() if self.state[number] == "waiting" and it <= done}


def look_at_tree(request: Request, random: Random) -> int:
    """Run a request in the model and in the machine; return its number of jobs."""
    model = NaiveFlow(request)
    fails = random.choice((0.0, 0.05, 0.3))
    while running := model.running:
        model.end(random.choice(running), "failed" if random.random() < fails else "")
    assert model.flow.is_over
    return len(model.waits)


def cut_each_message(seed: int) -> int:
    """Simulate services again and again, and end the connection of each message once; return how often."""
    world = RequestsWorld(seed, faults=False)
    world.run()
    for number in range(1, world.messages.total() + 1):
        RequestsWorld(seed, faults=False, cut_at=number).run()
    return world.messages.total()


def kill_at_each_record(seed: int) -> int:
    """Simulate services again and again; kill the top at each record of its journal, just before that is
    durable and just after; return how often."""
    world = RequestsWorld(seed, faults=False, journal=True)
    world.run()
    for number in range(1, world.records + 1):
        for before in (True, False):
            killed = RequestsWorld(seed, False, journal=True, kill_at=number, kills_before=before)
            killed.run()
            assert any("top was killed" in line for line in killed.happened), f"seed {seed}, record {number}"
            assert killed.noted is not None
            assert not killed.noted.requests, f"seed {seed}, record {number}: a request did not end"
    return 2 * world.records


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=1_000_000)
    parser.add_argument("--trees", type=int, default=10_000)
    parser.add_argument("--cuts", type=int, default=3, help="worlds each message of which is cut")
    parser.add_argument("--kills", type=int, default=1, help="worlds whose top is killed at each record")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    random = Random(chosen.seed)
    begin_s = time.monotonic()
    read = sum(look_at_text(random_text(random), random) for _ in range(chosen.texts))
    print(f"{chosen.texts:,} texts: {read:,} are requests, RslError for all others", flush=True)
    jobs = sum(look_at_tree(random_tree(random), random) for _ in range(chosen.trees))
    print(f"{chosen.trees:,} trees: the model agrees with every start of {jobs:,} jobs")
    cuts = sum(cut_each_message(seed) for seed in range(chosen.seed, chosen.seed + chosen.cuts))
    print(f"{cuts:,} worlds of services, each with a connection cut at another message: all holds")
    kills = sum(kill_at_each_record(seed) for seed in range(chosen.seed, chosen.seed + chosen.kills))
    print(f"{kills:,} worlds of services with a journal, killed before or after another record: all holds")
    print(f"{time.monotonic() - begin_s:.0f} s")


if __name__ == "__main__":
    main()
