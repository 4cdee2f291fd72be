"""How fast workflows that others wrote are read and run.

    python bench/languages.py [--json] [--small]

``xpnet.expressions_per_s``  evaluations per second of one core: ``${n} := ${n} + 1L; ${n} :lt: ${max}``
                             on two bindings of type long, which is one call that adds with a check for
                             overflow, assigns and compares
``xpnet.firings_per_s``      firings per second of one core, of transitions that are expressions, as a job
                             runs them: the net of examples/xpnet/count.xpnet, whose two transitions have
                             conditions on two places
``pnml.read_s``              seconds until a file of PNML is a net that can run: 10,000 places, 10,000
                             transitions, 50,000 arcs, each with a name and a position
``pnml.states_per_s``        markings per second that ``check --states`` finds in a net of 50 places and 50
                             transitions, of which some 20 can fire at a time
``stream.items_per_s``       items per second through one stage of a pipeline that takes them in order, with
                             scheduler, host, worker and compute process
``stream.growth_mib``        MiB that the process of a job grows by while 1,000,000 items of an iterator go
                             through three stages and its results are read
``stream.composed_ratio``    processor time of a farm, or of map and reduce, as a stage of a pipeline to that
                             of the same alone, all processes together; the greater of the two. Each time
                             one runs right after the other, in turns the one or the other first: the median
                             of the ratios of these pairs

What one process computes alone is told by its processor time, so that other programs do not count.
"""

from __future__ import annotations

import random
import resource
import statistics
import time
from pathlib import Path

import trio
from figures import Figures, options_parser, own_cpu_s

from gspc_trio import farm, map_reduce, open_job, open_rts, pipeline
from gspc_trio.components.job.machine import Begin, JobEnded, JobMachine, Look
from gspc_trio.policies.scheduling import USUAL
from gspc_trio.protocol.values import dumps, join, loads
from gspc_trio.workflow.engine import WorkflowEngine
from gspc_trio.workflow.formats.format import ReadOptions, Source, find_format
from gspc_trio.workflow.formats.xpnet.compiling import compile_value
from gspc_trio.workflow.formats.xpnet.grammar import parse_expression
from gspc_trio.workflow.formats.xpnet.tree import TextStart
from gspc_trio.workflow.formats.xpnet.types import BOOL, LONG
from gspc_trio.workflow.states import explore

EXPRESSION = "${n} := ${n} + 1L; ${n} :lt: ${max}"
EVALUATIONS, SMALL_EVALUATIONS = 3_000_000, 3_000
FIRINGS, SMALL_FIRINGS = 400_000, 500
COUNT_NET = Path(__file__).parents[1] / "examples" / "xpnet" / "count.xpnet"
PLACES, SMALL_PLACES = 10_000, 50
ARCS_PER_PLACE = 5
MARKINGS, SMALL_MARKINGS = 100_000, 500
EXPLORED_PLACES = 50


def expressions_per_s(evaluations: int) -> float:
    """Return how often an expression is evaluated per second."""
    expression = parse_expression(EXPRESSION, TextStart("bench"))
    function = compile_value(expression, {"n": LONG, "max": LONG}, BOOL)
    begun = time.process_time()
    for number in range(evaluations):
        function(number, evaluations)
    return evaluations / (time.process_time() - begun)


def firings_per_s(firings: int) -> float:
    """Return how often expressions fire per second in a job."""
    data = COUNT_NET.read_bytes().replace(b"1000L", f"{firings}L".encode())
    workflow = find_format("xpnet").read(Source("count.xpnet", data), ReadOptions()).workflow(["n=0L"])
    engine = WorkflowEngine(workflow.net, workflow.values, dumps=dumps, loads=loads, join=join)
    job = JobMachine("j1", "count", engine, USUAL.scheduler("j1"), clock=time.monotonic)
    begun = time.process_time()
    actions = job.handle(Begin(), time.monotonic())
    while job.ended is None:
        actions = job.handle(Look(), time.monotonic())
    assert isinstance(actions[-1], JobEnded)
    assert engine.outputs() == {"result": [firings]}
    return engine.inline_fired / (time.process_time() - begun)


def pnml(places: int) -> bytes:
    """Return a net as a file of PNML, with as many transitions as places."""
    choices = random.Random(1)
    parts = ["<pnml xmlns='http://www.pnml.org/version-2009/grammar/pnml'><net id='n'><page id='page'>"]
    for number in range(places):
        for kind, label in (("place", "<initialMarking><text>1</text></initialMarking>"), ("transition", "")):
            parts.append(
                f"<{kind} id='{kind[0]}{number}'><name><text>{kind} {number}</text></name>"
                f"<graphics><position x='{number}' y='1'/></graphics>{label}</{kind}>\n"
            )
    for number in range(ARCS_PER_PLACE * places):
        here, other = f"t{number % places}", f"p{choices.randrange(places)}"
        source, target = (other, here) if number < 2 * places else (here, other)
        parts.append(
            f"<arc id='a{number}' source='{source}' target='{target}'>"
            "<inscription><text>1</text></inscription>"
            f"<graphics><position x='{number}' y='2'/></graphics></arc>\n"
        )
    return "".join([*parts, "</page></net></pnml>"]).encode()


def pnml_read_s(places: int) -> float:
    """Return how long a net is read."""
    chosen, source = find_format("pnml"), Source("bench.pnml", pnml(places))
    begun = time.process_time()
    chosen.read(source, ReadOptions()).workflow()
    return time.process_time() - begun


def pnml_states_per_s(markings: int) -> float:
    """Return how many markings of a net are found per second."""
    source = Source("bench.pnml", pnml(EXPLORED_PLACES))
    net = find_format("pnml").read(source, ReadOptions()).net
    begun = time.process_time()
    found = explore(net, markings)
    return found.markings / (time.process_time() - begun)


def increment(number: int) -> int:
    """Return the next number."""
    return number + 1


async def through_stages(items: int, stages: int) -> float:
    """Return how many items of a list go through the stages of a pipeline per second."""
    async with open_rts(cores=2) as rts:
        begun = time.perf_counter()
        async with open_job(pipeline(*[increment] * stages), rts=rts, values={"items": range(items)}) as job:
            outputs = await job.wait_outputs()
        took_s = time.perf_counter() - begun
    assert outputs["results"] == list(range(stages, items + stages))
    return items / took_s


async def growth_mib(items: int) -> float:
    """Return what this process grows by while items of an iterator go through three stages."""
    async with open_rts(cores=2) as rts:
        before, count = peak_mib(), 0
        net = pipeline(increment, increment, increment)
        async with open_job(net, rts=rts, values={"items": iter(range(items))}) as job:
            async for value in job.results():
                count += 1
                assert value == count + 2
        assert count == items
        return peak_mib() - before


def peak_mib() -> float:
    """Return the most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def composed_ratio(items: int, runs: int) -> float:
    """Return how much more processor time patterns take inside of a pipeline than alone."""
    of_farm = [farm(increment, ordered=True), pipeline(farm(increment))]
    of_reduction = [map_reduce(increment, sum, in_flight=1024), pipeline(map_reduce(increment, sum))]
    ratios = []
    async with open_rts(cores=2) as rts:
        for nets in (of_farm, of_reduction):
            pairs = []
            for run in range(runs + 1):
                took = [0.0, 0.0]
                for which in (0, 1) if run % 2 else (1, 0):
                    before = own_cpu_s()
                    async with open_job(nets[which], rts=rts, values={"items": range(items)}) as job:
                        await job.wait()
                    took[which] = own_cpu_s() - before
                pairs.append(took[1] / took[0])
            ratios.append(statistics.median(pairs[1:]))  # the first runs start processes
    return max(ratios)


def main() -> None:
    """Measure, and print each figure."""
    options = options_parser(__doc__).parse_args()
    figures = Figures(options.json)
    items, many = (2_000, 5_000) if options.small else (200_000, 1_000_000)
    growth = trio.run(growth_mib, many)  # first: what others have freed would be used again
    evaluations = SMALL_EVALUATIONS if options.small else EVALUATIONS
    figures.add("xpnet.expressions_per_s", expressions_per_s(evaluations), "/s")
    firings = SMALL_FIRINGS if options.small else FIRINGS
    figures.add("xpnet.firings_per_s", firings_per_s(firings), "/s")
    figures.add("pnml.read_s", pnml_read_s(SMALL_PLACES if options.small else PLACES), "s")
    markings = SMALL_MARKINGS if options.small else MARKINGS
    figures.add("pnml.states_per_s", pnml_states_per_s(markings), "/s")
    figures.add("stream.items_per_s", trio.run(through_stages, items, 1), "items/s")
    figures.add("stream.growth_mib", growth, "MiB")
    composed = (2_000, 2) if options.small else (20_000, 10)
    figures.add("stream.composed_ratio", trio.run(composed_ratio, *composed), "")


if __name__ == "__main__":
    main()
