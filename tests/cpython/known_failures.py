"""The tests of CPython that fail with our executor and pool, and why; ``docs/executor.md`` lists them."""

from __future__ import annotations

_PROCESSES = "it looks at the processes of the standard pool (`_processes`), or how they are started"
_PROGRAM = (
    "its program imports the executor by name from `concurrent.futures`; our own tests run such programs"
)
_OF_ITS_CLASS = "its function is a method of the class that holds the pool, which cannot be sent to a process"

KNOWN_FAILURES: dict[str, str] = {
    "ExecutorShutdownTest.test_cancel_futures": "it expects that some tasks have begun when it cancels",
    "ExecutorShutdownTest.test_hang_gh83386": _PROGRAM,
    "ExecutorShutdownTest.test_interpreter_shutdown": _PROGRAM,
    "ExecutorShutdownTest.test_submit_after_interpreter_shutdown": _PROGRAM,
    "PoolTest.test_make_pool": "it looks at the processes of the standard pool (`_pool`)",
    "PoolTest.test_map_no_failfast": "its exception has a message of 1 MiB: such a one comes as `TaskFailed`",
    "PoolTest.test_map_unplicklable": "an argument that cannot be pickled is a `BadValue` that says why",
    "PoolTest.test_traceback": _OF_ITS_CLASS,
    "PoolTest.test_wrapped_exception": _OF_ITS_CLASS,
    "ProcessPoolExecutorTest.test_idle_process_reuse_multiple": _PROCESSES,
    "ProcessPoolExecutorTest.test_idle_process_reuse_one": _PROCESSES,
    "ProcessPoolExecutorTest.test_killed_child": "it kills one of `_processes` and expects a broken pool: "
    "here a lost task is tried again, and does not break the executor",
    "ProcessPoolExecutorTest.test_max_tasks_early_shutdown": _PROCESSES,
    "ProcessPoolExecutorTest.test_max_tasks_per_child": _PROCESSES,
    "ProcessPoolExecutorTest.test_max_tasks_per_child_defaults_to_spawn_context": _PROCESSES,
    "ProcessPoolExecutorTest.test_saturation": _PROCESSES,
    "ProcessPoolExecutorTest.test_traceback": "it asks for `_RemoteTraceback` of the standard pool; "
    "ours is `gspc_trio.executor.RemoteTraceback`",
}
"""Name of the test -> why it fails."""
