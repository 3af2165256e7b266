"""`tensorion train` on tiny data."""

import signal
import warnings

import pytest
import tiny_training
import torch
from program import files, read_json, read_safetensors, run
from tiny_training import (
    TINY_MODEL,
    TRAIN_SAMPLES,
    assert_same_results,
    metrics,
    stuck_after_an_epoch,
)
from torch.optim import lr_scheduler


@pytest.fixture
def common(cifar10):
    return tiny_training.flags(cifar10)


def test_train_learns_and_writes_files(cifar10, tmp_path):
    out = tmp_path / "run"
    flags = [*tiny_training.flags(cifar10, epochs=10), "--lr", "0.01", "--seed", "3", "--label-smoothing", "0.05"]
    result = run("train", *flags, "--out", out)
    assert files(out) == {"config.json", "metrics.jsonl", "summary.json", "weights.safetensors"}
    rows = metrics(out)
    fields = ["run", "optimizer", "seed", "epoch", "lr", "train_loss", "test_loss", "test_accuracy"]
    assert all(list(row) == [*fields, "seconds", "optimizer_seconds", "data_seconds"] for row in rows)
    assert [row["epoch"] for row in rows] == list(range(1, 11))
    assert {(row["run"], row["optimizer"], row["seed"]) for row in rows} == {("run", "tensorion", 3)}
    assert all(0 < row["optimizer_seconds"] < row["seconds"] for row in rows)
    assert all(0 < row["data_seconds"] < row["seconds"] - row["optimizer_seconds"] for row in rows)
    assert rows[-1]["test_accuracy"] > 0.3  # Guessing would give 0.1.
    assert rows[-1]["train_loss"] < 0.7 * rows[0]["train_loss"]

    config = read_json(out / "config.json")
    assert config["epochs"] == 10
    assert config["label_smoothing"] == 0.05
    assert config["lr"] == 0.01
    assert config["unfolding"] == "balanced"
    assert config["train_samples"] == TRAIN_SAMPLES
    summary = read_json(out / "summary.json")
    assert summary["status"] == "finished"
    assert summary["final"]["test_accuracy"] == rows[-1]["test_accuracy"]
    assert summary["best"]["test_accuracy"] == max(row["test_accuracy"] for row in rows)
    assert summary["seconds"] == pytest.approx(sum(row["seconds"] for row in rows))
    assert summary["threads"] == 1
    assert summary["parameters"] == sum(
        len(value) // 4
        for name, value in read_safetensors(out / "weights.safetensors").items()
        if "running" not in name and "num_batches" not in name
    )
    assert f"accuracy {100 * rows[-1]['test_accuracy']:.2f} %" in result.stdout
    assert str(out) in result.stdout
    # Without a terminal, the program prints one plain line per epoch.
    plan, lines = result.stderr.splitlines()[:5], result.stderr.splitlines()[5:]
    assert [line.split()[1] for line in lines] == [f"{i}/10" for i in range(1, 11)]
    # The plan comes before them.
    assert plan[0].startswith(
        f"data: cifar10 from {cifar10}: 120 training samples, 50 test samples, 10 classes, 32 x 32"
    )
    assert plan[1].startswith("model: resnet18, width 0.125, on ")
    assert plan[2] == "optimizer: tensorion, lr 0.01, weight decay 0.01, schedule cosine"
    assert plan[3] == "training: 1 run of 10 epochs, 6 batches of 20 each"


def torch_scheduler(name, optimizer, epochs, steps):
    if name == "multistep":
        return lr_scheduler.MultiStepLR(optimizer, [steps * 2, steps * 3], gamma=0.2)
    if name == "cosine":
        return lr_scheduler.CosineAnnealingLR(optimizer, epochs * steps)
    if name == "onecycle":
        return lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=epochs * steps)
    return lr_scheduler.ConstantLR(optimizer, 1.0)


@pytest.mark.parametrize("name", ["constant", "multistep", "cosine", "onecycle"])
def test_schedules_match_torch(name, cifar10, tmp_path):
    epochs, steps = 4, 3
    run(
        *("train", "--dataset", "cifar10", "--data", cifar10, *TINY_MODEL, "--threads", 1, "--optimizer", "sgd"),
        *("--epochs", epochs, "--limit-train", 30, "--limit-test", 10, "--batch-size", 10, "--lr", 0.05),
        *("--schedule", name, "--out", tmp_path / "run"),
        *(("--milestones", "2,3", "--gamma", 0.2) if name == "multistep" else ()),
    )
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], 0.05, momentum=0.9)
    scheduler = torch_scheduler(name, optimizer, epochs, steps)
    expected = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The scheduler steps without the optimizer.
        for step in range(epochs * steps):
            if step % steps == steps - 1:
                expected.append(optimizer.param_groups[0]["lr"])
            scheduler.step()
    assert [row["lr"] for row in metrics(tmp_path / "run")] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_run_saves_and_can_be_resumed(signal_number, common, tmp_path):
    run("train", *common, "--out", tmp_path / "whole")
    out = tmp_path / "stopped"
    flags = ["train", *common, "--out", out, "--resume"]
    with stuck_after_an_epoch(*flags, folder=out) as program:
        program.process.send_signal(signal_number)
        message = program.finish()
    assert program.process.returncode == 128 + signal_number
    assert "saving the progress before stopping" in message
    assert message.endswith("stopped in epoch 2 after step 0\nTo continue, run the same command with --resume.\n")
    assert "checkpoint.safetensors" in files(out)
    run(*flags)
    assert_same_results(out, tmp_path / "whole")
    # The run has finished, so --resume prints its result at once.
    again = run(*flags)
    assert "accuracy" in again.stdout
    assert again.stderr == ""


@pytest.fixture(scope="module")
def finished(cifar10, tmp_path_factory):
    """The flags of a finished run."""
    flags = ["train", *tiny_training.flags(cifar10), "--out", tmp_path_factory.mktemp("finished") / "run"]
    run(*flags)
    return flags


def test_a_run_is_not_overwritten(finished):
    assert "already contains a run; continue with --resume" in run(*finished, expect=1).stderr


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (["--lr", "0.5"], "was started with --lr 0.005, got 0.5"),
        (["--optimizer", "sgd"], 'was started with --optimizer "tensorion", got "sgd"'),
        (["--limit-train", "50"], "was started with --limit-train null, got 50"),
        (["--unfolding", "0,2"], 'was started with --unfolding "balanced", got "(0, 2)"'),
    ],
)
def test_resumed_run_must_have_the_same_options(changed, message, finished):
    assert message in run(*finished, "--resume", *changed, expect=1).stderr


def test_resumed_run_may_change_options_that_do_not_affect_results(finished):
    run(*finished, "--resume", "--checkpoint-every", "7", "--workers", "2")


def test_error_names_folder_that_cannot_be_written(common, tmp_path):
    (tmp_path / "file").write_text("")
    result = run("train", *common, "--out", tmp_path / "file" / "run", expect=1)
    assert str(tmp_path / "file" / "run") in result.stderr
    assert "Not a directory" in result.stderr


def test_only_one_process_may_use_a_folder(common, tmp_path):
    flags = ["train", *common, "--out", tmp_path / "run", "--resume"]
    with stuck_after_an_epoch(*flags, folder=tmp_path / "run"):
        assert "another process is writing to" in run(*flags, expect=1).stderr


def test_error_names_what_diverged(common, tmp_path):
    out = tmp_path / "run"
    flags = ["train", *common, "--optimizer", "sgd", "--lr", "1e30", "--out", out, "--checkpoint-every", "0"]
    result = run(*flags, expect=1)
    assert "diverged: the loss is" in result.stderr
    assert " is not finite in epoch 1, step " in result.stderr
    assert read_json(out / "summary.json")["status"] == "diverged"
    assert read_json(out / "summary.json")["final"] is None
    assert "checkpoint.safetensors" in files(out)


@pytest.mark.parametrize(
    ("flags", "status", "message"),
    [
        (["--optimizer", "lion"], 2, "--optimizer must be one of sgd, adamw, muon, tensorion, got 'lion'"),
        (["--dataset", "mnist"], 2, "got 'mnist'"),
        (["--model", "resnet19"], 2, "got 'resnet19'; did you mean resnet18?"),
        (["--epochs", "0"], 2, "--epochs"),
        (["--lr", "fast"], 2, "[tensorion train] --lr must be a number, got 'fast'"),
        (["--lr", "-1"], 2, "--lr must be finite and not negative, got -1"),
        (
            ["--lr", "sgd=0.1"],
            2,
            "--lr must be a value or a list of OPTIMIZER=VALUE with optimizers from tensorion, got 'sgd=0.1'",
        ),
        (["--schedule", "linear"], 2, "must be one of constant, multistep, cosine, onecycle, got linear"),
        (["--milestones", "0", "--schedule", "multistep"], 2, "milestones must be at least 1, got 0"),
        (["--optimizer", "sgd", "--unfolding", "online"], 2, "sgd has no --unfolding"),
        (["--optimizer", "adamw", "--momentum", "0.9"], 2, "adamw has no --momentum"),
        (["--optimizer", "muon", "--unfolding", "balanced"], 2, "muon has no --unfolding"),
        (
            ["--unfolding", "best"],
            2,
            "modes such as 0,2; a mode must be an integer, got 'best'",
        ),
        (["--unfolding", "0,9"], 2, "unfolding (0, 9) does not fit parameter"),
        (["--polar", "qr"], 2, "got 'qr'"),
        (["--ns-coefficients", "1,2"], 2, "each row must have three numbers a,b,c, got '1,2'"),
        (["--fallback", "lion"], 2, "got 'lion'"),
        (["--betas", "0.9"], 2, "--betas must be two numbers"),
        (["--nesterov", "yes"], 2, "--nesterov must be true or false, got 'yes'"),
        (["--label-smoothing", "1"], 2, "--label-smoothing must be a number in [0, 1), got '1'"),
        (["--weights", "/no/such/file"], 1, "/no/such/file"),
        (["--data", "/no/such/folder"], 1, "/no/such/folder (--data), which does not exist"),
        (["--depths", "1,2"], 2, "depths must have four entries"),
    ],
)
def test_bad_options_are_errors(flags, status, message, common, tmp_path):
    for name in flags[::2]:
        if name in common:
            common = common[: common.index(name)] + common[common.index(name) + 2 :]
    result = run("train", *common, *flags, "--out", tmp_path / "run", expect=status)
    assert message in result.stderr
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_weights_are_loaded(common, tmp_path):
    run("train", *common, "--out", tmp_path / "first")
    weights = tmp_path / "first" / "weights.safetensors"
    still = ["--optimizer", "sgd", "--lr", "0"]
    run("train", *common, "--weights", weights, *still, "--out", tmp_path / "second")
    first = read_safetensors(weights)
    second = read_safetensors(tmp_path / "second" / "weights.safetensors")
    assert all(first[name] == second[name] for name in first if name.endswith("conv1.weight"))


def test_run_resumes_without_flags(common, tmp_path):
    run("train", *common, "--lr", "0.02", "--out", tmp_path / "whole")
    out = tmp_path / "stopped"
    with stuck_after_an_epoch("train", *common, "--lr", "0.02", "--out", out, folder=out) as program:
        program.process.send_signal(signal.SIGINT)
        program.finish()
    run("train", "--resume", out)
    assert_same_results(out, tmp_path / "whole")


def test_nonfinite_loss_is_reported(common, tmp_path):
    """Regression: the status with `--nonfinite ignore` was "finished", and `skip` did not report skipped steps."""
    flags = ["train", *common, "--optimizer", "sgd", "--lr", "1e30"]
    assert "is not finite" in run(*flags, "--nonfinite", "ignore", "--out", tmp_path / "ignore", expect=1).stderr
    assert read_json(tmp_path / "ignore" / "summary.json")["status"] == "diverged"
    assert "skipped (not finite)" in run(*flags, "--nonfinite", "skip", "--out", tmp_path / "skip", expect=1).stderr
