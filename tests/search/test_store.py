"""A store of trials: never more than were asked for, none lost with its worker, half lines mended."""

import contextlib
import multiprocessing
import os
import signal
import sys

import pytest

from physml.base.errors import ConfigError, DataError, MissingExtra
from physml.search.store import END, OWNER, Budget, TrialStore

SPACE = {
    "a": {"low": 1e-3, "high": 1.0, "log": True},
    "b": {"low": 0.0, "high": 2.0},
    "c": ["x", "y"],
}
FORK = multiprocessing.get_context("fork")


def store(trials=10, sampler="random", pruner="none", storage=None, name="s", space=SPACE, epochs=30):
    return TrialStore(name, {}, Budget(space, "lower", sampler, pruner, trials, 7, epochs), storage)


def never(_):
    return False


def take_all(queue, trials):
    made = store(trials)
    with made.working():
        while trial := made.take(never):
            queue.put((trial.number, tuple(trial.params.items())))
            made.tell(trial, trial.params["a"], "finished")


def test_four_workers_take_as_many_trials_as_there_are(tmp_path):
    queue = FORK.SimpleQueue()
    workers = [FORK.Process(target=take_all, args=(queue, 20)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    taken = []
    while not queue.empty():
        taken.append(queue.get())
    assert sorted(number for number, _ in taken) == list(range(20))
    assert len({point for _, point in taken}) == 20, "no two workers draw the same point"
    made = store(20)
    assert made.open() == 0 and {one.user_attrs[END] for one in made.all()} == {"finished"}
    assert made.take(never) is None


def hold(queue):
    made = store()
    with made.working():
        queue.put(made.take(never).number)
        signal.pause()


def test_the_trial_of_a_dead_worker_is_taken_over_and_that_of_a_living_one_is_not():
    queue = FORK.SimpleQueue()
    process = FORK.Process(target=hold, args=(queue,))
    process.start()
    assert queue.get() == 0
    made = store()
    with made.working():
        assert made.take(never).number == 1
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        again = made.take(never)
        assert again.number == 0 and {*again.params} == {*SPACE}
        assert made.take(never).number == 2, "it is ours now"


def test_a_left_trial_whose_run_had_ended_is_settled():
    first = store()
    with first.working():
        trial = first.take(never)
    second = store()

    def settle(one):
        second.tell(one, 0.5, "finished")
        return True

    with second.working():
        assert second.take(settle).number == 1
    assert (second.all()[trial.number].value, second.open()) == (0.5, 9)


def test_a_trial_without_a_point_gets_one():
    """Its worker was killed after it had begun the trial."""
    made = store()
    made.study.ask()
    with made.working():
        trial = made.take(never)
    assert trial.number == 0 and {*trial.params} == {*SPACE}


def test_a_trial_that_is_given_back_is_taken_again():
    made = store()
    with made.working():
        trial = made.take(never)
        made.give_back(trial)
        assert made.take(never).number == trial.number


def test_half_a_line_of_a_killed_writer_is_removed(tmp_path):
    made = store()
    with made.working():
        made.tell(made.take(never), 0.5, "finished")
    journal = next((tmp_path / "results" / "search").glob("*.journal"))
    whole = journal.read_bytes()
    journal.write_bytes(whole + b'{"op_code":4,"worker')
    again = store()
    with again.working():
        assert again.take(never).number == 1
    assert journal.read_bytes().startswith(whole + b'{"op_code":')
    assert [one.value for one in store().all()] == [0.5, None]


@pytest.mark.parametrize("sampler", ["random", "tpe", "gp", "cmaes"])
@pytest.mark.filterwarnings("ignore")  # Optuna calls some samplers experimental
def test_samplers_draw_within_the_space_and_learn(sampler):
    space = {key: SPACE[key] for key in ("a", "b")} if sampler == "cmaes" else SPACE
    made = store(40, sampler, space=space)
    values = []
    with made.working():
        for _ in range(40 if sampler == "tpe" else 14):
            trial = made.take(never)
            a, b = trial.params["a"], trial.params["b"]
            assert 1e-3 <= a <= 1.0 and 0.0 <= b <= 2.0
            values.append((b - 1.5) ** 2)
            made.tell(trial, values[-1], "finished")
    assert len(set(values)) == len(values)
    if sampler == "tpe":
        assert sum(values[-15:]) < sum(values[:15])


def test_points_depend_on_the_seed_and_on_the_trials_before():
    points = []
    for name in ("one", "two"):
        made = store(name=name, sampler="tpe")
        with made.working():
            points.append([made.take(never).params for _ in range(3)])
    assert points[0] == points[1] and points[0][0] != points[0][1]


def test_the_median_ends_a_bad_trial():
    made = store(20, pruner="median")
    with made.working():
        for _ in range(9):
            trial = made.take(never)
            assert not any(made.report(trial, epoch, 1.0) for epoch in range(10))
            made.tell(trial, 1.0, "finished")
        bad = made.take(never)
        assert any(made.report(bad, epoch, 9.0) for epoch in range(10))
        made.tell(bad, None, "pruned")
    assert [made.all()[-1].user_attrs[key] for key in (OWNER, END)] == [made.worker, "pruned"]


def test_an_end_is_told_once():
    made = store()
    with made.working():
        trial = made.take(never)
        made.tell(trial, 1.0, "finished")
        made.tell(trial, 2.0, "finished")
    assert made.all()[0].value == 1.0


def test_another_space_is_another_study():
    with contextlib.ExitStack() as stack:
        one, other = store(), TrialStore("s", {"space": 1}, store().budget)
        for made in (one, other):
            stack.enter_context(made.working())
            assert made.take(never).number == 0
    assert one.name != other.name


def test_a_storage_that_is_no_url():
    with pytest.raises(ConfigError, match="--storage takes a URL such as postgresql"):
        store(storage="not a url")


def test_a_database_that_does_not_answer_and_its_password(tmp_path):
    with pytest.raises(DataError, match="does not answer") as error:
        store(storage=f"sqlite:///{tmp_path}/no/such/folder/x.db")
    assert "Once it does, the same command goes on" in str(error.value)


def test_a_database(tmp_path):
    made = store(3, storage=f"sqlite:///{tmp_path}/x.db")
    with made.working():
        for _ in range(3):
            made.tell(made.take(never), 1.0, "finished")
        assert made.take(never) is None
    assert made.place == f"sqlite:///{tmp_path}/x.db"


def test_a_driver_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra, match=r"u:\*\*\*@host/x needs a driver .*physml\[postgresql\]"):
        store(storage="postgresql+psycopg://u:secret@host/x")
