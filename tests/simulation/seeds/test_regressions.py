"""Seeds that once found a fault of ours, with the schedule that was needed."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gspc_trio.testing.faults import Faults
from gspc_trio.testing.hunt import parse_schedule
from gspc_trio.testing.simulation import Options, simulate

LARGE = {"faults": Faults(small=False, grants=False, wide=False)}
"""Memory layers have room."""

TELLING = {"faults": Faults(wide=False)}
"""Hosts may tell how much memory they have; most were found before any could."""

SMALL = {"hosts": 2, "cores": 1, "jobs": 3, "tasks": 8}

FOUND = [
    # A job kept the idle core of a node with one core while others waited for the node.
    (20000, {**SMALL, "faults": Faults(journals=False, wide=False)}, "partition:rif:1:20"),
    # A job server took the place of one whose host had crashed, which itself went on for another one:
    # what that one held was never given back.
    (148, {}, "partition:job:4:5.5,full:job:304:0.2,crash:job:379"),
    # A RIF that had been started twice was refused, came back as the one that was up, and pushed it out.
    (22, {}, "cut:rif:3,twin:rif:8,stranger:rif:23,jump:rif:73:13"),
    # A RIF whose run-time system had parted from it waited, at work, while another was started in its place.
    (
        31,
        {},
        "partition:job:3:3,kill:rif:2,kill:rif:9,twin:rif:19,cut:rif:57,teardown:rif:64,crash:rts:1,jump:rts:8:3",
    ),
    # A job failed between taking a result in and handing out what it led to: the file of its journal, whose
    # snapshot came late, led to a state that counted the same tokens from another number on.
    (
        1176,
        {},
        "cancel:job:1,cut:job:321,shrink:rif:4,shrink:rif:5,jump:rif:11:3,echo:rif:73,kill:rif:76,crash:rts:16,"
        "stranger:rts:231",
    ),
    # A job whose connection to a run-time system with a state was cut came back as the job that it was, to
    # hosts that had been told that it was over: they refused it for ever.
    (1738, {}, "teardown:rif:3,look:rif:5,cut:rts:12,cut:rts:163"),
    (1768, {}, "pause:rts:4:13,partition:rts:8:0.2,cut:rts:328"),
    (2054, {}, "cancel:job:13,partition:job:119:3,cut:job:200,shrink:rif:1,teardown:rif:1"),
    # A submit that came again, long after its job was over, was refused; its numbers were those of a task of
    # another job that was just being staged at the worker, and what was known of that one was thrown away.
    (2168, {}, "stop:job:358,shrink:rif:1,partition:rif:4:3,look:rif:27,crash:rif:358,echo:rif:402"),
    # A job without a journal had a task ended that may run once, and ran it again.
    (2758, {}, "cut:job:153"),
    # A job that had been stopped took over what an earlier job server had given out.
    (2682, {}, "full:job:7:13,kill:job:115,stop:job:157"),
    # The simulation's own: a run-time system that ended closed the listener of the next one; a job server
    # that was killed while it said why its job had failed was held to have failed for no reason.
    (2305, {}, "jump:job:26:3,pause:rts:8:13,kill:rts:44"),
    (2103, {}, "cancel:job:1,kill:job:22,pause:job:124:7,crash:job:148"),
    # Another one: a task that failed while its job was being ended counted as the reason.
    (2864, {}, "pause:job:108:20,kill:rts:9,partition:rts:51:0.2"),
    # A job's connection to its memory layer broke: what its tasks made after that stayed there for ever.
    (50, LARGE, "cut:job:21,cut:job:158"),
    # The process of a coordinator lost the connection to its own memory server, and went on without.
    (3042, LARGE, "cut:rts:1,cut:iml:62,cut:iml:437"),
    # The simulation's own: a host that had not come up and then was started twice was given too little time.
    (4179, {}, "crash:rif:1,look:rif:19,twin:rif:139"),
    # A memory server that had lost its coordinator went on serving until what was queued for that was sent.
    (
        7407,
        {},
        "jump:job:22:7,teardown:rif:1,echo:rif:30,crash:rif:110,cut:rts:7,requeue:rif:33,partition:iml:308:7",
    ),
    # The simulation's own: a job failed since others had taken all memory of a host.
    (7377, {}, "none"),
    # A task whose data was being made again, on a host that had crashed, was given back too often and failed.
    (3678, LARGE, "crash:rif:476,jump:rts:21:1,kill:store:190,kill:user:1"),
    # A RIF that was started again beside itself could not be reached when the second, refused, ended: the
    # next incarnation was at work on its host before it had ended.
    (
        149,
        {"faults": Faults.parse("requeues=4,pauses=3,partitions=4,grants=0,wide=0")},
        "crash:job:1,partition:rif:2:1,shrink:rif:2,shrink:rif:35,partition:rts:169:7,requeue:rif:7,requeue:rif:21",
    ),
    # Grants were recalled from a job that could not be heard; when it was back nobody recalled them again, so
    # that none came free for its pairs of cores.
    (
        241,
        {},
        "cancel:job:2,stop:job:193,pause:job:454:20,shrink:rif:11,jump:rts:19:7,pause:store:8:20",
    ),
    # Data was lost while a host fetched a copy; the task that made it again there was told that such data was
    # there, and took that for its own: nobody had it when the copy was given up.
    (
        102,
        {},
        "look:job:3,stranger:rif:2,shrink:rif:26,cut:rif:71,pause:rts:2:20,look:rts:101,cut:store:77,"
        "pause:store:265:20",
    ),
    # The simulation's own: what a job that is back does not claim it has given back, without another word.
    (
        14595,
        {},
        "cancel:job:1,stop:job:61,stranger:rif:4,shrink:rif:10,jump:rif:21:3,partition:rts:6:5.5,kill:rts:230,"
        "dawdle:job:1,requeue:rif:5",
    ),
    # Another one: a memory server that stood still while it started found that its host had one.
    (19393, {}, "full:job:1:20,kill:job:187,jump:rts:4:3,kill:iml:64,pause:store:1:7"),
    # Somebody removed the node whose memory a memory server had, and added it again: that grant was nowhere.
    (
        41,
        TELLING,
        "kill:compute:1,echo:rif:2,teardown:rif:2,cut:rif:4,echo:rif:4,look:rif:27,shrink:rif:237,echo:rif:356,"
        "cut:rts:1,kill:rts:2,jump:rts:11:3,stranger:rts:61,crash:iml:3,cut:iml:31,stranger:iml:34,"
        "partition:store:1:0.2,cut:store:26,kill:user:7,pause:user:19:3,kill:user:91,full:store:8:3",
    ),
    # A machine was suspended while a server waited for memory that was free: it had waited for too long.
    (
        956,
        TELLING,
        "look:job:16,cut:rif:4,look:rif:24,jump:rif:359:13,crash:rts:25,cut:rts:99,cut:iml:2,cut:iml:15",
    ),
    # The server of a job's host could not have its memory, and nobody tried again: a result was lost with it.
    (
        119181885,
        TELLING,
        "cut:rif:145,kill:rts:1,pause:rts:351:13,requeue:rif:3,stranger:iml:23,pause:store:73:13,"
        "partition:store:75:20",
    ),
    # A job had a grant of an earlier run-time system on a host that rested by then: it kept it for as long as
    # it liked, and the checker held it to be given out.
    (
        91053,
        {"faults": Faults()},
        "pause:job:61:3,echo:rif:1,shortage:rif:1:5.5,shrink:rif:49,requeue:rif:3,kill:job:40,kill:rif:75,"
        "kill:rts:229",
    ),
    # A process that had been suspended sent something before it looked at the clock: it took the other side
    # for silent at once.
    (516, {}, "jump:rif:26:7"),
    # A job came back with a grant on a node that was to leave when it is released. Its host had told less of
    # that grant than the job did: it was freed first, the node went, and nobody told the job.
    (
        578,
        {"faults": Faults()},
        "pause:rif:2:7,shrink:rif:24,shrink:rif:101,jump:rif:182:20,kill:rts:52,kill:rts:218,kill:rif:11,"
        "kill:rts:99",
    ),
    # The simulation's own: the second of two requests that prefer one core was held to have waited as long as
    # the first.
    (
        521,
        {"faults": Faults()},
        "cancel:job:5,look:job:90,partition:job:108:5.5,shortage:rif:10:7,shrink:rif:27,pause:rts:1:20,"
        "stranger:rts:1,look:rts:68,dawdle:job:6,kill:rif:1,shrink:rif:2,kill:rif:18",
    ),
]


@pytest.mark.parametrize(("seed", "size", "schedule"), FOUND)
def test_what_was_broken_once_holds(seed, size, schedule):
    """In the cluster: what is simulated besides was not what was broken."""
    options = Options(
        **{"faults": Faults(grants=False, wide=False), **size, "schedule": parse_schedule(schedule)}
    )
    report = simulate(seed, replace(options, faults=replace(options.faults, studies=False)))
    assert report.broken == "", report.story
