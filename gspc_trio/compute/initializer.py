"""The initializer of a job: run once in a compute process or thread, before its first task.

A function of the main program travels by value, with the globals that it uses, and so do tasks: each would
have globals of its own. But what an initializer sets is for tasks. So it takes the place of what functions of
the same module bring later.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import FunctionType, MethodType, ModuleType

from gspc_trio.compute.code import decode_code
from gspc_trio.compute.functions import find_call

_BY_ITSELF = (FunctionType, type, ModuleType)
"""What an initializer uses of these, tasks bring themselves."""


def run_initializer(data: bytes) -> None:
    """Run an encoded initializer; what it returns is nobody's.

    Raises:
        Exception: whatever opening or calling it raises.
    """
    call = find_call(decode_code(data), None, None)
    names: dict[str, object] = getattr(_function_in(call), "__globals__", {})
    before = dict(names)
    call()
    module = names.get("__name__")
    if not isinstance(module, str) or vars(sys.modules.get(module, sys)) is names:
        return  # it was imported, and so are the tasks' functions of its module
    share = {
        name: value
        for name, value in names.items()
        if not name.startswith("__") and (before.get(name, names) is not value or not _comes_by_itself(value))
    }
    if share:
        _share_globals(module, share)


def _comes_by_itself(value: object) -> bool:
    return isinstance(value, _BY_ITSELF)


def _function_in(call: object) -> object:
    while isinstance(call, partial | MethodType):
        call = call.func if isinstance(call, partial) else call.__func__
    return call


def _share_globals(module: str, share: dict[str, object]) -> None:
    """Give functions of a module that travel by value these globals, whatever they bring."""
    import cloudpickle.cloudpickle as by_value

    opened: Callable[[FunctionType, object], None] = by_value._function_setstate

    def open_and_share(function: FunctionType, state: object) -> None:
        opened(function, state)
        if function.__globals__.get("__name__") == module:
            function.__globals__.update(share)

    by_value._function_setstate = open_and_share
