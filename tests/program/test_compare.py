"""`tensorion compare` on tiny data."""

import re

import numpy as np
import pytest
import tiny_training
from program import files, read_json, run
from tiny_training import assert_same_results, metrics, stuck_after_an_epoch, without_times


@pytest.fixture
def common(cifar10):
    return tiny_training.flags(cifar10)


@pytest.fixture
def compared(common, tmp_path):
    flags = [
        *("compare", *common, "--optimizers", "sgd,adamw,tensorion", "--seeds", "0,1"),
        *("--lr", "sgd=0.05,adamw=2e-3,tensorion=0.01", "--schedule", "sgd=multistep,adamw=cosine"),
    ]
    return flags, tmp_path / "all"


def test_compare(compared, tmp_path):
    flags, out = compared
    result = run(*flags, "--out", out)
    runs = [f"{name}-seed{seed}" for seed in (0, 1) for name in ("sgd", "adamw", "tensorion")]
    assert files(out) == {*runs, "config.toml", "metrics.jsonl", "summary.json"}
    assert metrics(out) == [row for name in runs for row in metrics(out / name)]
    schedules = {"sgd": "multistep", "adamw": "cosine", "tensorion": "cosine"}
    for name in runs:
        config = read_json(out / name / "config.json")
        assert config["schedule"] == schedules[config["optimizer"]]
        assert config["lr"] == {"sgd": 0.05, "adamw": 2e-3, "tensorion": 0.01}[config["optimizer"]]

    summary = read_json(out / "summary.json")
    assert [entry["optimizer"] for entry in summary["optimizers"]] == ["sgd", "adamw", "tensorion"]
    assert [entry["run"] for entry in summary["runs"]] == runs
    lines = result.stdout.splitlines()
    assert lines[0].split()[:3] == ["optimizer", "runs", "accuracy"]
    for entry, line in zip(summary["optimizers"], lines[1:], strict=False):
        accuracies = [metrics(out / f"{entry['optimizer']}-seed{seed}")[-1]["test_accuracy"] for seed in (0, 1)]
        assert entry["test_accuracy"]["mean"] == pytest.approx(np.mean(accuracies))
        assert entry["test_accuracy"]["std"] == pytest.approx(np.std(accuracies, ddof=1))
        expected = [f"{100 * np.mean(accuracies):.2f}", "+-", f"{100 * np.std(accuracies, ddof=1):.2f}"]
        assert line.split()[:5] == [entry["optimizer"], "2", *expected]
    assert lines[-1] == f"results in {out}"

    # Each run equals a separate run of `train`, so all runs have the same data and initial weights.
    index = flags.index("--optimizers")
    alone = ["--optimizer", "adamw", "--seed", "1", "--lr", "2e-3", "--out", tmp_path / "adamw-seed1"]
    run("train", *flags[1:index], *alone)
    assert without_times(metrics(tmp_path / "adamw-seed1")) == without_times(metrics(out / "adamw-seed1"))

    # The comparison has finished, so --resume prints the same table at once.
    again = run(*flags, "--out", out, "--resume")
    assert again.stdout == result.stdout
    assert again.stderr == ""


def test_report_has_same_means_and_deviations(cifar10, tmp_path):
    flags = tiny_training.flags(cifar10, epochs=1)
    run("compare", *flags, "--optimizers", "sgd,tensorion", "--seeds", "0,1,2", "--out", tmp_path)
    lines = run("report", tmp_path, "--dpi", "40").stdout.splitlines()
    for entry in read_json(tmp_path / "summary.json")["optimizers"]:
        accuracy, loss = entry["test_accuracy"], entry["test_loss"]
        line = re.sub(r"± +", "± ", next(line for line in lines if line.startswith(entry["optimizer"])))
        assert f"{100 * accuracy['mean']:.2f} ± {100 * accuracy['std']:.2f}" in line
        assert f"{loss['mean']:.4f} ± {loss['std']:.4f}" in line


def test_compare_resumes(compared, tmp_path):
    flags, out = compared
    flags = ["0" if value == "0,1" else value for value in flags]
    run(*flags, "--out", tmp_path / "whole")
    flags = [*flags, "--out", out, "--resume"]
    with stuck_after_an_epoch(*flags, folder=out / "sgd-seed0") as program:
        program.process.kill()
    run(*flags)
    run("compare", "--resume", out)  # The comparison has finished. No flags are needed.
    for name in ("sgd-seed0", "adamw-seed0", "tensorion-seed0"):
        assert_same_results(out / name, tmp_path / "whole" / name)


def test_compare_continues_after_a_run_diverges(common, tmp_path):
    out = tmp_path / "all"
    flags = ["--optimizers", "sgd,muon", "--lr", "sgd=1e30,muon=0.01", "--out", out]
    result = run("compare", *common, *flags)
    assert "sgd-seed0 diverged: the loss is" in result.stdout
    assert "1 diverged" in result.stdout
    summary = read_json(out / "summary.json")
    assert [entry["diverged"] for entry in summary["optimizers"]] == [1, 0]
    assert summary["optimizers"][0]["test_accuracy"] == {"mean": None, "std": None}
    assert [entry["status"] for entry in summary["runs"]] == ["diverged", "finished"]
    assert run("compare", *common, *flags, "--resume").stdout == result.stdout


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--optimizers", "sgd,sgd"], "--optimizers must not contain a value twice"),
        (["--optimizers", "sgd,adamw", "--unfolding", "online"], "sgd, adamw have no --unfolding"),
        (["--optimizers", "sgd,tensorion", "--unfolding", "sgd=online"], "sgd has no --unfolding"),
        (
            ["--optimizers", "sgd", "--lr", "0.1,sgd=2"],
            "OPTIMIZER=VALUE with optimizers from sgd, got '0.1,sgd=2'",
        ),
        (["--seeds", "1,1"], "--seeds must not contain a value twice"),
    ],
)
def test_compare_rejects_bad_options(flags, message, common, tmp_path):
    assert message in run("compare", *common, *flags, "--out", tmp_path / "all", expect=2).stderr
