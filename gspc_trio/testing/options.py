"""Options of a simulated run, and the report on it."""

from __future__ import annotations

from random import Random

from msgspec import Struct, field
from msgspec.structs import replace

from gspc_trio.testing.faults import Fault, Faults, random_step
from gspc_trio.testing.workload import TASK_S

SHAPE_MAX = {"hosts": 20, "cores": 8, "jobs": 10, "tasks": 500}
"""What a shape that is drawn from a seed has at most."""

ALL_TASKS_MAX = 1500
"""So many tasks all jobs of such a shape have at most, together: a run is to take some seconds."""


BATCH_STEPS = 60
"""Commands of a batch system in a run, about."""


class Options(Struct, frozen=True):
    """What is simulated.

    Attributes:
        hosts, cores: number of hosts, and of cores on each.
        jobs: number of jobs at one time.
        tasks: about how many tasks each job has.
        faults: what may happen.
        latency_s: mean latency of connections.
        schedule: what happens, instead of what the seed says.
        task_s: mean time of a task, about, in seconds.
        chained: about how many tasks one more job has, whose tasks are chains; 0: there is none.
        ranged: items of a farm of one more job, which travel in ranges; 0: there is none.
        full_checks: machines check themselves after each event; else large ones do it less often.
    """

    hosts: int = 3
    cores: int = 2
    jobs: int = 2
    tasks: int = 20
    faults: Faults = field(default_factory=Faults)
    latency_s: float = 0.0005
    schedule: tuple[Fault, ...] | None = None
    task_s: float = TASK_S
    full_checks: bool = False
    chained: int = 0
    ranged: int = 0


def crowding(options: Options) -> int:
    """Return how many times as much each host has to do, and to keep, as by default; 1 at least."""
    usual = Options()
    work, hosts = options.jobs * options.tasks, options.hosts
    return max(1, -(-work * usual.hosts // (usual.jobs * usual.tasks * hosts)))


def steps_of(options: Options) -> dict[str, int]:
    """Return about how many steps each role makes in a run."""
    tasks = options.tasks * options.jobs
    process = 100 + 10 * tasks
    return {"rts": process, "rif": process, "job": process, "compute": 2 * tasks, "batch": BATCH_STEPS}


def any_shape(seed: int, options: Options) -> Options:
    """Return the options with hosts, cores, jobs and tasks drawn from a seed: small ones as likely as large.

    Args:
        seed: of the run; what it draws there does not change.
        options: everything else.
    """
    random = Random(f"the shape of {seed}")
    shape = {name: random_step(random, most + 1) for name, most in SHAPE_MAX.items()}
    shape["tasks"] = min(shape["tasks"], ALL_TASKS_MAX // shape["jobs"])
    return replace(
        options, hosts=shape["hosts"], cores=shape["cores"], jobs=shape["jobs"], tasks=shape["tasks"]
    )


class Report(Struct, frozen=True):
    """How a run went.

    Attributes:
        seed, options: of the run.
        schedule: the faults that were to happen; ``happened`` says which did, and when.
        digest: fingerprint of all events.
        events: their number.
        simulated_s: time that passed in the simulation.
        broken: what did not hold, or "".
        story: what happened to the task or resource concerned.
    """

    seed: int
    options: Options
    schedule: tuple[Fault, ...]
    happened: tuple[str, ...]
    digest: str
    events: int
    simulated_s: float
    broken: str = ""
    story: tuple[str, ...] = ()
