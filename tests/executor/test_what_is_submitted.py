"""A task calls what its function was at the moment at which it was submitted, whatever becomes of it later.

Each case is a small program with a function that changes again and again. What the compute process would call
is compared with what is meant, and with what cloudpickle makes of the function at that moment.
"""

from __future__ import annotations

import functools
import gc
import operator
import pickle
import sys
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from types import ModuleType
from typing import Any

import cloudpickle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gspc_trio import Executor
from gspc_trio.compute.functions import Runner
from gspc_trio.executor.codes import CodeTable
from gspc_trio.executor.snapshot import ELEMENTS_MAX, LEAF_BYTES_MAX, take_snapshot
from gspc_trio.protocol.values import dumps, loads
from tests.executor import support as executor_tasks
from tests.executor.support import Counter

PATIENCE_S = 60.0
ROUNDS = 5
CALLS = 5
"""Calls between two changes: enough for a function that stays the same to get a number."""


class Compute:
    """Calls what an entry of the table stands for as a compute process does, in this one."""

    def __init__(self, table: CodeTable) -> None:
        self._table = table
        self._runners: dict[int, Runner] = {}
        self._classes: weakref.WeakValueDictionary[str, type] = weakref.WeakValueDictionary()

    def call(self, entry: tuple[int, list[bytes]], *arguments: Any) -> Any:
        code_id, leading = entry
        encoded = [*leading, *map(dumps, arguments)]
        with self.elsewhere():
            runner = self._runners.get(code_id)
            if runner is None:
                runner = self._runners[code_id] = Runner(self._table.data(code_id))
            (values,), _, _ = runner.run(encoded, 0)
            return loads(values[0])

    @contextmanager
    def elsewhere(self) -> Iterator[None]:
        """Have cloudpickle find the classes that it has made here, as in another process."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cloudpickle.cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_ID", self._classes)
            yield


def meaning(function: Callable[[], Any]) -> Any:
    """Return what cloudpickle has another process call."""
    data = cloudpickle.dumps(function)
    with Compute(CodeTable()).elsewhere():
        return cloudpickle.loads(data)()


Case = tuple[str, str, str, str, str]

CASES: list[Case] = [
    # name, the program, what is submitted, how it changes in round i, what it then returns
    ("function", "def f(): return 7", "f", "", "7"),
    ("global", "T = 0\ndef f(): return T", "f", "T = i", "i"),
    ("global of the same value",
     "T = 0\ndef f(): return repr(T)", "f", "T = [1, True, 1.0][i % 3]", "repr(T)"),
    ("global in an inner function",
     "T = 0\ndef f(): return [(lambda: T)() for _ in 'a']", "f", "T = i", "[i]"),
    ("global that comes",
     "def f(): return len('abc')", "f", "if i == 2: len = lambda _: 9", "3 if i < 2 else 9"),
    ("long global", "T = ''\ndef f(): return len(T)", "f", "T = 'x' * (100_000 + i)", "100_000 + i"),
    ("list", "T = []\ndef f(): return sum(T)", "f", "T.append(i)", "sum(T)"),
    ("long list", "T = [0] * 1000\ndef f(): return sum(T)", "f", "T[500] = i", "i"),
    ("list in a tuple", "T = (1, [2])\ndef f(): return T[1][0]", "f", "T[1][0] = i", "i"),
    ("dict", "T = {}\ndef f(): return T", "f", "T[i % 2] = i", "T"),
    ("renamed key",
     "T = {'a': 1}\ndef f(): return T", "f", "T[f'k{i}'] = T.popitem()[1]", "T"),
    ("set", "T = set()\ndef f(): return T", "f", "T.add(i)", "T"),
    ("bytearray", "T = bytearray(3)\ndef f(): return bytes(T)", "f", "T[0] = i", "bytes(T)"),
    ("dict of functions", "def g(): return 0\nT = {'g': g}\ndef f(): return T['g']()", "f",
     "exec(f'def g(): return {i}', globals()); T['g'] = g", "i"),
    ("helper", "def g(): return 0\ndef f(): return g()", "f", "exec(f'def g(): return {i}', globals())", "i"),
    ("global of a helper's helper", "T = 0\ndef h(): return T\ndef g(): return h()\ndef f(): return g()", "f",
     "T = i", "i"),
    ("recursion", "T = 0\ndef f(n=3): return T if n == 0 else f(n - 1)", "f", "T = i", "i"),
    ("mutual recursion", "T = 0\ndef f(n=3): return g(n)\ndef g(n): return T if n == 0 else f(n - 1)", "f",
     "T = i", "i"),
    ("module", "import math\ndef f(): return math.floor(T)\nT = 0", "f", "T = i + 0.5", "i"),
    ("redefined", "def f(): return 0", "f", "exec(f'def f(): return {i}', globals())", "i"),
    ("code", "def f(): return 0", "f", "f.__code__ = eval(f'lambda: {i}').__code__", "i"),
    ("default", "def f(x=0): return x", "f", "f.__defaults__ = (i,)", "i"),
    ("mutable default", "def f(x=[]): return x", "f", "f.__defaults__[0].append(i)", "list(range(i + 1))"),
    ("mutable default that the task changes", "def f(x=[]): x.append(1); return x", "f", "", "[1]"),
    ("dict that the task changes", "T = {}\ndef f(): T[len(T)] = 1; return len(T)", "f", "", "1"),
    ("keyword default", "def f(*, x=0): return x", "f", "f.__kwdefaults__['x'] = i", "i"),
    ("keyword defaults", "def f(*, x=0): return x", "f", "f.__kwdefaults__ = {'x': i}", "i"),
    ("attribute", "def f(): return f.x\nf.x = 0", "f", "f.x = i", "i"),
    ("new attribute", "def f(): return getattr(f, 'x3', 0)", "f", "setattr(f, f'x{i}', 1)", "int(i > 2)"),
    ("closure",
     "def make():\n x = 0\n def f(): return x\n def change(i):\n  nonlocal x\n  x = i\n return f, change\n"
     "f, change = make()", "f", "change(i)", "i"),
    ("first attribute", "def f(): return getattr(f, 'x', 0)", "f", "if i == 2: f.x = 1", "int(i > 1)"),
    ("code of a helper", "def g(): return 0\ndef f(): return g()", "f",
     "g.__code__ = eval(f'lambda: {i}').__code__", "i"),
    ("default of a helper", "def g(x=0): return x\ndef f(): return g()", "f", "g.__defaults__ = (i,)", "i"),
    ("keyword default of a helper", "def g(*, x=0): return x\ndef f(): return g()", "f",
     "g.__kwdefaults__ = {'x': i}", "i"),
    ("new attribute of a helper", "def g(): return sorted(vars(g))\ndef f(): return g()", "f",
     "setattr(g, f'x{i}', 1)", "sorted(vars(g))"),
    ("closure over a list",
     "def make(x): return lambda: sum(x)\nT = []\nf = make(T)", "f", "T.append(i)", "sum(T)"),
    ("recursive closure",
     "def make():\n def f(n=2): return T if n == 0 else f(n - 1)\n return f\nT = 0\nf = make()",
     "f", "T = i", "i"),
    ("lambda in a loop", "", "(lambda i=i: i)", "", "i"),
    ("lambda of a global", "f = lambda: i", "f", "", "i"),
    ("wraps",
     "import functools\ndef twice(g):\n @functools.wraps(g)\n def f(): return 2 * g()\n return f\nT = 0\n"
     "@twice\ndef f(): return T", "f", "T = i", "2 * i"),
    ("wrapped", "import functools\ndef g(): return 0\nf = functools.wraps(g)(lambda: f.__wrapped__())", "f",
     "f.__wrapped__ = eval(f'lambda: {i}')", "i"),
    ("partial", "import functools\nT = [0]\nf = functools.partial(max, T)", "f", "T[0] = i", "i"),
    ("partial of a function",
     "import functools\nT = 0\ndef g(x): return T + x\nf = functools.partial(g, 5)", "f",
     "T = i", "i + 5"),
    ("bound method", "class C:\n n = 0\n def get(self): return self.n\nc = C()", "c.get", "c.n = i", "i"),
    ("bound method of an importable class", "c = Counter()", "c.get", "c.n = i", "i"),
    ("kept bound method", "c = Counter()\nf = c.get", "f", "c.n = i", "i"),
    ("bound method of a builtin", "T = []", "T.copy", "T.append(i)", "list(range(i + 1))"),
    ("callable", "class C:\n def __call__(self): return self.n\nc = C()", "c", "c.n = i", "i"),
    ("callable importable object, always equal", "c = Counter()", "c", "c.n = i", "i"),
    ("equal callables", "", "Counter(i)", "", "i"),
    ("instance", "class C: pass\nc = C()\ndef f(): return c.n", "f", "c.n = i", "i"),
    ("importable instance", "c = Counter()\ndef f(): return c.n", "f", "c.n = i", "i"),
    ("class redefined", "def f(): return C().n", "f", "exec(f'class C: n = {i}', globals())", "i"),
    ("class attribute", "class C: n = 0\ndef f(): return C.n", "f", "C.n = i", "i"),
    ("new class attribute",
     "class C: pass\ndef f(): return getattr(C, 'n2', 0)", "f", "setattr(C, f'n{i}', 1)",
     "int(i > 1)"),
    ("inherited attribute", "class B: n = 0\nclass C(B): pass\ndef f(): return C().n", "f", "B.n = i", "i"),
    ("method patched", "class C:\n def get(self): return 0\ndef f(): return C().get()", "f",
     "C.get = eval(f'lambda self: {i}')", "i"),
    ("global of a method",
     "T = 0\nclass C:\n def get(self): return T\ndef f(): return C().get()", "f", "T = i", "i"),
    ("property",
     "T = 0\nclass C:\n @property\n def n(self): return T\ndef f(): return C().n", "f", "T = i", "i"),
    ("static method", "T = 0\nclass C:\n @staticmethod\n def f(): return T", "C.f", "T = i", "i"),
    ("class method", "class C:\n n = 0\n @classmethod\n def f(cls): return cls.n", "C.f", "C.n = i", "i"),
    ("importable class method", "", "Counter.kind", "", "'Counter'"),
    ("inherited class method",
     "class C(Counter): pass", "C.kind", "exec('class C(Counter): pass'); C.__name__ = f'C{i}'", "f'C{i}'"),
    ("class", "class C:\n def __new__(cls): return cls.n", "C", "C.n = i", "i"),
    ("data class", "import dataclasses\n@dataclasses.dataclass\nclass P:\n x: int\n y: list = "
     "dataclasses.field(default_factory=list)\nT = 0\ndef f(): return dataclasses.astuple(P(T))", "f",
     "T = i", "(i, [])"),
    ("enumeration", "import enum\nclass E(enum.Enum): A = 1; B = 2\nT = E.A\ndef f(): return T.value", "f",
     "T = (E.A, E.B)[i % 2]", "i % 2 + 1"),
    ("importable values", "import pathlib, datetime, re\nT = [pathlib.Path('a'), re.compile('x')]\n"
     "def f(): return str(T[0])", "f", "T[0] = pathlib.Path(f'b{i}')", "f'b{i}'"),
    ("object that answers with errors", "class C:\n def __init__(self, n): self.n = n\n"
     " def __getattr__(self, name): raise RuntimeError(name)\n def __reduce__(self): return C, (self.n,)\n"
     " def __call__(self): return self.n\nc = C(0)\ndef f(): return c()", "(c, f)[i % 2]", "c.n = i", "i"),
    ("named tuple", "import typing\nclass P(typing.NamedTuple): x: int\nT = P(0)\ndef f(): return T.x", "f",
     "T = P(i)", "i"),
]  # fmt: skip


@pytest.fixture
def modules() -> Iterator[Callable[[str, str], ModuleType]]:
    """Makes modules that can be imported until the test ends."""
    made: list[str] = []

    def make(name: str, text: str) -> ModuleType:
        module = sys.modules[name] = ModuleType(name)
        made.append(name)
        exec(text, module.__dict__)
        return module

    yield make
    for name in made:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("program", "submitted", "change", "expected"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
@pytest.mark.parametrize(("calls", "often"), [(1, False), (2, False), (CALLS, False), (1, True)])
def test_what_is_submitted_is_what_is_meant(
    program: str, submitted: str, change: str, expected: str, calls: int, often: bool
) -> None:
    table = CodeTable()
    compute = Compute(table)
    main: dict[str, Any] = {"__name__": "__main__", "Counter": Counter}
    exec(program, main)
    for main["i"] in range(ROUNDS):
        exec(change, main)
        for _ in range(calls):
            function = eval(submitted, main)
            meant = eval(expected, main)
            assert meaning(function) == meant, "the case is wrong"
            assert compute.call(table.entry(function, often=often)) == meant


WORLD = """
import functools

T, L, D = 0, [0], {"k": 0}

class B:
    b = 0

class C(B):
    n = 0
    def get(self): return self.n, T
    @classmethod
    def kind(cls): return cls.n, cls.b

c = C()

def helper(): return 0
def uses_global(): return T
def uses_helper(x=0, *, y=0): return helper(), T, x, y
def uses_containers(): return L, D
def uses_class(): return C.n, C.b, C().get()
def uses_object(): return c.n
def uses_itself(n=2): return T if n == 0 else uses_itself(n - 1)
def uses_all(): return uses_helper(), uses_containers(), uses_class(), uses_object(), closure(), uses_itself()

def make():
    held = 0
    def closure(): return held, T
    def hold():
        nonlocal held
        held += 1
    return closure, hold

closure, hold = make()

@functools.wraps(uses_helper)
def wrapped(): return uses_helper(), L, sorted(wrapped.__dict__)
"""

CHANGES = (
    "T += 1", "T = 0", "T = False", "L.append(T)", "L[0] += 1", "L = [0]", "D['k'] += 1", "D = {'k': 0}",
    "B.b += 1",
    "C.n += 1", "C.n = 0", "c.n = c.n + 1", "c = C()", "hold()", "exec('def helper(): return 1')",
    "exec('def helper(): return T')", "uses_helper.__defaults__ = (T,)",
    "helper.__code__ = (lambda: L).__code__", "uses_helper.__kwdefaults__ = {'y': T}",
    "C.get = lambda self: (self.n, L)",
    "exec('class C(B):\\n n = 5\\n def get(self): return T\\n kind = classmethod(lambda cls: cls.b)')",
    "closure, hold = make()",
    "uses_global.__code__ = (lambda: (T, L)).__code__", "wrapped.__dict__[f'new{T}'] = T",
)  # fmt: skip

SUBMITTED = (
    "uses_global", "uses_helper", "uses_containers", "uses_class", "uses_object", "uses_itself", "uses_all",
    "closure", "wrapped", "c.get", "C.kind", "functools.partial(uses_helper, T)", "lambda: (T, L)",
)  # fmt: skip


@settings(max_examples=150)
@given(st.lists(st.sampled_from(CHANGES + SUBMITTED + SUBMITTED), max_size=60), st.booleans())
def test_whatever_changes_a_task_calls_what_was_submitted(steps: list[str], often: bool) -> None:
    """The model is the call itself, here and now."""
    table = CodeTable()
    compute = Compute(table)
    main: dict[str, Any] = {"__name__": "__main__"}
    exec(WORLD, main)
    for step in steps:
        if step in CHANGES:
            exec(step, main)
            continue
        function = eval(step, main)
        assert repr(compute.call(table.entry(function, often=often))) == repr(function())


@pytest.mark.parametrize(
    "name",
    ["function", "class attribute", "data class", "dict of functions", "global of a method",
     "importable values", "mutual recursion", "wraps", "list", "mutable default", "recursive closure"],
)  # fmt: skip
def test_a_function_that_stays_the_same_gets_a_number(name: str) -> None:
    """Else every call would be pickled: right, but slow."""
    program, submitted = next(case[1:3] for case in CASES if case[0] == name)
    table = CodeTable()
    main: dict[str, Any] = {"__name__": "__main__"}
    exec(program, main)
    entries = [table.entry(main[submitted]) for _ in range(4)]
    assert [bool(leading) for _, leading in entries] == [True, True, False, False]
    assert entries[2] == entries[3]


def test_an_importable_function_gets_a_number_at_once() -> None:
    table = CodeTable()
    for home, name in (
        (operator, "index"),
        (functools, "partial"),
        (Counter, "kind"),
        (executor_tasks, "double"),
    ):
        entries = [table.entry(getattr(home, name)) for _ in range(3)]
        assert entries == [(entries[0][0], [])] * 3


def test_a_function_that_its_module_no_longer_has_travels_by_value(modules: Any) -> None:
    module = modules("patched", "def f(): return 1\nold = f")
    table = CodeTable()
    compute = Compute(table)
    assert compute.call(table.entry(module.f)) == 1
    module.f = lambda: 2
    assert compute.call(table.entry(module.f)) == 2
    assert table.entry(module.old)[1], "by value"
    assert compute.call(table.entry(module.old)) == 1
    exec("def f(): return 3", module.__dict__)  # as a reload does
    assert compute.call(table.entry(module.f)) == 3
    assert [compute.call(table.entry(module.old)) for _ in range(4)] == [1] * 4


def test_modules_that_cloudpickle_was_told_of_travel_by_value(modules: Any) -> None:
    module = modules("edited", "T = 0\ndef f(): return T\nclass C:\n def get(self): return f()")
    table = CodeTable()
    assert [table.entry(module.f)[1] for _ in range(2)] == [[], []]
    cloudpickle.register_pickle_by_value(module)
    try:
        for module.T in range(3):
            entries = [*[table.entry(module.f) for _ in range(CALLS)], table.entry(module.C().get)]
            argument = dumps(module.C())
            with pytest.MonkeyPatch.context() as patch:
                patch.delitem(sys.modules, "edited")
                compute = Compute(table)
                assert [compute.call(entry) for entry in entries] == [module.T] * (CALLS + 1)
                with compute.elsewhere():
                    assert loads(argument).get() == module.T
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    assert table.entry(module.f)[1] == []


def test_arguments_by_name_do_not_fill_the_table() -> None:
    table = CodeTable(codes_max=8)
    compute = Compute(table)
    for number in range(50):
        values = compute.call(table.entry(dict, (f"k{number}",)), number)
        assert values == {f"k{number}": number}
        assert compute.call(table.entry(lambda **given: given, (f"k{number}",)), number) == values
    assert len(table._data) <= 16


def test_functions_that_keep_changing_do_not_fill_the_table() -> None:
    main: dict[str, Any] = {"__name__": "__main__"}
    exec("def f(): return T", main)
    table = CodeTable()
    for main["T"] in range(500):
        for _ in range(3):
            table.entry(main["f"])
    assert len(table._data) < 10


def test_a_full_table_gives_no_numbers_and_keeps_working() -> None:
    table = CodeTable(codes_max=10)
    compute = Compute(table)
    for number in range(50):
        function = eval("lambda: number", {"__name__": "__main__", "number": number})
        assert [compute.call(table.entry(function)) for _ in range(4)] == [number] * 4
    assert compute.call(table.entry(operator.neg), 1) == -1
    assert len(table._data) <= 11
    assert len(table.known) <= 20


@pytest.mark.parametrize("often", [False, True])
@pytest.mark.parametrize(
    "kind", ["method", "closure", "callable", "default", "attribute", "text in a closure"]
)
def test_large_things_that_functions_refer_to_leave_nothing_behind(kind: str, often: bool) -> None:
    size = 1_000_000
    table = CodeTable()
    alive: weakref.WeakSet[Any] = weakref.WeakSet()

    def make() -> Any:
        big = Counter()
        big.content = bytes(size)  # type: ignore[attr-defined]
        alive.add(big)

        def function(x: Any = big if kind == "default" else None) -> object:
            return x or (big if kind == "closure" else None)

        if kind == "attribute":
            function.big = big  # type: ignore[attr-defined]
        if kind == "text in a closure":
            text = "x" * size
            return lambda: text
        return {"method": big.get, "callable": big}.get(kind, function)

    tracemalloc.start()
    try:
        for _ in range(20):
            function = make()
            for _ in range(4):
                table.entry(function, often=often)
        del function
        gc.collect()
        kept_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert not alive
    assert kept_bytes < 1.5 * size, "no more than the last pickle"


def test_calls_that_wait_share_one_large_pickle() -> None:
    table = CodeTable()
    large = Counter()
    large.content = bytes(2 * LEAF_BYTES_MAX)  # type: ignore[attr-defined]
    assert table.entry(large.get)[1][0] is table.entry(large.get)[1][0]


def test_what_is_too_much_to_look_through_is_pickled() -> None:
    for refers_to in ([0] * (ELEMENTS_MAX + 1), "x" * (LEAF_BYTES_MAX + 1), (object(),), Counter(), open):
        function = eval("lambda: refers_to", {"refers_to": refers_to})
        assert (take_snapshot(function) is None) == (refers_to is not open)
    table = CodeTable()
    long = eval(f"lambda: {'x' * LEAF_BYTES_MAX!r}", {"__name__": "__main__"})
    assert all(table.entry(long)[1] for _ in range(5)), "its own code is too long"


def _standard_pool(work: Callable[[ProcessPoolExecutor], list[Any]]) -> list[Any]:
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
        return work(pool)


@pytest.mark.parametrize("name", ["get", "__call__", "partial", "copy"])
def test_objects_of_importable_classes_are_taken_as_by_the_standard_pool(
    executor: Executor, name: str
) -> None:
    """The standard pool pickles in a thread of its own: so each call ends before the next change."""

    def work(pool: Any) -> list[Any]:
        counter, values, results = Counter(), [0], []
        submitted = {
            "get": lambda: counter.get,
            "__call__": lambda: counter,
            "partial": lambda: functools.partial(executor_tasks.double, values),
            "copy": lambda: values.copy,
        }[name]
        for counter.n in range(4):
            values[0] = counter.n
            results.append(pool.submit(submitted()).result(PATIENCE_S))
        return results

    assert work(executor) == _standard_pool(work)


def test_tasks_of_a_real_executor_call_what_was_submitted(executor: Executor) -> None:
    """All changes come before any result is looked at."""
    for program, submitted, change, expected in [case[1:] for case in CASES]:
        main: dict[str, Any] = {"__name__": "__main__", "Counter": Counter}
        exec(program, main)
        futures, meant = [], []
        for main["i"] in range(3):
            exec(change, main)
            for _ in range(3):
                futures.append(executor.submit(eval(submitted, main)))
                meant.append(pickle.loads(pickle.dumps(eval(expected, main))))
        assert [future.result(PATIENCE_S) for future in futures] == meant, program


def test_a_map_calls_what_its_function_was_when_it_began(executor: Executor) -> None:
    main: dict[str, Any] = {"__name__": "__main__"}
    exec("T = [0]\ndef f(x): return T[0]", main)
    maps = []
    for main["T"][0] in range(3):
        maps += [
            executor.map(main["f"], range(count), chunksize=size) for count, size in ((3, 1), (40, 1), (9, 2))
        ]
    assert list(map(set, maps)) == [{value} for value in range(3) for _ in range(3)]


def test_many_threads_get_numbers_of_their_own() -> None:
    """Two threads that add at once are told apart."""
    table = CodeTable()
    compute = Compute(table)
    functions = [eval(f"lambda: {number}", {"__name__": "__main__"}) for number in range(200)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            entries = list(threads.map(lambda function: table.entry(function, often=True), functions))
    finally:
        sys.setswitchinterval(interval)
    assert [compute.call(entry) for entry in entries] == list(range(200))
    assert len({code_id for code_id, _ in entries}) == len(functions)
