"""Every listed algorithm keeps every promise of the tester."""

from __future__ import annotations

import pytest
from algorithms.tester import AlgorithmTester, accelerators

from lit_rl.algorithms import MODULES, algorithm_name, find_algorithm
from lit_rl.algorithms.dqn import DQN
from lit_rl.errors import UsageError


@pytest.fixture(params=MODULES)
def tester(request):
    return AlgorithmTester(request.param)


def test_it_acts_within_its_space(tester):
    tester.acts()


def test_its_groups_hold_every_parameter_once(tester):
    tester.owns_its_parameters()


def test_an_update_changes_only_what_it_should(tester):
    tester.updates_only_what_it_should()


@pytest.mark.parametrize("accelerator", accelerators())
@pytest.mark.parametrize("name", MODULES)
def test_it_learns_a_tiny_env(name, accelerator):
    AlgorithmTester(name, accelerator).learns()


def test_it_sees_any_observation(tester):
    tester.sees_any_observation()


def test_it_takes_a_users_own_network(tester, tmp_path):
    tester.takes_a_users_own_network(tmp_path)


def test_the_number_of_updates_follows_from_the_plan(tester):
    tester.makes_as_many_updates_whatever_comes_in()


def test_the_same_seed_gives_the_same_weights(tester):
    tester.repeats_itself()


def test_it_is_saved_and_loaded(tester, tmp_path):
    tester.is_saved_and_loaded(tmp_path)


@pytest.mark.parametrize("accelerator", accelerators())
@pytest.mark.parametrize("name", MODULES)
def test_it_resumes(name, accelerator, tmp_path):
    AlgorithmTester(name, accelerator).resumes(tmp_path)


def test_it_starts_a_stage(tester):
    tester.starts_a_stage()


def test_it_ends_at_an_exact_update(tester):
    tester.ends_at_an_exact_update()


@pytest.mark.parametrize("name", MODULES)
def test_it_is_found_by_its_name(name):
    found = find_algorithm(name)
    assert found is find_algorithm(name.lower()) and found.__name__ == name and algorithm_name(found) == name
    assert found.__doc__ and found.Config.__doc__
    assert find_algorithm(f"{found.__module__}:{name}") is found


def test_an_unknown_name_gets_the_nearest_one():
    with pytest.raises(UsageError, match="--algo DQM is unknown; did you mean DQN"):
        find_algorithm("DQM")
    with pytest.raises(UsageError, match=r"known: .*DQN.*module:Class"):
        find_algorithm("zzz")
    for wrong, reason in (("nowhere:X", "No module named"), ("lit_rl.errors:X", "no attribute"), (":X", "Empty")):
        with pytest.raises(UsageError, match=f"cannot be imported: .*{reason}"):
            find_algorithm(wrong)
    with pytest.raises(UsageError, match="is no lit_rl.Algorithm"):
        find_algorithm("lit_rl.errors:EnvError")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("def f(:\n", r"SyntaxError: invalid syntax \(broken.py, line 1\)"),
        ("1 / 0\n", r"ZeroDivisionError: division by zero \(broken.py, line 1\)"),
        ("raise RuntimeError('one\\ntwo')\n", r"RuntimeError: one two \(broken.py, line 1\)"),
        ("raise SystemExit(3)\n", r"SystemExit: 3 \(broken.py, line 1\)"),
    ],
)
def test_whatever_a_users_module_raises_is_one_line(source, reason, tmp_path, monkeypatch):
    (tmp_path / "broken.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match=f"^--algo broken:Mine cannot be imported: {reason}$"):
        find_algorithm("broken:Mine")


def test_a_users_own_is_named_by_its_import_path():
    class Mine(DQN):
        pass

    Mine.__qualname__ = "Mine"
    assert algorithm_name(Mine) == f"{__name__}:Mine"
