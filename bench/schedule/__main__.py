"""Scheduling: what policies are worth.

    python -m bench.schedule [--json] [--small] [--traces FOLDER] [PART...]

``PART`` is one of the modules of this folder that measure something; by default all are run. ``FOLDER`` has
recorded runs in WfFormat; parts that replay them are left out, with a line that says so, if it is not there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from figures import Figures, options_parser

from schedule import managers, model, placement, queues, real, simulated, whole_path
from schedule.replay import Skipped

TRACES = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "wfinstances"
"""Where recorded runs lie by default: beside the repository, since they have a licence of their own."""

PARTS: Mapping[str, Callable[[Figures, bool, Path], None]] = {
    "simulated": simulated.measure,
    "model": model.measure,
    "managers": managers.measure,
    "queues": queues.measure,
    "placement": placement.measure,
    "whole_path": whole_path.measure,
    "real": real.measure,
}
"""Name of a part -> measures: where figures go, whether to be small, the folder of the traces."""


def main() -> None:
    """Measure and print."""
    parser = options_parser(__doc__)
    parser.add_argument("--traces", type=Path, default=TRACES, help="folder with recorded runs")
    parser.add_argument("parts", metavar="PART", nargs="*", help="which; all by default")
    options = parser.parse_args()
    for name in options.parts:
        if name not in PARTS:
            parser.error(f"there is no {name}; there are {', '.join(PARTS)}")
    figures = Figures(options.json)
    for name in options.parts or PARTS:
        try:
            PARTS[name](figures, options.small, options.traces)
        except Skipped as skipped:
            print(f"{name} is left out: {skipped}", file=sys.stderr)


if __name__ == "__main__":
    main()
