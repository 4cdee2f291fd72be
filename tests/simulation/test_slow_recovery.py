"""Data that is made again takes as long as the task that makes it: who needs it waits."""

from __future__ import annotations

import logging
from random import Random

import trio

from gspc_trio import Net
from gspc_trio.components.job.shell.recovery import FIRST_TASK_ID
from gspc_trio.components.worker.messages import Submission
from gspc_trio.core.task import Requirement
from gspc_trio.iml.quota import Quota
from gspc_trio.iml.shell.platform import Sizes
from gspc_trio.protocol.values import dumps
from gspc_trio.testing.cluster import open_cluster
from gspc_trio.testing.determinism import Gate, seeded_trio, simulated_clock
from gspc_trio.testing.layer.world import LayerWorld
from gspc_trio.testing.simulated.backend import Behaviour

AGAIN_S = 200.0
"""How long the lost value takes to be made again: longer than a worker may give a task back."""


def nothing(*_: object) -> None:
    """Tasks do what ``behave`` says."""


def behave(submission: Submission, code: bytes) -> Behaviour:
    del code
    if submission.task_id >= FIRST_TASK_ID:
        return Behaviour(AGAIN_S, ((dumps(b"large" * 100),),))
    if len(submission.arguments) == 2:
        return Behaviour(0.1, ((dumps("used"),),))
    return Behaviour(5.0 if dumps("slow") in submission.arguments else 0.1, ((dumps(b"large" * 100),),))


def net() -> Net:
    there, here = Requirement("core", ("r2.node",)), Requirement("core", ("r1.node",))
    net = Net("slow recovery")
    net.input("quick", ["quick"])
    net.input("slow", ["slow"])
    made, other = net.place("made"), net.place("other")
    net.transition("make", nothing, inputs=["quick"], outputs=[made], requires=there)
    net.transition("take long", nothing, inputs=["slow"], outputs=[other], requires=here)
    net.transition("use", nothing, inputs=[made, other], outputs=[net.output("result")], requires=here)
    return net


async def main() -> None:
    Gate.install()
    layers = LayerWorld(Random(1), quota=Quota(1 << 22), sizes=Sizes(), bytes_min=100)
    async with open_cluster(1, hosts=2, cores=1, behave=behave, layers=layers) as cluster:
        await layers.start_layer()
        await cluster.start_rts()
        job = cluster.start_job("job", net(), data=layers.layer)
        await trio.sleep(3.0)
        [victim] = [one for one in cluster.processes if (one.host, one.role) == ("h2", "store")]
        victim.kill()
        with trio.fail_after(2 * AGAIN_S):
            await job.process.ended.wait()
        assert job.result is not None
        assert job.result.state == "finished", job.result.failures
        assert job.result.outputs == {"result": ["used"]}
        assert trio.current_time() > AGAIN_S
        layers.close()


def test_who_needs_lost_data_waits_until_it_is_there_again() -> None:
    logging.disable(logging.WARNING)
    try:
        with seeded_trio(1):
            trio.run(main, clock=simulated_clock())
    finally:
        logging.disable(logging.NOTSET)
