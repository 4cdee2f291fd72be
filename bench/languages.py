"""How fast workflows that others wrote are read and run.

    python bench/languages.py [--json] [--small]

``xpnet.expressions_per_s``  evaluations per second of one core: ``${n} := ${n} + 1L; ${n} :lt: ${max}``
                             on two bindings of type long, which is one call that adds with a check for
                             overflow, assigns and compares
"""

from __future__ import annotations

import time

from figures import Figures, options_parser

from gspc_trio.workflow.formats.xpnet.compiling import compile_value
from gspc_trio.workflow.formats.xpnet.grammar import parse_expression
from gspc_trio.workflow.formats.xpnet.tree import TextStart
from gspc_trio.workflow.formats.xpnet.types import BOOL, LONG

EXPRESSION = "${n} := ${n} + 1L; ${n} :lt: ${max}"
EVALUATIONS, SMALL_EVALUATIONS = 3_000_000, 3_000


def expressions_per_s(evaluations: int) -> float:
    """Return how often an expression is evaluated per second."""
    expression = parse_expression(EXPRESSION, TextStart("bench"))
    function = compile_value(expression, {"n": LONG, "max": LONG}, BOOL)
    begun = time.perf_counter()
    for number in range(evaluations):
        function(number, evaluations)
    return evaluations / (time.perf_counter() - begun)


def main() -> None:
    """Measure, and print each figure."""
    options = options_parser(__doc__).parse_args()
    figures = Figures(options.json)
    evaluations = SMALL_EVALUATIONS if options.small else EVALUATIONS
    figures.add("xpnet.expressions_per_s", expressions_per_s(evaluations), "/s")


if __name__ == "__main__":
    main()
