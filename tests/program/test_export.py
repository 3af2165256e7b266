"""`tensorion export`: CSV, TensorBoard, Weights & Biases."""

import csv
import os
import sys
from pathlib import Path

import pytest
import tiny_training
from program import run
from tiny_training import metrics


@pytest.fixture(scope="module")
def runs(cifar10, tmp_path_factory):
    """A comparison of two runs with logged steps."""
    folder = tmp_path_factory.mktemp("export") / "runs"
    flags = [*tiny_training.flags(cifar10), "--log-steps", "2", "--optimizers", "sgd,tensorion"]
    run("compare", *flags, "--out", folder)
    return folder


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_csv(runs, tmp_path):
    result = run("export", runs, "--csv", tmp_path / "out")
    epochs, steps = rows(tmp_path / "out" / "metrics.csv"), rows(tmp_path / "out" / "steps.csv")
    assert [row["run"] for row in epochs] == ["sgd-seed0"] * 2 + ["tensorion-seed0"] * 2
    assert [float(row["train_loss"]) for row in epochs[2:]] == [
        row["train_loss"] for row in metrics(runs / "tensorion-seed0")
    ]
    assert [int(row["step"]) for row in steps] == [2, 4, 6, 8, 10, 12] * 2
    assert "metrics.csv" in result.stdout
    assert "steps.csv" in result.stdout


def test_tensorboard(runs, tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run("export", runs, "--tensorboard", tmp_path / "out")
    events = accumulator.EventAccumulator(str(tmp_path / "out" / "sgd-seed0"))
    events.Reload()
    expected = metrics(runs / "sgd-seed0")
    found = [(event.step, event.value) for event in events.Scalars("epoch/test_loss")]
    assert found == [(row["epoch"], pytest.approx(row["test_loss"], rel=1e-6)) for row in expected]
    assert [event.step for event in events.Scalars("step/gradient_norm")] == [2, 4, 6, 8, 10, 12]


FAKE_WANDB = """
import json, os

class _Api:
    api_key = None

api = _Api()

class _Run:
    def __init__(self, **options):
        self.lines = [options]
    def __enter__(self):
        return self
    def __exit__(self, *error):
        with open(os.environ["FAKE_WANDB_LOG"], "a") as file:
            file.writelines(json.dumps(line) + "\\n" for line in self.lines)
    def define_metric(self, name, step_metric):
        pass
    def log(self, values):
        self.lines.append(values)

def init(**options):
    return _Run(**options)
"""


@pytest.fixture
def wandb(tmp_path):
    """An environment with a fake package `wandb`, which logs its calls to a file."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "wandb.py").write_text(FAKE_WANDB)
    kept = {key: value for key, value in os.environ.items() if not key.startswith("WANDB")}
    return {**kept, "PYTHONPATH": str(tmp_path / "modules"), "FAKE_WANDB_LOG": str(tmp_path / "log")}


def test_wandb_offline(runs, wandb, tmp_path):
    import json

    result = run("export", runs, "--wandb", "--project", "mine", env={**wandb, "WANDB_MODE": "offline"})
    assert "offline" in result.stdout
    lines = [json.loads(line) for line in Path(wandb["FAKE_WANDB_LOG"]).read_text().splitlines()]
    begun = [line for line in lines if "project" in line]
    assert [(line["project"], line["name"]) for line in begun] == [("mine", "sgd-seed0"), ("mine", "tensorion-seed0")]
    assert begun[0]["config"]["optimizer"] == "sgd"
    losses = [line["epoch/train_loss"] for line in lines if "epoch/train_loss" in line]
    assert losses[:2] == [row["train_loss"] for row in metrics(runs / "sgd-seed0")]


def test_wandb_requires_login(runs, wandb):
    result = run("export", runs, "--wandb", env=wandb, expect=1)
    assert "--wandb needs your login: run `wandb login`, or set WANDB_MODE=offline" in result.stderr


def test_errors_name_missing_packages(runs, tmp_path):
    (tmp_path / "wandb.py").write_text("raise ModuleNotFoundError('no', name='wandb')")
    result = run("export", runs, "--wandb", env={**os.environ, "PYTHONPATH": str(tmp_path)}, expect=1)
    assert "pip install 'tensorion[wandb]'" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["nowhere", "--csv", "out"], 1, "nowhere: no such directory"),
        ([sys.prefix], 2, "one of the arguments --tensorboard --csv --wandb is required"),
        ([sys.prefix, "--csv", "a", "--wandb"], 2, "not allowed with argument"),
    ],
    ids=["missing", "no-target", "two-targets"],
)
def test_errors(arguments, status, message, tmp_path):
    assert message in run("export", *arguments, expect=status, cwd=tmp_path).stderr
