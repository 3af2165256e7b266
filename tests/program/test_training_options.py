"""Clipping, warm-up, averaged weights, accumulation, logged steps, devices and precision."""

import numpy as np
import pytest
import tiny_training
import torch
from program import files, read_json, read_json_lines, read_safetensors, run
from tiny_training import assert_same_results, metrics, stuck_after_an_epoch, without_times
from torch.optim import lr_scheduler


@pytest.fixture
def common(cifar10):
    return tiny_training.flags(cifar10)  # There are two epochs with six steps of 20 samples.


def with_epochs(flags, epochs):
    """Return the flags with another number of epochs."""
    place = flags.index("--epochs") + 1
    return [*flags[:place], str(epochs), *flags[place + 1 :]]


def steps(folder):
    return read_json_lines(folder / "steps.jsonl")


def without_speed(rows):
    return [{key: value for key, value in row.items() if key not in ("images_per_second", "run")} for row in rows]


def floats(path):
    tensors = read_safetensors(path).items()
    return {name: np.frombuffer(data, np.float32) for name, data in tensors if "num_batches" not in name}


ALL = ["--clip-grad", "0.5", "--warmup-epochs", "0.5", "--ema", "0.9", "--accumulate", "2", "--log-steps", "2"]


@pytest.mark.parametrize(
    "flags", [ALL, ["--amp", "bf16"], ["--log-steps", "4", "--ema", "0.5"]], ids=lambda f: f[0] + f[-2]
)
def test_resuming_is_bit_exact(flags, common, tmp_path):
    whole, out = tmp_path / "whole", tmp_path / "stopped"
    run("train", *common, *flags, "--out", whole)
    words = ["train", *common, *flags, "--out", out, "--resume"]
    with stuck_after_an_epoch(*words, folder=out) as program:
        program.process.kill()
    run(*words)
    assert_same_results(out, whole)
    if "--ema" in flags:
        name = "weights.ema.safetensors"
        assert read_safetensors(out / name) == read_safetensors(whole / name)
    if "--log-steps" in flags:
        assert without_speed(steps(out)) == without_speed(steps(whole))


def test_steps_logged_after_the_checkpoint_are_not_duplicated(common, tmp_path):
    whole, out = tmp_path / "whole", tmp_path / "stopped"
    flags = [*common, "--log-steps", "1"]
    run("train", *flags, "--out", whole)
    words = ["train", *flags, "--out", out, "--resume"]
    with stuck_after_an_epoch(*words, folder=out) as program:
        program.process.kill()
    lines = (out / "steps.jsonl").read_text().splitlines(keepends=True)
    later = lines[-1].replace('"step":6', '"step":9')
    assert later != lines[-1]
    (out / "steps.jsonl").write_text("".join([*lines, later, later[:20]]))  # The run was killed while it wrote.
    run(*words)
    assert without_speed(steps(out)) == without_speed(steps(whole))
    assert [row["step"] for row in steps(out)] == list(range(1, 13))


def test_logged_steps_add_up_to_the_epoch(common, tmp_path):
    run("train", *common, "--log-steps", "1", "--optimizer", "sgd", "--lr", "0.01", "--out", tmp_path / "run")
    rows, epochs = steps(tmp_path / "run"), metrics(tmp_path / "run")
    for epoch in epochs:
        own = [row for row in rows if row["epoch"] == epoch["epoch"]]
        assert len(own) == 6
        assert np.mean([row["loss"] for row in own]) == pytest.approx(epoch["train_loss"], rel=1e-12)
        assert own[-1]["lr"] == epoch["lr"]
    assert all(row["gradient_norm"] > 0 and row["images_per_second"] > 0 for row in rows)


def test_neutral_options_change_nothing(common, tmp_path):
    run("train", *common, "--out", tmp_path / "plain")
    neutral = ["--clip-grad", "1e9", "--accumulate", "1", "--log-steps", "3", "--device", "cpu", "--amp", "off"]
    run("train", *common, *neutral, "--ema", "0.99", "--out", tmp_path / "other")
    plain, other = (without_times(metrics(tmp_path / name)) for name in ("plain", "other"))
    assert [{key: row[key] for key in plain[0] if key != "run"} for row in other] == [
        {key: value for key, value in row.items() if key != "run"} for row in plain
    ]
    weights = [read_safetensors(tmp_path / name / "weights.safetensors") for name in ("plain", "other")]
    assert weights[0] == weights[1]


def test_clipping_bounds_the_step(common, tmp_path):
    # One step of plain SGD changes the weights by lr times the clipped gradient.
    flags = [*common, "--optimizer", "sgd", "--momentum", "0", "--weight-decay", "0", "--schedule", "constant"]
    flags += ["--lr", "0.5", "--limit-train", "20", "--log-steps", "1"]
    for epochs, name in ((1, "one"), (2, "two")):
        run("train", *with_epochs(flags, epochs), "--clip-grad", "0.01", "--out", tmp_path / name)
    one, two = (floats(tmp_path / name / "weights.safetensors") for name in ("one", "two"))
    moved = sum(((two[name] - one[name]).astype(np.float64) ** 2).sum() for name in one if "running" not in name)
    assert steps(tmp_path / "two")[-1]["gradient_norm"] > 0.01  # before clipping
    assert moved**0.5 == pytest.approx(0.5 * 0.01, rel=1e-3)


@pytest.mark.parametrize("schedule", ["constant", "multistep", "cosine"])
def test_warmup_matches_torch_linear_lr(schedule, common, tmp_path):
    flags = [*with_epochs(common, 4), "--optimizer", "sgd", "--lr", "0.05", "--log-steps", "1"]
    run("train", *flags, "--schedule", schedule, "--warmup-epochs", "1.5", "--out", tmp_path / "run")
    total, warmup = 24, 9
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], 0.05)
    linear = lr_scheduler.LinearLR(optimizer, 0.01, total_iters=warmup)
    if schedule == "cosine":
        after = lr_scheduler.CosineAnnealingLR(optimizer, total - warmup)
        scheduler = lr_scheduler.SequentialLR(optimizer, [linear, after], [warmup])
    elif schedule == "multistep":
        scheduler = lr_scheduler.ChainedScheduler([linear, lr_scheduler.MultiStepLR(optimizer, [12, 18])])
    else:
        scheduler = linear
    expected = []
    for _ in range(total):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert [row["lr"] for row in steps(tmp_path / "run")] == pytest.approx(expected, rel=1e-9)


def test_ema_averages_weights_after_each_step(common, tmp_path):
    # With a constant learning rate, a shorter run consists of the first steps of a longer run.
    flags = [*common, "--schedule", "constant", "--limit-train", "20", "--ema", "0.7"]
    for epochs in (1, 2, 3):
        run("train", *with_epochs(flags, epochs), "--out", tmp_path / str(epochs))
    weights = [floats(tmp_path / str(epochs) / "weights.safetensors") for epochs in (1, 2, 3)]
    average = floats(tmp_path / "3" / "weights.ema.safetensors")
    for name, value in average.items():
        first, second, third = (step[name].astype(np.float64) for step in weights)
        expected = 0.7 * (0.7 * first + 0.3 * second) + 0.3 * third
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6, err_msg=name)
    row = metrics(tmp_path / "3")[-1]
    assert 0 <= row["ema_test_accuracy"] <= 1
    assert row["ema_test_loss"] != row["test_loss"]
    assert read_json(tmp_path / "3" / "summary.json")["final"]["ema_test_loss"] == row["ema_test_loss"]


def test_accumulated_batches_make_fewer_steps(common, tmp_path):
    run("train", *common, "--accumulate", "4", "--log-steps", "1", "--out", tmp_path / "run")
    rows = steps(tmp_path / "run")
    assert [(row["epoch"], row["step"]) for row in rows] == [(1, 1), (1, 2), (2, 3), (2, 4)]  # 4 + 2 batches an epoch


@pytest.mark.parametrize("amp", ["bf16", "fp16"])
def test_mixed_precision_is_close_to_float32(amp, common, tmp_path):
    flags = [*common, "--optimizer", "sgd", "--lr", "0.01"]
    run("train", *flags, "--out", tmp_path / "full")
    run("train", *flags, "--amp", amp, "--out", tmp_path / "mixed")
    full, mixed = (metrics(tmp_path / name)[0] for name in ("full", "mixed"))
    assert mixed["train_loss"] != full["train_loss"]
    assert mixed["train_loss"] == pytest.approx(full["train_loss"], rel=0.02)
    assert read_json(tmp_path / "mixed" / "config.json")["amp"] == amp


def test_auto_selects_the_device_of_torch(common, tmp_path):
    run("train", *with_epochs(common, 1), "--out", tmp_path / "run")
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else "cpu"
    assert read_json(tmp_path / "run" / "config.json")["device"].split(":")[0] == str(found).split(":")[0]


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is an accelerator")
@pytest.mark.parametrize("device", ["cuda", "cuda:1", "mps", "xpu"])
def test_missing_device_is_an_error(device, common, tmp_path):
    result = run("train", *common, "--device", device, "--out", tmp_path / "run", expect=1)
    assert f"--device {device} is not available; torch finds cpu" in result.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "meta", ""])
def test_bad_device_names_are_errors(device, common, tmp_path):
    result = run("train", *common, "--device", device, "--out", tmp_path / "run", expect=2)
    assert "--device must be auto, cpu, or an accelerator such as cuda, cuda:1, mps or xpu" in result.stderr


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--warmup-epochs", "1", "--schedule", "onecycle"], "--warmup-epochs cannot be used with onecycle"),
        (["--warmup-epochs", "2"], "--warmup-epochs must be at least 0 and less than the 2 epochs"),
        (["--ema", "1"], "--ema must be a number in [0, 1), got '1'"),
    ],
    ids=["onecycle", "too-long", "ema"],
)
def test_bad_values_are_errors_and_leave_no_files(flags, message, common, tmp_path):
    result = run("train", *common, *flags, "--out", tmp_path / "run", expect=2)
    assert message in result.stderr
    assert not (tmp_path / "run").exists()


def test_files(common, tmp_path):
    run("train", *common, "--ema", "0.9", "--log-steps", "3", "--out", tmp_path / "run")
    extra = {"steps.jsonl", "weights.ema.safetensors"}
    assert files(tmp_path / "run") >= extra | {"config.json", "metrics.jsonl", "summary.json", "weights.safetensors"}
