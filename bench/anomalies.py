"""How well and how soon anomalies of this host are found that are put into it for real.

    python bench/anomalies.py [--json] [--small]

``anomaly.f1``        mean over classes of the harmonic mean of precision and recall; a class is found if it
                      is on while its anomaly is there, and found wrongly if it is on and another one is
``anomaly.detect_s``  the longest time until a class was found, of those that were

The host should be idle, and not shared: what others do there is an anomaly. Anomalies that need rights (slow
processors, failing memory and disks, slow links) are not among them.
"""

from __future__ import annotations

import subprocess
import sys
import time
from functools import partial

import trio
from figures import Figures, options_parser

from gspc_trio.components.monitor.detector import Detector, Finding
from gspc_trio.components.monitor.messages import MonitorTold
from gspc_trio.components.monitor.shell.sampling import sample

LAST_S = {"dial": 40.0, "ddot": 40.0, "copy": 40.0, "memeater": 60.0, "leak": 90.0}
CLEAN_S, PAUSE_S = 50.0, 45.0


async def _here() -> bool:
    return True


async def found(kinds: dict[str, float]) -> tuple[dict[str, tuple[float, float]], list[Finding]]:
    """Put anomalies into this host, one after the other; return when each was there, and what was found."""
    detector, when = Detector(), dict[str, tuple[float, float]]()
    findings: list[Finding] = []

    def take(told: MonitorTold) -> None:
        if told.hardware is not None:
            detector.joined("here", len(told.hardware.cpus))
        for frame in told.nodes:
            findings.extend(detector.take("here", frame))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(sample, take, round_trip=_here))
        await trio.sleep(CLEAN_S)
        for kind, last_s in kinds.items():
            begin_s = time.time()
            order = [sys.executable, "-m", "gspc_trio.testing.anomalies", kind, "--for-s", str(last_s)]
            # Its parent ends at once: what is below this process would be of tasks.
            await trio.run_process(["sh", "-c", '"$@" &', "sh", *order], stderr=subprocess.DEVNULL)
            await trio.sleep(last_s)
            when[kind] = begin_s, time.time()
            await trio.sleep(PAUSE_S)
        nursery.cancel_scope.cancel()
    return when, findings


def score(when: dict[str, tuple[float, float]], findings: list[Finding]) -> tuple[float, dict[str, float]]:
    """Return the mean of F1 over classes, and class -> seconds until it was found."""
    on = [one for one in findings if one.is_on and one.subject == "host"]
    soon: dict[str, float] = {}
    f1 = []
    for kind, (begin_s, end_s) in when.items():
        hits = [one.at_s - begin_s for one in on if one.kind == kind and begin_s <= one.at_s <= end_s + 10]
        wrong = sum(one.kind == kind and not begin_s <= one.at_s <= end_s + 10 for one in on)
        if hits:
            soon[kind] = min(hits)
        hit = bool(hits)
        f1.append(2 * hit / (2 * hit + wrong + (not hit)))
    return sum(f1) / len(f1), soon


def main() -> None:
    """Measure and print."""
    chosen = options_parser(__doc__).parse_args()
    figures = Figures(chosen.json)
    kinds = {"dial": 30.0} if chosen.small else LAST_S
    when, findings = trio.run(found, kinds)
    f1, soon = score(when, findings)
    for kind in kinds:
        print(
            kind,
            "found after" if kind in soon else "not found",
            f"{soon.get(kind, 0):.0f} s",
            file=sys.stderr,
        )
    for one in findings:
        print(f"{one.at_s:.0f} {one.kind} {one.subject} {one.is_on}: {one.evidence}", file=sys.stderr)
    figures.add("anomaly.f1", f1, "")
    if soon:
        figures.add("anomaly.detect_s", max(soon.values()), "s")


if __name__ == "__main__":
    main()
