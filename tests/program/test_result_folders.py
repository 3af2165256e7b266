"""Folders of results: no command overwrites the results of another, or mixes them with its own."""

import hashlib
import itertools
import json
import os
import subprocess

import pytest
import tiny_training
from program import PROGRAM, files, read_json, run, words
from tiny_training import TINY_TIGHTNESS, metrics

LAPLACE = ["--problems", "3x4x2", "--optimizers", "adam", "--lrs", "0.01", "--seeds", "0", "--steps", "3"]


def snapshot(folder):
    return {
        str(path.relative_to(folder)): path.is_dir() or hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
    }


def commands(cifar10):
    """Return the flags of a short run for each command that writes results."""
    common = tiny_training.flags(cifar10, epochs=1)
    return {
        "train": ["train", *common],
        "compare": ["compare", *common, "--optimizers", "sgd,adamw"],
        "ablation": ["ablation", *common, "--optimizers", "sgd", "--seeds", "0"],
        "laplace": ["laplace", *LAPLACE],
        "tightness": ["tightness", "--data", str(cifar10), *words(TINY_TIGHTNESS)],
    }


@pytest.fixture(scope="module")
def results(cifar10, tmp_path_factory):
    """A folder with results of each command."""
    folder = tmp_path_factory.mktemp("results")
    for name, flags in commands(cifar10).items():
        run(*flags, "--out", folder / name)
    return folder


OWNERS = {"train": "train", "compare": "compare", "ablation": "compare", "laplace": "laplace", "tightness": "tightness"}


@pytest.mark.parametrize("resume", [[], ["--resume"]], ids=["anew", "resume"])
@pytest.mark.parametrize(
    ("command", "owner"), [(a, b) for a, b in itertools.product(OWNERS, OWNERS) if OWNERS[a] != OWNERS[b]]
)
def test_results_of_another_command_are_not_overwritten(command, owner, resume, results, cifar10):
    """Regression: `compare` and `tightness` replaced the files of a run, and `train` those of a comparison."""
    before = snapshot(results)
    message = run(*commands(cifar10)[command], "--out", results / owner, *resume, expect=1).stderr
    assert f"{results / owner} contains results of `tensorion {OWNERS[owner]}`" in message
    assert snapshot(results) == before


@pytest.mark.parametrize("command", OWNERS)
def test_existing_results_are_not_overwritten(command, results, cifar10):
    before = snapshot(results)
    message = run(*commands(cifar10)[command], "--out", results / command, expect=1).stderr
    assert f"{results / command} already contains " in message
    assert "continue with --resume" in message
    assert snapshot(results) == before


def test_compare_checks_all_folders_first(cifar10, tmp_path):
    """Regression: it started with the other runs, and found the run with another rate only later."""
    flags = [*commands(cifar10)["compare"], "--out", tmp_path / "all"]
    run(*commands(cifar10)["train"], "--optimizer", "adamw", "--out", tmp_path / "all" / "adamw-seed0")
    before = snapshot(tmp_path)
    assert "adamw-seed0 already contains a run" in run(*flags, expect=1).stderr
    assert snapshot(tmp_path) == before
    assert "adamw-seed0 was started with --lr" in run(*flags, "--lr", "adamw=1e-4", "--resume", expect=1).stderr
    assert snapshot(tmp_path) == before


def test_search_checks_all_folders_first(cifar10, tmp_path):
    run(*commands(cifar10)["train"], "--out", tmp_path / "all-grid")
    before = snapshot(tmp_path)
    flags = [*commands(cifar10)["compare"], "--grid", "--grid-lrs", "0.1", "--out", tmp_path / "all"]
    assert "all-grid contains results of `tensorion train`" in run(*flags, expect=1).stderr
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("name", ["config.json", "summary.json", "metrics.jsonl", "weights.safetensors"])
@pytest.mark.parametrize("command", OWNERS)
def test_files_of_other_programs_are_not_overwritten(command, name, cifar10, tmp_path):
    (tmp_path / name).write_text(json.dumps({"hidden_size": 768}))
    before = snapshot(tmp_path)
    assert f"{tmp_path} contains {name}" in run(*commands(cifar10)[command], "--out", tmp_path, expect=1).stderr
    assert snapshot(tmp_path) == before


def test_resume_with_fewer_optimizers_keeps_results_of_the_others(cifar10, tmp_path):
    """Regression: `--resume` with one optimizer removed the others from summary.json."""
    out = tmp_path / "all"
    flags = ["compare", *tiny_training.flags(cifar10, epochs=1), "--out", out]
    run(*flags, "--optimizers", "sgd,adamw")
    before = snapshot(out)
    result = run(*flags, "--optimizers", "adamw", "--resume")
    assert snapshot(out) == before
    assert [line.split()[0] for line in result.stdout.splitlines()[1:3]] == ["sgd", "adamw"]
    run(*flags, "--optimizers", "muon", "--resume")
    assert [entry["optimizer"] for entry in read_json(out / "summary.json")["optimizers"]] == ["sgd", "adamw", "muon"]
    assert {row["optimizer"] for row in metrics(out)} == {"sgd", "adamw", "muon"}


@pytest.mark.parametrize("written", ["x/", "./x//", "y/../x"])
def test_trailing_slash_changes_nothing(written, cifar10, tmp_path):
    """Regression: the name of the run was "", and its grid was written to x/-grid."""
    flags = ["compare", *tiny_training.flags(cifar10, epochs=1), "--optimizers", "sgd", "--grid", "--grid-lrs", "0.1"]
    run(*flags, "--out", written, cwd=tmp_path)
    assert files(tmp_path) == {"x", "x-grid"}


@pytest.mark.parametrize("written", [".", "./", "../here/"])
def test_run_is_named_after_its_folder(written, cifar10, tmp_path):
    (tmp_path / "here").mkdir()
    run("train", *tiny_training.flags(cifar10, epochs=1), "--out", written, cwd=tmp_path / "here")
    assert read_json(tmp_path / "here" / "summary.json")["run"] == "here"


@pytest.mark.parametrize("command", OWNERS)
def test_folder_name_that_is_not_utf8_is_an_early_error(command, cifar10, tmp_path):
    """Regression: the error came at the end of training, when the summary could not be written."""
    name = os.fsencode(tmp_path) + b"/caf\xe9"
    words = [os.fsencode(PROGRAM), *map(os.fsencode, commands(cifar10)[command]), b"--out", name]
    result = subprocess.run(words, capture_output=True, timeout=120)
    assert result.returncode == 2
    assert b"--out must be valid UTF-8" in result.stderr
    assert files(tmp_path) == set()


def test_interval_longer_than_the_run_is_an_early_error(cifar10, tmp_path):
    """Regression: the error came only after the whole training."""
    flags = {**TINY_TIGHTNESS, "--every": "13", "--data": cifar10, "--out": tmp_path / "out"}
    message = run("tightness", *words(flags), expect=2).stderr
    assert "--every must be at most 12, the number of steps of the run, got 13" in message
    assert files(tmp_path) == set()
