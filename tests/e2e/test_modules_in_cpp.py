"""A net of xpnet with a module in C++, as a user runs it: results, and a crash that costs one process."""

from __future__ import annotations

import shutil

import pytest

from tests.e2e.support import World

NET = """<defun name="successors">
  <in name="n" type="long" place="n"/><out name="result" type="long" place="result"/>
  <net>
    <place name="n" type="long"/><place name="result" type="long"/>
    <transition name="count">
      <defun>
        <in name="a" type="long"/><out name="b" type="long"/>
        <module name="numbers" function="b next (a)">
          <cinclude href="csignal"/>
          <code><![CDATA[
            if (a == 13) { std::raise (SIGSEGV); }
            return a + 1;
          ]]></code>
        </module>
      </defun>
      <connect-in port="a" place="n"/><connect-out port="b" place="result"/>
    </transition>
  </net>
</defun>
"""


@pytest.mark.skipif(shutil.which("c++") is None, reason="no compiler for C++ here")
def test_a_module_in_cpp_runs_and_a_crash_is_a_lost_task_with_its_name(
    world: World,
) -> None:
    path = world.folder / "numbers.xpnet"
    path.write_text(NET)
    command = ("jobserver", "run", str(path), "--keep-going", "--set", "n=13L", "--set", "n=1L")
    done = world.run(*command)
    assert done.returncode == 1
    assert done.stdout == "result: 2L\n"
    assert "task 1 (count), attempt 3" in done.stderr
    assert "was killed by SIGSEGV; Segmentation fault in module numbers (" in done.stderr
    assert "most recent call first" not in done.stderr
    assert len(list((world.folder / "cache").rglob("*.o.so"))) == 1
