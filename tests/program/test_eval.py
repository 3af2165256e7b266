"""`tensorion eval` and its report, --dry-run, and validation samples."""

import re

import numpy as np
import pytest
import tiny_training
from program import figures, read_json, run
from tiny_training import CLASSES, TINY_MODEL, metrics


@pytest.fixture(scope="module")
def trained(cifar10, tmp_path_factory):
    folder = tmp_path_factory.mktemp("eval") / "run"
    run("train", *tiny_training.flags(cifar10, epochs=3), "--ema", "0.5", "--log-steps", "1", "--out", folder)
    return folder


def test_eval_agrees_with_training(trained, cifar10):
    result = run("eval", "--weights", trained / "weights.safetensors", "--data", cifar10)
    values, last = read_json(trained / "evaluation.json"), metrics(trained)[-1]
    assert values["test_accuracy"] == last["test_accuracy"]
    assert values["test_loss"] == pytest.approx(last["test_loss"], rel=1e-6)
    assert f"accuracy {100 * last['test_accuracy']:.2f} %" in result.stdout
    confusion = np.array(values["confusion"])
    assert confusion.shape == (CLASSES, CLASSES)
    assert confusion.sum(1).tolist() == [5] * CLASSES  # images per class
    assert confusion.trace() == round(50 * last["test_accuracy"])
    # The printed matrix is the same.
    rows = [line.split() for line in result.stdout.splitlines() if re.match(r"\d+  \S+  ", line)]
    assert [[int(cell) for cell in row[-CLASSES - 2 : -2]] for row in rows] == confusion.tolist()
    assert "confusion_matrix.png" in figures(trained)


def test_eval_of_averaged_weights(trained, cifar10, tmp_path):
    run("eval", "--weights", trained / "weights.ema.safetensors", "--data", cifar10, "--out", tmp_path / "out")
    values, last = read_json(tmp_path / "out" / "evaluation.json"), metrics(trained)[-1]
    assert values["test_accuracy"] == last["ema_test_accuracy"]
    assert values["test_loss"] == pytest.approx(last["ema_test_loss"], rel=1e-6)
    # The report on a folder without a run shows only the evaluation.
    assert figures(tmp_path / "out") == {"confusion_matrix.png"}


def test_weights_without_a_run_need_flags(trained, cifar10, tmp_path):
    weights = tmp_path / "weights.safetensors"
    weights.write_bytes((trained / "weights.safetensors").read_bytes())
    result = run("eval", "--weights", weights, "--dataset", "cifar10", "--data", cifar10, *TINY_MODEL)
    assert f"accuracy {100 * metrics(trained)[-1]['test_accuracy']:.2f} %" in result.stdout
    assert "--out DIR saves the results" in result.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"weights.safetensors"}
    # The shapes of the weights determine the model, and their metadata names the data set.
    alone = run("eval", "--weights", weights, "--data", cifar10)
    assert alone.stdout == result.stdout
    flags = "--model resnet18 --width 0.125 --depths 1,1,1,1 --stem cifar --dataset cifar10"
    assert alone.stderr == f"flags inferred from the weights: {flags}\n"


def test_weights_of_another_model_are_an_error(trained, cifar10, tmp_path):
    flags = ["--dataset", "cifar10", "--data", cifar10, "--model", "resnet34"]
    weights = tmp_path / "weights.safetensors"
    weights.write_bytes((trained / "weights.safetensors").read_bytes())
    assert "weights.safetensors" in run("eval", "--weights", weights, *flags, expect=1).stderr
    run("eval", "--dataset", "cifar10", "--data", cifar10, expect=2)  # --weights is required


def test_report_draws_logged_steps(trained, cifar10):
    run("report", trained)
    assert {"step_loss.png", "gradient_norm.png", "learning_rate.png"} <= figures(trained)
    page = (trained / "report" / "index.html").read_text()
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport"' in page


def test_error_names_broken_line_of_steps(trained, tmp_path):
    (tmp_path / "run").mkdir()
    for name in ("config.json", "metrics.jsonl", "summary.json", "steps.jsonl"):
        (tmp_path / "run" / name).write_bytes((trained / name).read_bytes())
    with (tmp_path / "run" / "steps.jsonl").open("a") as file:
        file.write('{"step": "many"}\n')
    assert re.search(
        r"steps\.jsonl, line 19: not in the format of steps\.jsonl", run("report", tmp_path, expect=1).stderr
    )


@pytest.mark.parametrize("optimizer", ["tensorion", "adamw"])
def test_dry_run(optimizer, cifar10, tmp_path):
    flags = [*tiny_training.flags(cifar10), "--optimizer", optimizer, "--out", tmp_path / "run"]
    text = run("train", *flags, "--dry-run").stdout
    assert not (tmp_path / "run").exists()
    assert f'optimizer = "{optimizer}"' in text
    kernel = next(line.split() for line in text.splitlines() if "layer1.0.conv1.weight" in line)
    assert kernel[1:4] == ["layer1.0.conv1.weight", "8x8x3x3", optimizer]
    run("train", *flags)
    assert f"{read_json(tmp_path / 'run' / 'summary.json')['parameters']} parameters" in text
    sizes = {name: float(size) for name, size in re.findall(r"(weights|gradients|state|most) ([\d.]+) MB", text)}
    assert sizes["state"] == pytest.approx(sizes["gradients"] * (2 if optimizer == "adamw" else 1), rel=0.3, abs=0.2)
    assert sizes["most"] > sizes["weights"] + sizes["gradients"] + sizes["state"] - 0.2
    assert re.search(r"a step on 20 images: [\d.e-]+ s, \d+ % of it in the optimizer; a run of 12 steps", text)


def test_dry_run_of_a_comparison(cifar10, tmp_path):
    flags = [*tiny_training.flags(cifar10), "--optimizers", "sgd,muon", "--seeds", "0,1", "--out", tmp_path / "out"]
    text = run("compare", *flags, "--dry-run").stdout
    assert "4 runs, about" in text
    assert not (tmp_path / "out").exists()


def test_search_uses_held_out_samples(cifar10, tmp_path):
    flags = [*tiny_training.flags(cifar10, epochs=1), "--optimizers", "sgd", "--grid", "--grid-lrs", "0.01,0.1"]
    result = run("compare", *flags, "--validation", "30", "--out", tmp_path / "out")
    assert "Validation accuracy (%) by learning rate" in result.stdout
    grid = read_json(tmp_path / "out-grid" / "sgd-lr0.01" / "config.json")
    final = read_json(tmp_path / "out" / "sgd-seed0" / "config.json")
    assert (grid["train_samples"], grid["test_samples"]) == (90, 30)
    assert (final["train_samples"], final["test_samples"]) == (90, 50)
    assert grid["validation"] == final["validation"] == 30


def test_search_holds_out_a_tenth_by_default(cifar10, tmp_path):
    flags = [*tiny_training.flags(cifar10, epochs=1), "--optimizers", "sgd", "--grid", "--grid-lrs", "0.01"]
    run("compare", *flags, "--out", tmp_path / "out")
    assert read_json(tmp_path / "out-grid" / "sgd-lr0.01" / "config.json")["test_samples"] == 12


def test_validation_must_leave_training_samples(cifar10, tmp_path):
    flags = [*tiny_training.flags(cifar10), "--validation", "120", "--out", tmp_path / "run"]
    assert "--validation must be less than" in run("train", *flags, expect=1).stderr
