"""Several processes share the runs of one comparison."""

import subprocess
import time

import pytest
import tiny_training
from program import PROGRAM, read_json, run
from tiny_training import assert_same_results, stuck_after_an_epoch

METHODS = ("sgd", "adamw", "muon")


@pytest.fixture
def flags(cifar10):
    return ["compare", *tiny_training.flags(cifar10), "--optimizers", ",".join(METHODS)]


@pytest.fixture
def whole(flags, tmp_path):
    """The same comparison by one process."""
    run(*flags, "--out", tmp_path / "whole")
    return tmp_path / "whole"


def assert_same_comparison(out, whole):
    for method in METHODS:
        assert_same_results(out / f"{method}-seed0", whole / f"{method}-seed0")
    runs = [entry["run"] for entry in read_json(out / "summary.json")["runs"]]
    assert runs == [f"{method}-seed0" for method in METHODS]


def test_jobs_give_the_same_results(flags, whole, tmp_path):
    out = tmp_path / "out"
    result = run(*flags, "--jobs", "2", "--reference", "sgd", "--out", out)
    assert_same_comparison(out, whole)
    assert "differences" in read_json(out / "summary.json")
    assert result.stderr.count("estimated time") == 1
    for method in METHODS:
        assert result.stderr.count(f"{method}-seed0: epoch 2/2") == 1
    assert result.stdout.count("results in") == 1


def test_jobs_share_the_cores(flags, tmp_path):
    at = flags.index("--threads")
    without = [*flags[:at], *flags[at + 2 :], "--print-config"]
    one, many = (run(*without, "--jobs", jobs).stdout for jobs in (1, 1000))
    assert "threads = 1\n" in many
    assert "jobs = 1\n" in one


def test_jobs_share_a_search(flags, tmp_path):
    search = [*flags, "--grid", "--grid-lrs", "0.01,0.02", "--grid-epochs", "1", "--validation", "20"]
    alone = run(*search, "--out", tmp_path / "alone")
    shared = run(*search, "--jobs", "2", "--out", tmp_path / "shared")
    grids = [read_json(tmp_path / name / "summary.json")["grid"] for name in ("alone", "shared")]
    assert grids[0] == grids[1]
    assert shared.stdout.count("Validation accuracy") == alone.stdout.count("Validation accuracy") == 1


def test_a_process_takes_over_from_one_that_was_killed(flags, whole, tmp_path):
    out = tmp_path / "out"
    resumed = [*flags, "--out", out, "--resume"]
    with stuck_after_an_epoch(*resumed, folder=out / "sgd-seed0") as first:
        second = subprocess.Popen([PROGRAM, *map(str, resumed)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 120
        while not (out / "muon-seed0" / "summary.json").exists():  # the last of those that are free
            assert second.poll() is None
            assert time.monotonic() < end
            time.sleep(0.05)
        assert not (out / "sgd-seed0" / "summary.json").exists()
        assert second.poll() is None  # waits for the first process
        first.process.kill()
        assert second.wait(timeout=120) == 0
    assert_same_comparison(out, whole)


def test_runs_of_several_folders_can_be_combined(flags, whole, tmp_path):
    for method in METHODS:
        single = [method if word == ",".join(METHODS) else word for word in flags]
        run(*single, "--out", tmp_path / method)
    out = tmp_path / "out"
    out.mkdir()
    for method in METHODS:
        (tmp_path / method / f"{method}-seed0").rename(out / f"{method}-seed0")
    result = run(*flags, "--out", out, "--resume")
    assert "estimated time" not in result.stderr
    assert_same_comparison(out, whole)
