"""The commands `tensorion train` and `tensorion compare`, on tiny data, through the real program."""

import os
import pty
import re
import shlex
import signal
import struct
import subprocess
import warnings
from pathlib import Path

import numpy as np
import pytest
import tiny_training
import torch
from tiny_training import (
    PROGRAM,
    TINY_MODEL,
    TRAIN_SAMPLES,
    assert_same_results,
    files,
    metrics,
    read_json,
    read_weights,
    run,
    wait_for_new_checkpoint,
    without_times,
    write_cifar10,
)
from torch.optim import lr_scheduler

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cifar10")
    write_cifar10(folder)
    return folder


@pytest.fixture
def common(data):
    return tiny_training.flags(data)


def test_train_learns_and_writes_its_files(common, tmp_path):
    out = tmp_path / "run"
    flags = [*common, "--epochs", "10", "--lr", "0.01", "--seed", "3", "--label-smoothing", "0.05"]
    flags = flags[: flags.index("--epochs")] + flags[flags.index("--epochs") + 2 :]
    result = run("train", *flags, "--out", out)
    assert files(out) == {"config.json", "metrics.jsonl", "summary.json", "weights.safetensors"}
    rows = metrics(out)
    fields = ["run", "optimizer", "seed", "epoch", "lr", "train_loss", "test_loss", "test_accuracy"]
    assert all(list(row) == [*fields, "seconds", "optimizer_seconds", "data_seconds"] for row in rows)
    assert [row["epoch"] for row in rows] == list(range(1, 11))
    assert {(row["run"], row["optimizer"], row["seed"]) for row in rows} == {("run", "tensorion", 3)}
    assert all(0 < row["optimizer_seconds"] < row["seconds"] for row in rows)
    assert all(0 < row["data_seconds"] < row["seconds"] - row["optimizer_seconds"] for row in rows)
    assert rows[-1]["test_accuracy"] > 0.3  # by chance 0.1
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
        for name, value in read_weights(out / "weights.safetensors").items()
        if "running" not in name and "num_batches" not in name
    )
    assert f"accuracy {100 * rows[-1]['test_accuracy']:.2f} %" in result.stdout
    assert str(out) in result.stdout
    # Plain lines where there is no terminal: one for each epoch.
    assert [line.split()[1] for line in result.stderr.splitlines()] == [f"{i}/10" for i in range(1, 11)]


def torch_scheduler(name, optimizer, epochs, steps):
    if name == "multistep":
        return lr_scheduler.MultiStepLR(optimizer, [steps * 2, steps * 3], gamma=0.2)
    if name == "cosine":
        return lr_scheduler.CosineAnnealingLR(optimizer, epochs * steps)
    if name == "onecycle":
        return lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=epochs * steps)
    return lr_scheduler.ConstantLR(optimizer, 1.0)


@pytest.mark.parametrize("name", ["constant", "multistep", "cosine", "onecycle"])
def test_schedules_are_torchs(name, data, tmp_path):
    epochs, steps = 4, 3
    run(
        *("train", "--dataset", "cifar10", "--data", data, *TINY_MODEL, "--threads", 1, "--optimizer", "sgd"),
        *("--epochs", epochs, "--limit-train", 30, "--limit-test", 10, "--batch-size", 10, "--lr", 0.05),
        *("--schedule", name, "--milestones", "2,3", "--gamma", 0.2, "--out", tmp_path / "run"),
    )
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], 0.05, momentum=0.9)
    scheduler = torch_scheduler(name, optimizer, epochs, steps)
    expected = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the scheduler moves without the optimizer
        for step in range(epochs * steps):
            if step % steps == steps - 1:
                expected.append(optimizer.param_groups[0]["lr"])
            scheduler.step()
    assert [row["lr"] for row in metrics(tmp_path / "run")] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_saves_and_says_how_to_go_on(signal_number, common, tmp_path):
    run("train", *common, "--out", tmp_path / "whole")
    out = tmp_path / "stopped"
    flags = ["train", *common, "--out", str(out), "--resume"]
    with subprocess.Popen([PROGRAM, *flags, "--checkpoint-every", "0"], stderr=subprocess.PIPE, text=True) as process:
        wait_for_new_checkpoint(process, out, 0)
        process.send_signal(signal_number)
        message = process.stderr.read()
    assert process.returncode == 128 + signal_number
    assert "run the same command with --resume" in message
    assert "stopped in epoch" in message
    assert "checkpoint.safetensors" in files(out)
    run(*flags)
    assert_same_results(out, tmp_path / "whole")
    # Once more: it is over, and says so by its result.
    again = run(*flags)
    assert "accuracy" in again.stdout
    assert again.stderr == ""


def test_options_must_be_those_it_was_begun_with(common, tmp_path):
    out = tmp_path / "run"
    flags = ["train", *common, "--out", out]
    run(*flags)
    assert "already has a run: --resume goes on with it" in run(*flags, expect=1).stderr
    for changed, message in [
        (["--lr", "0.5"], "was begun with --lr 0.005, got 0.5"),
        (["--optimizer", "sgd"], 'was begun with --optimizer "tensorion", got "sgd"'),
        (["--limit-train", "50"], "was begun with --limit-train null, got 50"),
        (["--unfolding", "0,2"], 'was begun with --unfolding "balanced", got "(0, 2)"'),
    ]:
        assert message in run(*flags, "--resume", *changed, expect=1).stderr
    # Neither of these is part of what is computed.
    run(*flags, "--resume", "--checkpoint-every", "7", "--workers", "2")


def test_a_folder_that_cannot_be_written_is_named(common, tmp_path):
    (tmp_path / "file").write_text("")
    result = run("train", *common, "--out", tmp_path / "file" / "run", expect=1)
    assert str(tmp_path / "file" / "run") in result.stderr
    assert "Not a directory" in result.stderr


def test_one_process_a_folder(common, tmp_path):
    flags = ["train", *common, "--out", str(tmp_path / "run"), "--resume", "--checkpoint-every", "0"]
    with subprocess.Popen([PROGRAM, *flags], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        wait_for_new_checkpoint(process, tmp_path / "run", 0)
        process.send_signal(signal.SIGSTOP)
        assert "another process is at work in" in run(*flags, expect=1).stderr
        process.kill()


def test_what_diverges_is_named(common, tmp_path):
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
        (["--optimizer", "lion"], 2, "lion not in {sgd,adamw,muon,tensorion}"),
        (["--dataset", "mnist"], 2, "mnist not in {fashion-mnist,"),
        (["--model", "resnet19"], 2, "resnet19 not in {resnet18,"),
        (["--epochs", "0"], 2, "--epochs"),
        (["--lr", "fast"], 1, "[tensorion train] --lr must be a number, got 'fast'"),
        (["--lr", "-1"], 1, "lr must be finite and not negative, got -1"),
        (
            ["--lr", "sgd=0.1"],
            1,
            "--lr must be a value, or optimizer=value for some of tensorion, got 'sgd=0.1'",
        ),
        (["--schedule", "linear"], 1, "must be one of constant, multistep, cosine, onecycle, got linear"),
        (["--milestones", "0", "--schedule", "multistep"], 1, "milestones must be at least 1, got 0"),
        (["--optimizer", "sgd", "--unfolding", "online"], 1, "sgd has no --unfolding"),
        (["--optimizer", "adamw", "--momentum", "0.9"], 1, "adamw has no --momentum"),
        (["--optimizer", "muon", "--unfolding", "balanced"], 1, "muon has no --unfolding"),
        (["--unfolding", "best"], 1, "--unfolding: balanced, online or modes such as 0,2"),
        (["--unfolding", "0,9"], 1, "unfolding (0, 9) does not fit parameter"),
        (["--polar", "qr"], 1, "got 'qr'"),
        (["--ns-coefficients", "1,2"], 1, "a row must be three numbers a,b,c, got '1,2'"),
        (["--fallback", "lion"], 1, "got 'lion'"),
        (["--betas", "0.9"], 1, "--betas must be two numbers"),
        (["--nesterov", "yes"], 1, "--nesterov must be true or false, got 'yes'"),
        (["--label-smoothing", "1"], 1, "label_smoothing must be in [0, 1), got 1"),
        (["--weights", "/no/such/file"], 2, "/no/such/file"),
        (["--data", "/no/such/folder"], 1, "/no/such/folder (--data), which is not there"),
        (["--depths", "1,2"], 1, "depths must be four numbers"),
    ],
)
def test_wrong_options_are_named(flags, status, message, common, tmp_path):
    for name in flags[::2]:
        if name in common:
            common = common[: common.index(name)] + common[common.index(name) + 2 :]
    result = run("train", *common, *flags, "--out", tmp_path / "run", expect=status)
    assert message in result.stderr
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_weights_are_loaded(common, tmp_path):
    run("train", *common, "--out", tmp_path / "first")
    weights = tmp_path / "first" / "weights.safetensors"
    run(
        "train",
        *common,
        "--weights",
        weights,
        "--lr",
        "0",
        "--optimizer",
        "sgd",
        "--out",
        tmp_path / "second",
    )
    first = read_weights(weights)
    second = read_weights(tmp_path / "second" / "weights.safetensors")
    assert all(first[name] == second[name] for name in first if name.endswith("conv1.weight"))


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
    assert files(out) == {*runs, "metrics.jsonl", "summary.json"}
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

    # The same as one run, and so the same data and weights for all.
    index = flags.index("--optimizers")
    alone = ["--optimizer", "adamw", "--seed", "1", "--lr", "2e-3", "--out", tmp_path / "adamw-seed1"]
    run("train", *flags[1:index], *alone)
    assert without_times(metrics(tmp_path / "adamw-seed1")) == without_times(metrics(out / "adamw-seed1"))

    # Over already: the same table at once.
    again = run(*flags, "--out", out, "--resume")
    assert again.stdout == result.stdout
    assert again.stderr == ""


def test_compare_goes_on_where_it_was_stopped(compared, tmp_path):
    flags, out = compared
    flags = ["0" if value == "0,1" else value for value in flags]
    run(*flags, "--out", tmp_path / "whole")
    command = [PROGRAM, *flags, "--out", str(out), "--resume"]
    with subprocess.Popen([*command, "--checkpoint-every", "0"], stderr=subprocess.PIPE) as process:
        wait_for_new_checkpoint(process, out / "adamw-seed0", 0)
        process.kill()
    run(*command[1:])
    for name in ("sgd-seed0", "adamw-seed0", "tensorion-seed0"):
        assert_same_results(out / name, tmp_path / "whole" / name)


def test_compare_goes_on_without_a_run_that_diverges(common, tmp_path):
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
        (["--optimizers", "sgd,sgd"], "--optimizers must not name one twice"),
        (["--optimizers", "sgd,adamw", "--unfolding", "online"], "sgd, adamw have no --unfolding"),
        (["--optimizers", "sgd,tensorion", "--unfolding", "sgd=online"], "sgd has no --unfolding"),
        (["--optimizers", "sgd", "--lr", "0.1,sgd=2"], "--lr must be a value, or optimizer=value"),
        (["--seeds", "1,1"], "--seeds must not name one twice"),
    ],
)
def test_compare_names_wrong_options(flags, message, common, tmp_path):
    assert message in run("compare", *common, *flags, "--out", tmp_path / "all", expect=1).stderr


def on_a_terminal(*arguments):
    """What the program writes to a terminal of 100 columns and 30 lines."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm"
        os.execv(PROGRAM, [str(PROGRAM), *map(str, arguments)])
    import fcntl
    import termios

    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    output = b""
    while True:
        try:
            chunk = os.read(terminal, 4096)
        except OSError:
            break
        if not chunk:
            break
        output += chunk
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, output.decode()
    return output.decode()


def test_live_lines_on_a_terminal(common, tmp_path):
    output = on_a_terminal("train", *common, "--out", tmp_path / "run")
    assert "images/s  optimizer" in output
    assert "ETA" in output
    assert "epoch 2/2  lr" in output
    flags = ["--optimizers", "sgd,tensorion", "--out", tmp_path / "all"]
    output = on_a_terminal("compare", *common, *flags)
    last_table = output[output.rindex("run  ") :]
    assert [line.split()[2] for line in last_table.splitlines()[1:3]] == ["2/2", "2/2"]
    assert "diverged" not in output


def documented_commands():
    text = (ROOT / "docs" / "training.md").read_text().replace("\\\n", "")
    return [line for line in text.splitlines() if line.startswith(("tensorion train", "tensorion compare"))]


@pytest.mark.parametrize("command", documented_commands())
def test_documented_commands_run(command, data, tmp_path):
    # As they stand, but for the data and the size.
    replaced = {
        **{"--dataset": "cifar10", "--data": data, "--model": "resnet18", "--width": "0.125"},
        **{"--epochs": "1", "--limit-train": "20", "--limit-test": "10", "--batch-size": "10"},
        **{"--threads": "1", "--milestones": "1", "--out": tmp_path / "run", "--depths": "1,1,1,1"},
        **{"--seeds": "0", "--weights": None, "--image-size": None},
    }
    _, name, *flags = shlex.split(command)
    kept = [flag for i, flag in enumerate(flags) if {flag, flags[i - 1]}.isdisjoint(replaced)]
    run(
        name,
        *kept,
        *(
            word
            for flag in replaced.items()
            if flag[1] is not None
            for word in flag
            if name == "compare" or flag[0] != "--seeds"
        ),
    )


@pytest.mark.parametrize("command", ["train", "compare"])
def test_every_flag_is_documented(command):
    help_text = run(command, "--help").stdout
    flags = set(re.findall(r"--[a-z][a-z-]*", help_text))
    assert len(flags) > 30
    text = (ROOT / "docs" / "training.md").read_text()
    assert {flag for flag in flags if f"`{flag}" not in text} == set()
