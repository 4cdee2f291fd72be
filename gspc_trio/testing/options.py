"""What is simulated, and how it went."""

from __future__ import annotations

from msgspec import Struct, field

from gspc_trio.testing.faults import Fault, Faults
from gspc_trio.testing.workload import TASK_S


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
