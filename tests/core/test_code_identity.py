"""Identity of code: what changes it, what does not, and that it is the same in every process."""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gspc_trio.core.code_identity import Unidentifiable, code_identity, is_own, value_identity


def defined(text: str, name: str = "f") -> Callable[..., object]:
    """Return a function of a module that this text makes."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    exec(compile(text, "<test>", "exec", dont_inherit=True), namespace)
    found = namespace[name]
    assert callable(found)
    return found


SAME = [
    ("def f(x): return x + 1", "# a comment\n\ndef f(x):\n    # another\n\n    return (x +\n        1)"),
    ("def f(x): return None", "def f(x):\n    'Docstring.'\n    return None"),
    ("def f(x): return {'a', 'b', x}", "def f(x):\n    'Docstring.'\n    return {'a', 'b', x}"),
    (
        "def f(x):\n    class C:\n        y = 1\n    return C",
        "def f(x):\n    '''Doc.'''\n    class C:\n        'Doc.'\n        y = 1\n    return C",
    ),
    ("class f:\n  def g(self): pass", "class f:\n  'Doc.'\n  def g(self) -> None:\n    'Doc.'\n    pass"),
    ("def f(x: int) -> int: return x", "def f(x): return x"),
    ("def g(): return 1\nunused = 1\ndef f(x): return g()", "def f(x): return g()\ndef g(): return 1"),
    (
        "def f(x):\n    try:\n        return x()\n    except ValueError:\n        return 1",
        "def f(x):\n    try:\n        return x()  # here\n\n    except ValueError:\n        return 1",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), SAME)
def test_what_does_nothing_is_no_part_of_it(one: str, other: str) -> None:
    assert code_identity(defined(one)) == code_identity(defined(other))


DIFFERENT = [
    ("def f(x): return x + 1", "def f(x): return x + 2"),
    ("def f(x): return x + 1", "def f(x): return x - 1"),
    ("def f(x): return 1", "def f(x): return True"),
    ("def f(x, y=1): return y", "def f(x, y=2): return y"),
    ("def f(x, *, y=1): return y", "def f(x, *, y=2): return y"),
    ("def f(x): return x", "def f(*x): return x"),
    ("def f(x, y): return x", "def f(y, x): return x"),
    ("n = 1\ndef f(x): return n", "n = 2\ndef f(x): return n"),
    ("def g(): return 1\ndef f(x): return g()", "def g(): return 2\ndef f(x): return g()"),
    (
        "def h(): return 1\ndef g(): return h()\ndef f(x): return [g() for _ in x]",
        "def h(): return 2\ndef g(): return h()\ndef f(x): return [g() for _ in x]",
    ),
    (
        "class C:\n    def run(self): return 1\ndef f(x): return C().run()",
        "class C:\n    def run(self): return 2\ndef f(x): return C().run()",
    ),
    (
        "class B:\n    y = 1\nclass C(B): pass\ndef f(x): return C().y",
        "class B:\n    y = 2\nclass C(B): pass\ndef f(x): return C().y",
    ),
    (
        "def f(x):\n    try:\n        x()\n    except ValueError:\n        return 1\n    else:\n        y()",
        "def f(x):\n    try:\n        x()\n        y()\n    except ValueError:\n        return 1",
    ),
    ("def f(x):\n    if x:\n        g()\n    h()", "def f(x):\n    if x:\n        g()\n        h()"),
    ("import math\ndef f(x): return math.sin(x)", "import math\ndef f(x): return math.cos(x)"),
    ("def f(x): return lambda: 1", "def f(x): return lambda: 2"),
    ("def f(x): return lambda y=1: y", "def f(x): return lambda y=2: y"),
    ("def f(x): return x in {1, 2}", "def f(x): return x in {1, 3}"),
]


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_what_does_something_else_has_another_one(one: str, other: str) -> None:
    assert code_identity(defined(one)) != code_identity(defined(other))


def adder(number: int) -> Callable[[int], int]:
    return lambda x: x + number


def even(number: int) -> bool:
    return number == 0 or odd(number - 1)


def odd(number: int) -> bool:
    return number != 0 and even(number - 1)


@functools.lru_cache
def remembered(x: int) -> int:
    return helper(x)


def helper(x: int) -> int:
    return x + 1


@contextmanager
def managed() -> Iterator[int]:
    yield helper(1)


@dataclass
class Point:
    x: int
    y: int = 1

    def norm(self) -> int:
        return helper(self.x)


def test_values_in_cells_and_partial_calls_are_part_of_it() -> None:
    assert code_identity(adder(1)) == code_identity(adder(1))
    assert code_identity(adder(1)) != code_identity(adder(2))
    assert code_identity(functools.partial(helper, 1)) != code_identity(functools.partial(helper, 2))
    assert code_identity(Point(1).norm) != code_identity(Point(2).norm)


@pytest.mark.parametrize(
    "function", [remembered, managed, Point, Point(1).norm, functools.partial(helper, 1)]
)
def test_what_a_wrapper_calls_is_part_of_it(
    function: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = code_identity(function)
    assert code_identity(function) == before
    monkeypatch.setattr(helper, "__code__", (lambda x: x + 2).__code__)
    assert code_identity(function) != before


def test_functions_that_call_each_other_have_an_identity() -> None:
    assert code_identity(even) == code_identity(even)
    assert code_identity(even) != code_identity(odd)


def test_modules_of_the_user_count_by_what_is_used_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("hand_made_tools")
    exec("def used(): return inner()\ndef inner(): return 1\ndef unused(): return 1", vars(module))
    monkeypatch.setitem(sys.modules, "hand_made_tools", module)
    for text in (
        "import hand_made_tools as t\ndef f(): return t.used()",
        "def f():\n    import hand_made_tools\n    return hand_made_tools.used()",
        "def f():\n    from hand_made_tools import used\n    return used()",
    ):
        function = defined(text)
        before = code_identity(function)
        exec("def unused(): return 2", vars(module))
        assert code_identity(function) == before
        exec("def inner(): return 2", vars(module))
        assert code_identity(function) != before
        exec("def inner(): return 1", vars(module))
        assert code_identity(function) == before


HELPER_AS_A_VALUE = [
    "import hand_made as t\nP = {'a': t}\ndef f(x): return P['a'].used(x)",
    "import hand_made as t\nclass C:\n    tools = t\ndef f(x): return C.tools.used(x)",
    "import hand_made as t\ndef made(t):\n    return lambda x: t.used(x)\nf = made(t)",
    "import hand_made as t\ndef h(t, x): return t.used(x)\ndef f(x): return h(t, x)",
    "import hand_made as t\ndef f(x): return getattr(t, 'us' + 'ed')(x)",
    "import hand_made as t\ndef f(x): return t.__dict__['us' + 'ed'](x)",
    "import hand_made as t\ndef f(x):\n    u = t\n    return getattr(u, 'us' + 'ed')(x)",
    "import hand_made_around as a\ndef h(t, x): return t.used(x)\ndef f(x): return h(a.tools, x)",
    "def h(t, x): return t.used(x)\ndef f(x):\n    import hand_made\n    return h(hand_made, x)",
    "def h(t, x): return t.used(x)\ndef f(x):\n    import hand_made as t\n    return h(t, x)",
    "def h(t): return t.used(1)\ndef f(x):\n    from hand_made_around import tools as t\n    return h(t)",
    "def h(t, x): return t.used(x)\ndef f(x):\n    import hand_made as t\n    return (lambda: h(t, x))()",
    "from hand_made_lazy import tools as f",
    "import hand_made_lazy\ndef f(x): return hand_made_lazy.anything(x)",
]  # fmt: skip


@pytest.mark.parametrize("text", HELPER_AS_A_VALUE)
def test_modules_that_go_anywhere_count_as_a_whole(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    helper, around, lazy = map(ModuleType, ("hand_made", "hand_made_around", "hand_made_lazy"))
    for module in (helper, around, lazy):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    exec("def used(x): return inner()\ndef inner(): return 1\nimport hand_made as itself", vars(helper))
    exec("import hand_made as tools", vars(around))
    exec("import hand_made as t\ndef __getattr__(name): return getattr(t, name)", vars(lazy))
    exec("def tools(x): return vars(t)", vars(lazy))
    function = defined(text)
    before = value_identity(function), value_identity([function, helper])
    assert (code_identity(function), value_identity([function, helper])) == before
    exec("def inner(): return 2", vars(helper))
    assert code_identity(function) != before[0]
    assert value_identity([function, helper]) != before[1]


def test_a_module_of_which_attributes_are_used_counts_by_them(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("hand_made")
    monkeypatch.setitem(sys.modules, "hand_made", module)
    exec("def used(x): return 1\nopen_file = memoryview(b'')", vars(module))
    assert code_identity(defined("import hand_made as t\ndef f(x):\n    t.x = t.used(x)\n    del t.x"))
    assert code_identity(defined("def f(x):\n    import hand_made as t\n    return x.used(t.used)"))
    with pytest.raises(Unidentifiable):
        value_identity(module)


def test_a_module_that_is_imported_later_counts_with_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    function = defined("def f():\n    import imported_later\n    return imported_later.value")
    found = []
    for text in ("value = 1", "# a comment\nvalue = 1", "value = 22"):
        (tmp_path / "imported_later.py").write_text(text)
        found.append(code_identity(function))
    assert found[0] == found[1] != found[2]
    assert "imported_later" not in sys.modules


def test_what_is_installed_counts_by_its_name() -> None:
    assert not is_own("json")
    assert not is_own("json.decoder")
    assert not is_own("pytest")
    assert not is_own("gspc_trio.core.task")
    assert is_own("__main__")
    assert is_own(__name__)
    assert code_identity(defined("import json\ndef f(x): return json.dumps(x)"))


@pytest.mark.parametrize("value", [memoryview(b""), (line for line in "x"), sys._getframe()])
def test_live_objects_cannot_be_told_from_others(value: object) -> None:
    with pytest.raises(Unidentifiable, match=r"cannot be told from others"):
        value_identity({"a": [value]})


@functools.singledispatch
def described(value: object) -> str:
    return f"{value} {helper(1)}"


@described.register
def _(value: int) -> str:
    return f"int {value}"


def test_locks_and_what_remembers_live_objects_are_all_alike() -> None:
    assert value_identity(threading.Event()) == value_identity(threading.Event())
    before = code_identity(described)
    assert described(1) == "int 1"  # it remembers the type
    assert code_identity(described) == before
    assert value_identity(vars(dict)["fromkeys"]) != value_identity(vars(dict)["get"])


def test_long_chains_and_cycles_have_an_identity() -> None:
    chain: list[object] = []
    for _ in range(5_000):
        chain = [chain]
    ring: list[object] = [1]
    ring.append(ring)
    assert value_identity(chain) != value_identity(ring)
    assert len(value_identity(ring)) == 16


@pytest.mark.parametrize(
    ("one", "other"), [([[], 1], [1, []]), (([2], 1), (1, [2])), ([{}, 0.0, []], [0.0, {}, []])]
)
def test_the_place_of_a_part_counts(one: object, other: object) -> None:
    """Of a list only its content counted, behind all else: a cache took one function for another."""
    assert value_identity(one) != value_identity(other)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda parts: st.lists(parts, max_size=3) | st.tuples(parts, parts) | st.dictionaries(st.text(), parts),
    max_leaves=8,
)


@given(plain, plain)
def test_values_have_the_same_one_when_they_look_the_same(one: object, other: object) -> None:
    assert (value_identity(one) == value_identity(other)) == (repr(one) == repr(other))


ACROSS = """
import sys
sys.path.insert(0, sys.argv[1])
from gspc_trio.core.code_identity import code_identity, value_identity
names = {"a", "b", "c", "d", "e"}
def f(x):
    if x in {"a", "b", "c", "d"}:
        return {name: lambda: name for name in names}
    return undefined(x)
from attrs import frozen
@frozen
class A:
    x: int = 1
class C:
    a = A()
c = C()
c.names = frozenset(names)
print(code_identity(f).hex(), value_identity((c, names)).hex())
"""


def test_it_is_the_same_in_every_process() -> None:
    command = [sys.executable, "-c", ACROSS, str(Path(__file__).parents[2])]
    seeds = ({"PYTHONHASHSEED": str(seed)} for seed in (1, 2))
    assert len({subprocess.check_output(command, env=env, timeout=60) for env in seeds}) == 1
