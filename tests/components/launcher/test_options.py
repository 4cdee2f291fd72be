"""Options of a study (MEL-5): what each may be, and how they are read from files."""

from __future__ import annotations

import json

import pytest

from gspc_trio.components.launcher.options import (
    BadOption,
    launcher_options,
    melissa_options,
    option_table,
    read_options,
)


def test_options_have_defaults():
    options = launcher_options({"scheduler": "local"})
    assert (options.job_limit, options.timer_interval_s, options.job_update_interval_s) == (1000, 5.0, 30.0)
    assert (options.fault_tolerance, options.load_from_checkpoint, options.std_output) == (True, False, True)
    assert options.scheduler_arg == ()


def test_options_are_read():
    given = {"scheduler": "slurm", "scheduler_arg": ["--qos=low"], "job_limit": 2, "timer_interval_s": 1}
    options = launcher_options(given)
    assert (options.scheduler_arg, options.job_limit, options.timer_interval_s) == (("--qos=low",), 2, 1.0)


def test_the_timer_delay_sets_both_intervals_unless_one_is_given():
    options = launcher_options({"scheduler": "local", "timer_delay": 2, "job_update_interval_s": 7})
    assert (options.timer_interval_s, options.job_update_interval_s) == (2.0, 7.0)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("job_limt", 5, "there is no option 'job_limt' (did you mean 'job_limit'?)"),
        ("job_limit", 1, "job_limit: 1 is too small: it is 2 or more"),
        ("job_limit", True, "job_limit: True is no whole number"),
        ("group_size", "4", "group_size: '4' is no whole number"),
        ("timer_interval_s", 0, "timer_interval_s: 0 is too small: it is more than 0"),
        ("timer_delay", "1s", "timer_delay: '1s' is no number"),
        ("std_output", 1, "std_output: 1 is no true or false"),
        ("scheduler_arg", "--qos=low", "scheduler_arg: '--qos=low' is no list of texts of one line"),
        ("scheduler_arg", ["a", 1], "scheduler_arg: ['a', 1] is no list of texts of one line"),
        ("output_dir", "a\nb", "output_dir: 'a\\nb' is no text of one line"),
        ("scheduler", "slrum", "scheduler: there is no 'slrum' (did you mean 'slurm'?); there are: local,"),
        ("http_port", 70000, "http_port: 70000 is too large: it is 65535 or less"),
    ],
)
def test_wrong_options_are_refused(name: str, value: object, reason: str):
    with pytest.raises(BadOption) as caught:
        launcher_options({"scheduler": "local", name: value})
    assert str(caught.value).startswith(reason)


def test_a_study_has_a_scheduler():
    with pytest.raises(BadOption, match="the option scheduler is missing; there are: local, openmpi, slurm"):
        launcher_options({})


def test_each_option_has_a_type_and_a_meaning():
    rows = list(option_table())
    assert all(row.type and row.meaning for row in rows)
    assert {row.name for row in rows} >= {"output_dir", "timer_delay", "http_token", "group_size"}
    assert next(row for row in rows if row.name == "scheduler_arg").default == []


def test_the_names_of_melissa_are_read(tmp_path):
    config = {"scheduler": "slurm-semiglobal", "protocol": "auto", "bind": None, "timer_delay": 1}
    path = tmp_path / "config_slurm.json"
    path.write_text(json.dumps({"launcher_config": config, "study_options": {}}))
    options = read_options(path)
    assert (options.scheduler, options.bind, options.timer_interval_s) == ("slurm-mixed", "127.0.0.1", 1.0)
    assert melissa_options({"scheduler": "slurm-global"}).scheduler == "slurm-srun"
    with pytest.raises(BadOption, match="protocol: there is no 'sctp'; there are: auto, tcp"):
        melissa_options({"scheduler": "slurm", "protocol": "sctp"})


def test_files_are_read_or_refused_in_one_line(tmp_path):
    path = tmp_path / "study.toml"
    with pytest.raises(BadOption, match="No such file"):
        read_options(path)
    path.write_text('scheduler = "local"\njob_limit = 20\n')
    assert read_options(path).job_limit == 20
    path.write_text("scheduler = \n")
    with pytest.raises(BadOption, match=r"study.toml: .*line 1"):
        read_options(path)
    path = tmp_path / "study.json"
    path.write_text("[]")
    with pytest.raises(BadOption, match='it has no dictionary "launcher_config"'):
        read_options(path)
