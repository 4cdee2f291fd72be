"""Tasks that need several cores at once, among tasks that need one.

gspc-jobserver run examples/gang.py --set gangs=4 --set width=2 --set singles=20

A gang gets all its cores or none, and nobody keeps some of them while waiting for the rest; the stream of
single tasks does not starve it.
"""

import time
from collections.abc import Mapping
from typing import Any

from gspc_trio import Net, Workflow, held_resources


def single(number: int) -> int:
    """Use one core for a while."""
    time.sleep(0.01)
    return number


def gang(number: int) -> dict[str, Any]:
    """Use all the cores that the task holds, and say which these were and when."""
    began_s = time.time()
    time.sleep(0.02)
    cores = [name for name, _ in held_resources()]
    hosts = sorted({host for _, host in held_resources()})
    return {"number": number, "cores": cores, "hosts": hosts, "began_s": began_s, "ended_s": time.time()}


def overlaps(results: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Return the pairs of gangs that had a core at the same time: there must be none."""
    found = []
    for index, one in enumerate(results):
        for other in results[index + 1 :]:
            at_once = one["began_s"] < other["ended_s"] and other["began_s"] < one["ended_s"]
            if at_once and set(one["cores"]) & set(other["cores"]):
                found.append((one["number"], other["number"]))
    return found


def workflow(gangs: int = 4, width: int = 2, singles: int = 20) -> Workflow:
    """Run so many gangs of ``width`` cores each among so many tasks that need one core."""
    net = Net("gang")
    alone, done = net.input("alone"), net.output("done")
    together, results = net.input("together"), net.output("results")
    net.transition("single", single, {"number": alone}, done)
    net.transition("gang", gang, {"number": together}, results, requires=["core"] * width)

    def report(outputs: Mapping[str, list[Any]]) -> None:
        for result in sorted(outputs["results"], key=lambda result: result["began_s"]):
            print(f"gang {result['number']}: {', '.join(result['cores'])} on {', '.join(result['hosts'])}")
        print(
            f"{len(outputs['done'])} single tasks; cores used twice at a time: {overlaps(outputs['results'])}"
        )

    return Workflow(net, {"alone": range(singles), "together": range(gangs)}, report)
