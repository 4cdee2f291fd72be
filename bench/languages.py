"""How fast workflows that others wrote are read and run.

    python bench/languages.py [--json] [--small]

``xpnet.expressions_per_s``  evaluations per second of one core: ``${n} := ${n} + 1L; ${n} :lt: ${max}``
                             on two bindings of type long, which is one call that adds with a check for
                             overflow, assigns and compares
``pnml.read_s``              seconds until a file of PNML is a net that can run: 10,000 places, 10,000
                             transitions, 50,000 arcs, each with a name and a position
``pnml.states_per_s``        markings per second that ``check --states`` finds in a net of 50 places and 50
                             transitions, of which some 20 can fire at a time
"""

from __future__ import annotations

import random
import time

from figures import Figures, options_parser

from gspc_trio.workflow.formats.format import ReadOptions, Source, find_format
from gspc_trio.workflow.formats.xpnet.compiling import compile_value
from gspc_trio.workflow.formats.xpnet.grammar import parse_expression
from gspc_trio.workflow.formats.xpnet.tree import TextStart
from gspc_trio.workflow.formats.xpnet.types import BOOL, LONG
from gspc_trio.workflow.states import explore

EXPRESSION = "${n} := ${n} + 1L; ${n} :lt: ${max}"
EVALUATIONS, SMALL_EVALUATIONS = 3_000_000, 3_000
PLACES, SMALL_PLACES = 10_000, 50
ARCS_PER_PLACE = 5
MARKINGS, SMALL_MARKINGS = 100_000, 500
EXPLORED_PLACES = 50


def expressions_per_s(evaluations: int) -> float:
    """Return how often an expression is evaluated per second."""
    expression = parse_expression(EXPRESSION, TextStart("bench"))
    function = compile_value(expression, {"n": LONG, "max": LONG}, BOOL)
    begun = time.perf_counter()
    for number in range(evaluations):
        function(number, evaluations)
    return evaluations / (time.perf_counter() - begun)


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
    begun = time.perf_counter()
    chosen.read(source, ReadOptions()).workflow()
    return time.perf_counter() - begun


def pnml_states_per_s(markings: int) -> float:
    """Return how many markings of a net are found per second."""
    source = Source("bench.pnml", pnml(EXPLORED_PLACES))
    net = find_format("pnml").read(source, ReadOptions()).net
    begun = time.perf_counter()
    found = explore(net, markings)
    return found.markings / (time.perf_counter() - begun)


def main() -> None:
    """Measure, and print each figure."""
    options = options_parser(__doc__).parse_args()
    figures = Figures(options.json)
    evaluations = SMALL_EVALUATIONS if options.small else EVALUATIONS
    figures.add("xpnet.expressions_per_s", expressions_per_s(evaluations), "/s")
    figures.add("pnml.read_s", pnml_read_s(SMALL_PLACES if options.small else PLACES), "s")
    markings = SMALL_MARKINGS if options.small else MARKINGS
    figures.add("pnml.states_per_s", pnml_states_per_s(markings), "/s")


if __name__ == "__main__":
    main()
