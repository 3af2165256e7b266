"""All commands in docs/training.md and docs/experiments.md run, and all flags are documented."""

import re
import shlex
from pathlib import Path

import pytest
from program import ROOT, run, words
from tiny_training import TINY_RUN, TINY_TIGHTNESS

import tensorion

TRAINING = ROOT / "docs" / "training.md"
EXPERIMENTS = ROOT / "docs" / "experiments.md"


def commands(document, *names):
    """Return (name, flags) of the lines of a document that contain one of these commands."""
    lines = document.read_text().replace("\\\n", "").splitlines()
    found = [shlex.split(line)[1:] for line in lines if line.startswith("tensorion ")]
    return [pytest.param(name, flags, id=shlex.join([name, *flags])) for name, *flags in found if name in names]


def replace(flags, values):
    """Replace the values of some flags, and return the words of the command line. None removes a flag."""
    kept = [flag for i, flag in enumerate(flags) if {flag, flags[i - 1]}.isdisjoint(values)]
    return [*kept, *words(values)]


@pytest.mark.parametrize(("name", "flags"), commands(TRAINING, "train", "compare"))
def test_documented_training_commands_run(name, flags, cifar10, tmp_path):
    # Only the data and the size are changed.
    values = {
        **TINY_RUN,
        **{"--dataset": "cifar10", "--data": cifar10, "--model": "resnet18", "--image-size": None, "--weights": None},
        **{"--limit-test": "10", "--out": tmp_path / "run"},
    }
    if "--milestones" in flags:
        values |= {"--milestones": "1", "--epochs": "2"}
    if name == "compare":
        values["--seeds"] = "0"
    if "--validation" in flags:
        values["--validation"] = "10"
    if "--config" in flags:
        values["--config"] = tmp_path / "config.json"
        values["--config"].write_text('{"seed": 1}')
    run(name, *replace(flags, values))


# Replacements for flags of documented commands, so that each takes a second or two.
TINY = {
    "laplace": {"--problems": "3x4x2", "--steps": "10", "--lrs": "0.01", "--seeds": "0", "--threads": "1"},
    "ablation": {**TINY_RUN, "--seeds": "0", "--optimizers": "modes-0,sgd", "--grid-epochs": "1"},
    "tightness": TINY_TIGHTNESS,
    # The data sets of the presets have other classes and sizes. Flags override presets.
    "compare": {
        **TINY_RUN,
        **{"--dataset": "cifar10", "--model": "resnet18", "--image-size": "32", "--weights": None},
        **{"--seeds": "0", "--optimizers": "sgd,tensorion-sgd"},
    },
}


@pytest.mark.parametrize(("name", "flags"), commands(EXPERIMENTS, *TINY))
def test_documented_experiments_run(name, flags, image_folder, tmp_path):
    values = {"--scale": "smoke", "--out": tmp_path / "out", **TINY[name]}
    if name != "laplace":
        values["--data"] = image_folder
    if "--grid" not in flags:
        values["--grid-epochs"] = None
    if any(flag.startswith("unfoldings") for flag in flags):
        values["--optimizers"] = "muon,sgd"
    # Without its launcher, the program draws no figures. tests/program checks the figures.
    program = Path(tensorion.__file__).parent / "bin" / "tensorion"
    result = run(name, *replace(flags, values), program=program)
    assert result.stdout.endswith(f"figures: tensorion report {tmp_path / 'out'}\n")


@pytest.mark.parametrize(
    ("name", "documents"),
    [
        ("train", [TRAINING]),
        ("compare", [TRAINING]),
        ("eval", [TRAINING]),
        ("export", [TRAINING]),
        *((name, [TRAINING, EXPERIMENTS]) for name in ("ablation", "laplace", "tightness")),
    ],
)
def test_every_flag_is_documented(name, documents):
    flags = set(re.findall(r"--[a-z][a-z-]*", run(name, "--help").stdout)) - {"--help"}
    assert flags
    text = "".join(document.read_text() for document in documents)
    assert {flag for flag in flags if f"`{flag}" not in text} == set()
