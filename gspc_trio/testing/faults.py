"""Faults of a simulated cluster: their kinds, how many, and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

LAYER_ROLES = ("iml", "store", "user")
"""A memory layer's first process, with its coordinator; its servers on other hosts; its other clients."""

STUDY_ROLES = ("launcher", "server", "client", "queue")
"""The launcher of a study, its server, jobs of clients, and the batch system that has all these jobs."""

ROLES = ("rts", "rif", "job", "compute", "batch", *LAYER_ROLES, *STUDY_ROLES)
"""What faults happen to."""

KINDS: Mapping[str, tuple[str, ...]] = {
    "kill": ("rts", "rif", "job", "compute"),
    "crash": ("rts", "rif", "job"),
    "cut": ("rts", "rif", "job"),
    "partition": ("rts", "rif", "job"),
    "pause": ("rts", "rif", "job"),
    "jump": ("rts", "rif", "job"),
    "twin": ("rif",),
    "stop": ("job",),
    "stranger": ("rts", "rif", "job"),
    "echo": ("rif",),
    "look": ("rts", "rif", "job"),
    "shrink": ("rif",),
    "teardown": ("rif",),
    "cancel": ("job",),
    "full": ("job",),
    "shortage": ("rif",),
}
"""Kind of fault -> roles that it may happen to."""

LATER_KINDS: Mapping[str, tuple[str, ...]] = {
    "requeue": ("rif",),
    "dawdle": ("rts", "job"),
    "outage": ("job",),
}
"""The same for kinds that came later; they are drawn apart, so that a seed keeps what it had before."""

LATEST_KINDS: Mapping[str, tuple[str, ...]] = {
    "regret": ("job",),
}
"""The same for what came later still, drawn apart from these, too."""

NEWER_KINDS: Mapping[str, tuple[str, ...]] = {
    "crowd": ("rts", "rif", "job"),
    "absence": ("rif",),
    "clash": ("rif", "rif", "job"),
}
"""The same for those that came later still."""

ANOMALY_KINDS: Mapping[str, tuple[str, ...]] = {
    "anomaly": ("rif",),
}
"""The same for what monitoring finds, in runs with ``--anomalies act``."""

SITE_KINDS: Mapping[str, tuple[str, ...]] = {
    "unclear": ("batch",),
    "stale": ("batch",),
    "refusal": ("batch",),
    "again": ("batch",),
    "doubled": ("batch",),
    "loss": ("batch",),
    "expiry": ("batch",),
    "hold": ("batch",),
    "hopeless": ("batch",),
}
"""The same for what happens to a batch system, whose steps are its commands."""

STUDY_KINDS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(SITE_KINDS, ("queue",)),
    "kill": ("server", "server", "client"),
    "crash": ("server", "client"),
    "cut": ("server",),
    "partition": ("server",),
    "pause": ("server",),
    "delay": ("launcher",),
    "return": ("launcher",),
    "stranger": ("launcher",),
    "signal": ("launcher",),
    "resume": ("launcher",),
}
"""The same for what happens to a study."""

LAYER_KINDS: Mapping[str, tuple[str, ...]] = {
    "kill": ("store", "store", "store", "iml", "user"),
    "crash": ("store", "store", "iml"),
    "cut": ("store", "store", "user", "iml"),
    "partition": ("store", "store", "user", "iml"),
    "pause": ("store", "store", "user", "iml"),
    "stranger": ("store", "iml"),
}
"""The same for what happens to a memory layer; a role that is named more often is drawn more often."""

LATER_LAYER_KINDS: Mapping[str, tuple[str, ...]] = {
    "full": ("store", "store", "iml"),
}
"""The same for what came later."""

_MENUS = (
    *(KINDS, LATER_KINDS, LATEST_KINDS, NEWER_KINDS, ANOMALY_KINDS),
    *(SITE_KINDS, LAYER_KINDS, LATER_LAYER_KINDS, STUDY_KINDS),
)

LASTING = frozenset(
    {
        *("partition", "pause", "jump", "full", "shortage", "regret", "absence", "clash"),
        *("unclear", "stale", "refusal", "hold", "hopeless", "delay", "resume", "anomaly"),
    }
)
"""Kinds that last for a while."""

LASTING_S = (0.2, 1.0, 3.0, 5.5, 7.0, 13.0, 20.0)
"""How long what lasts may last: shorter and longer than heartbeat, lease and three leases."""

ABSENT_S = (1.0, 7.0, 20.0, 200.0)
"""The same for a host that starts no RIF; a RIF has used up all its pauses but the last by then."""


class Fault(Struct, frozen=True):
    """One thing that happens.

    Attributes:
        kind: one of :data:`KINDS`, or of those that came later.
        role: to whom: the process of this role that makes its ``step``-th step.
        step: of all steps of that role: sends, receives, events of machines; tasks begun, for compute.
        lasts_s: for how long, if it lasts.
    """

    kind: str
    role: str
    step: int
    lasts_s: float = 0.0

    @classmethod
    def parse(cls, word: str) -> Fault:
        """Read ``kind:role:step`` or ``kind:role:step:seconds``.

        Raises:
            ValueError: no such kind or role, or no number.
        """
        kind, _, rest = word.partition(":")
        roles = dict.fromkeys(role for menu in _MENUS for role in menu.get(kind, ()))
        if not roles:
            names = dict.fromkeys(name for menu in _MENUS for name in menu)
            raise ValueError(f"no fault {kind!r}; there are: {', '.join(names)}")
        role, _, rest = rest.partition(":")
        if role not in roles:
            raise ValueError(f"{kind} does not happen to {role!r}, but to {', '.join(roles)}")
        step, _, lasts = rest.partition(":")
        return cls(kind, role, int(step), float(lasts or 0))

    def __str__(self) -> str:
        lasts = f" for {self.lasts_s:g} s" if self.lasts_s else ""
        return f"{self.kind} {self.role} at step {self.step}{lasts}"


class Faults(Struct, frozen=True):
    """The fault menu: how many of each kind a run may meet, at most.

    Attributes:
        kills: processes killed like by SIGKILL; their connections break, maybe in the middle of a frame.
        crashes: hosts that lose their power: connections fall silent, nobody answers.
        cuts: connections that break at any byte while both ends live.
        partitions: one direction of a connection delivers nothing for a while, then everything.
        pauses: processes stopped for a while like by SIGSTOP, then continued.
        jumps: the clock jumps ahead for all, as when a machine was suspended.
        twins: RIFs that a strategy starts twice.
        stops: jobs that their users stop.
        strangers: peers that do not know the token.
        echoes: submits that arrive once more, long after.
        looks: clients that watch and ask.
        shrinks: resources that somebody removes, and adds again.
        teardowns: RIFs that somebody takes down.
        cancels: tasks cancelled by their user, who also changes the weight of their job.
        fulls: disks with journals, or of memory servers, that take no more for a while.
        shortages: hosts that can start no process for a while.
        requeues: RIFs that a strategy starts again while they run, and of which it knows only the second.
        dawdles: clients that watch, and take nothing for a while.
        outages: hosts that lose their power just as a journal is written, and again when it is written next.
        regrets: users who cancel tasks, or stop their job, just as its hosts cannot be heard.
        crowds: many at once at one listener who do not know the token.
        absences: hosts whose RIF ends, and that start none for a while, or one that says nothing.
        clashes: connections to the run-time system that carry nothing while it changes what is at their end.
        anomalies: those of hosts, in runs whose run-time system does something about them.
        delays: servers of a study that connect late.
        returns: servers of a study that connect once more, or after another has taken over.
        signals: those that end the launcher of a study.
        resumes: launchers of a study that are killed, and go on with their journal after a while.
        engines: of each kind that happens to a batch system: see ``SITE_KINDS``.
        races: whether compute processes may read a task just as their queue is taken back.
        tight: whether frames, credit for calls and buffers may be small.
        states: whether the run-time system may have ``--state``, so that RIFs and jobs await the next one.
        journals: whether jobs may have journals, of which a kill leaves what it likes of the last write.
        layers: whether jobs may keep large values in a memory layer, with faults of its own.
        small: whether memory layers may have little room, disks to spill to, and send small chunks.
        grants: whether hosts with memory layers may tell how much memory they have: then servers hold theirs.
        wide: whether tasks may ask for more than cores and nodes, and jobs may fail, in some of the runs.
        drills: whether there may be a host besides whose run-time system and jobs are played.
        sites: whether there may be a site with a batch system.
        studies: whether a study may be simulated, besides the cluster.
    """

    kills: int = 3
    crashes: int = 1
    cuts: int = 2
    partitions: int = 1
    pauses: int = 1
    jumps: int = 1
    twins: int = 1
    stops: int = 1
    strangers: int = 1
    echoes: int = 3
    looks: int = 2
    shrinks: int = 2
    teardowns: int = 1
    cancels: int = 1
    fulls: int = 1
    shortages: int = 1
    requeues: int = 1
    dawdles: int = 1
    outages: int = 1
    regrets: int = 1
    crowds: int = 1
    absences: int = 1
    clashes: int = 2
    anomalies: int = 3
    delays: int = 1
    returns: int = 2
    signals: int = 2
    resumes: int = 1
    engines: int = 1
    races: bool = True
    tight: bool = True
    states: bool = True
    journals: bool = True
    layers: bool = True
    small: bool = True
    grants: bool = True
    wide: bool = True
    drills: bool = True
    sites: bool = True
    studies: bool = True

    @classmethod
    def none(cls) -> Faults:
        """Return the empty menu."""
        counts: dict[str, Any] = dict.fromkeys(_COUNTS.values(), 0)
        switches = ("races", "tight", "states", "journals", "layers", "small", "grants", "wide")
        flags = dict.fromkeys((*switches, "drills", "sites", "studies"), False)
        return cls(**counts, **flags)

    def draw(
        self, random: Random, steps: Mapping[str, int], kinds: Mapping[str, Sequence[str]] = KINDS
    ) -> tuple[Fault, ...]:
        """Make a schedule.

        Args:
            random: to draw from.
            steps: about how many steps each role makes.
            kinds: what may happen to whom.
        """
        faults: list[Fault] = []
        for kind, roles in kinds.items():
            for _ in range(random.randint(0, getattr(self, _COUNTS[kind]))):
                role = random.choice(roles)
                times_s = ABSENT_S if kind == "absence" else LASTING_S
                lasts_s = random.choice(times_s) if kind in LASTING else 0.0
                faults.append(Fault(kind, role, random_step(random, steps[role]), lasts_s))
        return tuple(sorted(faults, key=lambda fault: (fault.role, fault.step)))

    @classmethod
    def parse(cls, text: str) -> Faults:
        """Read a menu: ``kills=2,cuts=0``; what is not named is as usual, after ``none`` it is 0.

        Raises:
            ValueError: no such fault, or no number.
        """
        menu = cls()
        for word in filter(None, text.split(",")):
            name, _, number = word.partition("=")
            if name == "none":
                menu = cls.none()
            elif name not in cls.__struct_fields__:
                raise ValueError(f"no fault {name!r}; there are: {', '.join(cls.__struct_fields__)}")
            else:
                changes: dict[str, object] = {name: int(number or 1)}
                menu = replace(menu, **changes)
        return menu


_COUNTS = {
    **dict.fromkeys(SITE_KINDS, "engines"),
    "kill": "kills",
    "crash": "crashes",
    "cut": "cuts",
    "partition": "partitions",
    "pause": "pauses",
    "jump": "jumps",
    "twin": "twins",
    "stop": "stops",
    "stranger": "strangers",
    "echo": "echoes",
    "look": "looks",
    "shrink": "shrinks",
    "teardown": "teardowns",
    "cancel": "cancels",
    "full": "fulls",
    "shortage": "shortages",
    "requeue": "requeues",
    "dawdle": "dawdles",
    "outage": "outages",
    "regret": "regrets",
    "crowd": "crowds",
    "absence": "absences",
    "clash": "clashes",
    "anomaly": "anomalies",
    "delay": "delays",
    "return": "returns",
    "signal": "signals",
    "resume": "resumes",
}


def random_step(random: Random, most: int) -> int:
    """Draw a step; as likely among the first ten as among the first hundred."""
    return max(1, int(most ** random.random()))


class Trigger:
    """Counts the steps of each role and says what is due.

    Args:
        schedule: of faults.
    """

    def __init__(self, schedule: Sequence[Fault]) -> None:
        self.steps: dict[str, int] = dict.fromkeys(ROLES, 0)
        self._waiting: dict[str, list[Fault]] = {role: [] for role in ROLES}
        for fault in sorted(schedule, key=lambda fault: -fault.step):
            self._waiting[fault.role].append(fault)

    def step(self, role: str) -> Sequence[Fault]:
        """Count one step of a role; return the faults that are due with it."""
        waiting = self._waiting.get(role)
        if not waiting:  # what is over need not be counted, and a long run has many steps
            return ()
        number = self.steps[role] = self.steps[role] + 1
        due = []
        while waiting and waiting[-1].step <= number:
            due.append(waiting.pop())
        return due
