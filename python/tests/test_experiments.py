"""The commands that rerun the paper's experiments, at toy sizes, through the real program."""

import json
import math
import re
import shlex
import subprocess
import sysconfig
import time
from pathlib import Path

import numpy as np
import pytest
from pytest import approx

import tensorion

ROOT = Path(__file__).parents[2]
PROGRAM = Path(sysconfig.get_path("scripts")) / "tensorion"
DOCUMENT = ROOT / "docs" / "experiments.md"


def run(*arguments, expect=0, program=PROGRAM):
    command = [program, *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == expect, result.stderr
    return result


def read_json(path):
    return json.loads(path.read_text())


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def pictures(folder):
    return {path.name for path in (folder / "report").glob("*.png")}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """CIFAR-10 as an image folder would hold it: ten colours."""
    from PIL import Image

    folder = tmp_path_factory.mktemp("pictures")
    numbers = np.random.default_rng(0)
    for split, count in (("train", 6), ("val", 3)):
        for label in range(10):
            place = folder / split / f"class{label}"
            place.mkdir(parents=True)
            for i in range(count):
                pixels = numbers.integers(0, 80, (32, 32, 3))
                pixels[4 * (label // 3) : 4 * (label // 3) + 14, :, label % 3] += 120
                Image.fromarray(pixels.astype(np.uint8)).save(place / f"{i}.jpg")
    return folder


# Overrules a scale so that a run takes a second.
TINY_RUN = {"--width": "0.125", "--depths": "1,1,1,1", "--limit-train": "20", "--limit-test": "20"}
TINY_RUN |= {"--epochs": "1", "--batch-size": "10", "--threads": "1"}


def words(flags):
    return [str(word) for flag in flags.items() for word in flag if word is not None]


PAPER_ABLATION = {
    # Table "tau-ablation-epoch25" and "tau-ablation-lr": the method, its set, learning rate, accuracy, test loss.
    "modes-0": ("{1}", 0.01, "90.67 +- 0.32", "0.424 +- 0.026"),
    "modes-1": ("{2}", 0.001, "90.62 +- 0.44", "0.404 +- 0.024"),
    "modes-2": ("{3}", 0.001, "87.40 +- 1.00", "0.485 +- 0.051"),
    "modes-3": ("{4}", 0.005, "88.05 +- 0.69", "0.423 +- 0.028"),
    "modes-0-1": ("{1,2}", 0.005, "88.83 +- 0.39", "0.430 +- 0.022"),
    "modes-0-2": ("{1,3}", 0.001, "90.30 +- 0.51", "0.426 +- 0.031"),
    "modes-0-3": ("{1,4}", 0.005, "90.77 +- 0.45", "0.432 +- 0.038"),
    "balanced": ("tau^opt", 0.01, "90.44 +- 0.36", "0.441 +- 0.024"),
    "online": ("online tau", 0.005, "91.10 +- 0.39", "0.416 +- 0.026"),
    "sgd": ("SGD-M", 0.05, "86.10 +- 1.82", "0.527 +- 0.095"),
    "adamw": ("AdamW", 0.0005, "86.04 +- 1.05", "0.507 +- 0.041"),
}


def test_ablation(data, tmp_path):
    out = tmp_path / "ablation"
    result = run("ablation", "--scale", "smoke", "--data", data, *words(TINY_RUN), "--out", out)
    summary = read_json(out / "summary.json")
    assert [entry["optimizer"] for entry in summary["optimizers"]] == list(PAPER_ABLATION)
    rows = {row[0]: row for row in summary["table"]["rows"]}
    printed = {line.split()[0]: line for line in result.stdout.splitlines() if line}
    for entry in summary["optimizers"]:
        name = entry["optimizer"]
        title, lr, accuracy, loss = PAPER_ABLATION[name]
        config = read_json(out / f"{name}-seed0" / "config.json")
        assert config["lr"] == lr
        assert (config["schedule"], config["weight_decay"], config["epochs"]) == ("constant", 5e-4, 1)
        if name not in ("sgd", "adamw"):
            modes = re.findall(r"\d", title)
            expected = "(" + ", ".join(str(int(mode) - 1) for mode in modes) + ("," if len(modes) == 1 else "") + ")"
            assert config["unfolding"] == (expected if modes else name)
            assert (config["polar"], config["fallback"], config["label"]) == ("svd", "adamw", name)
        ours = f"{100 * entry['test_accuracy']['mean']:.2f}"
        assert rows[name][:6] == [name, title, f"{lr:.3g}", "1", ours, accuracy]
        assert rows[name][7] == loss
        assert ours in printed[name]
        assert accuracy in printed[name]
    assert "modes count from 1" in result.stdout
    assert "not comparable" in result.stdout
    assert {"test_accuracy.png", "test_loss.png", "train_loss.png"} <= pictures(out)
    page = (out / "report" / "index.html").read_text()
    assert all(f">{name}<" in page for name in PAPER_ABLATION)
    assert page.count("91.10 +- 0.39") == 1  # the paper's numbers, too
    again = run("ablation", "--scale", "smoke", "--data", data, *words(TINY_RUN), "--out", out, "--resume")
    assert again.stdout == result.stdout


def test_the_grid_decides_the_learning_rates(data, tmp_path):
    out = tmp_path / "ablation"
    flags = {**TINY_RUN, "--limit-train": "60", "--epochs": "2", "--data": data, "--out": out}
    flags |= {"--scale": "smoke", "--optimizers": "sgd,balanced", "--grid-lrs": "1e-9,0.02,1e30", "--grid-seed": "7"}
    result = run("ablation", "--grid", *words(flags))
    grid = read_json(out / "summary.json")["grid"]
    assert grid["lrs"] == [1e-9, 0.02, 1e30]
    assert [entry["method"] for entry in grid["methods"]] == ["sgd", "balanced"]
    assert [entry["lr_before"] for entry in grid["methods"]] == [0.05, 0.01]
    for entry in grid["methods"]:
        accuracies = []
        for lr in ("1e-09", "0.02", "1e+30"):
            folder = tmp_path / "ablation-grid" / f"{entry['method']}-lr{lr}"
            assert read_json(folder / "config.json")["seed"] == 7
            final = read_json(folder / "summary.json")
            accuracies.append(final["final"]["test_accuracy"] if final["status"] == "finished" else None)
        assert entry["accuracies"] == accuracies
        best = max(range(3), key=lambda i: -1 if accuracies[i] is None else accuracies[i])
        assert entry["lr"] == grid["lrs"][best]
        assert read_json(out / f"{entry['method']}-seed0" / "config.json")["lr"] == grid["lrs"][best]
    assert "Test accuracy (%) by learning rate" in result.stdout
    edges = sum(entry["lr"] != 0.02 for entry in grid["methods"])
    assert result.stdout.count("at the grid's edge") == edges


PRESETS = {
    # Table "hyperparameters": schedule, learning rate, weight decay; table "main": accuracy, loss.
    "cifar10": {
        "sgd": ("multistep", 0.075, 5e-4, "94.10 +- 0.13", "0.250 +- 0.020"),
        "adamw": ("multistep", 1e-4, 1e-4, "93.70 +- 0.30", "0.440 +- 0.020"),
        "tensorion-sgd": ("onecycle", 0.001, 1e-4, "95.30 +- 0.10", "0.210 +- 0.010"),
        "tensorion-adamw": ("onecycle", 0.075, 5e-4, "94.34 +- 0.30", "0.590 +- 0.080"),
    },
    "imagenette-vit": {
        "sgd": ("cosine", 0.005, 5e-4, "-", "-"),
        "adamw": ("cosine", 1e-4, 5e-4, "-", "-"),
        "tensorion-sgd": ("cosine", 5e-4, 5e-4, "-", "-"),
        "tensorion-adamw": ("cosine", 1e-4, 5e-4, "-", "-"),
    },
}


@pytest.mark.parametrize("preset", PRESETS)
def test_compare_presets(preset, data, tmp_path):
    out = tmp_path / "compare"
    flags = {**TINY_RUN, "--data": data, "--out": out, "--preset": preset, "--scale": "smoke"}
    if preset != "cifar10":
        flags |= {"--depths": "1", "--image-size": "32"}
    run("compare", *words(flags))
    rows = {row[0]: row for row in read_json(out / "summary.json")["table"]["rows"]}
    assert list(rows) == list(PRESETS[preset])
    for name, (schedule, lr, decay, accuracy, loss) in PRESETS[preset].items():
        config = read_json(out / f"{name}-seed0" / "config.json")
        assert (config["schedule"], config["lr"], config["weight_decay"]) == (schedule, lr, decay)
        optimizer, _, fallback = name.partition("-")
        assert (config["optimizer"], config.get("fallback", "")) == (optimizer, fallback)
        assert (rows[name][5], rows[name][7]) == (accuracy, loss)


def test_flags_overrule_a_preset(data, tmp_path):
    out = tmp_path / "compare"
    flags = {**TINY_RUN, "--data": data, "--out": out, "--preset": "cifar10", "--scale": "smoke"}
    flags |= {
        "--optimizers": "sgd,tensorion-sgd",
        "--lr": "tensorion-sgd=0.5",
        "--schedule": "cosine",
        "--seeds": "3,4",
    }
    run("compare", *words(flags))
    assert {path.name for path in out.glob("*-seed*")} == {
        f"{name}-seed{seed}" for name in ("sgd", "tensorion-sgd") for seed in (3, 4)
    }
    configs = [read_json(out / f"{name}-seed3" / "config.json") for name in ("sgd", "tensorion-sgd")]
    assert [config["lr"] for config in configs] == [0.075, 0.5]
    assert [config["schedule"] for config in configs] == ["cosine", "cosine"]
    assert read_json(out / "tensorion-sgd-seed3" / "config.json")["fallback"] == "sgd"


LAPLACE = ["laplace", "--scale", "smoke", "--steps", "40", "--threads", "1"]


def test_laplace(tmp_path):
    out = tmp_path / "laplace"
    optimizers = ["tensorion", "muon", "sgd"]
    lrs = [1e-3, 1e-2]
    result = run(
        *(*LAPLACE, "--problems", "3x6x2,5x4x2", "--optimizers", ",".join(optimizers), "--lrs", "1e-3,1e-2"),
        *("--seeds", "0,1", "--out", out),
    )
    rows = lines(out / "metrics.jsonl")
    assert {row["problem"] for row in rows} == {"3x6x2", "5x4x2"}
    for problem in read_json(out / "summary.json")["problems"]:
        d, n = problem["dimensions"], problem["points"]
        # By numpy, from the one-dimensional matrix: the eigenvalue of a Kronecker sum is a sum.
        matrix = (2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)) * (n + 1) ** 2
        assert problem["eigenvalue"] == pytest.approx(d * np.linalg.eigvalsh(matrix)[0], rel=1e-12)
        assert [entry["optimizer"] for entry in problem["optimizers"]] == optimizers
        for entry in problem["optimizers"]:
            own = [
                row for row in rows if (row["problem"], row["optimizer"]) == (problem["problem"], entry["optimizer"])
            ]
            assert [rate["lr"] for rate in entry["rates"]] == lrs
            for rate in entry["rates"]:
                last = [row for row in own if row["lr"] == rate["lr"] and row["step"] == 40]
                assert [row["seed"] for row in last] == [0, 1]
                assert rate["error"] == pytest.approx(math.sqrt(last[0]["error"] * last[1]["error"]))
                for row in last:
                    expected = abs(row["quotient"] / problem["eigenvalue"] - 1)
                    assert row["error"] == pytest.approx(expected, abs=1e-12)
            best = min(entry["rates"], key=lambda rate: rate["error"])
            assert entry["best"]["lr"] == best["lr"]
            # The same trains for all, and going down.
            assert entry["best"]["points"][-1]["error"] < entry["best"]["points"][0]["error"]
            line = next(
                line
                for line in result.stdout.splitlines()[1:]
                if line.split()[:2] == [entry["optimizer"], f"{best['lr']:g}"] and f"{best['error']:.2e}" in line
            )
            assert line.split()[2] == f"{best['error']:.2e}"
    assert len({row["quotient"] for row in rows if row["step"] == 0}) == 4  # problems x seeds
    assert pictures(out) == {
        f"{name}-{problem}.png"
        for name in ("error_by_lr", "error_by_step", "residual_by_step")
        for problem in ("3x6x2", "5x4x2")
    }
    assert f"figures in {out}/report" in result.stdout
    page = (out / "report" / "index.html").read_text()
    assert page.count("<h2>") == 2
    assert "already has results" in run(*LAPLACE, "--out", out, expect=1).stderr


def test_laplace_goes_on_with_what_is_there(tmp_path):
    out = tmp_path / "laplace"
    flags = [*LAPLACE, "--optimizers", "sgd,muon", "--out", out]
    run(*flags, "--lrs", "0.01")
    first = lines(out / "metrics.jsonl")
    run(*flags, "--lrs", "0.01,0.1", "--resume")
    both = lines(out / "metrics.jsonl")
    # The same runs, their times too, and the new ones.
    assert [row for row in both if row["lr"] == 0.01] == sorted(first, key=lambda row: row["optimizer"])
    assert {row["lr"] for row in both} == {0.01, 0.1}
    problem = read_json(out / "summary.json")["problems"][0]
    assert [rate["lr"] for rate in problem["optimizers"][0]["rates"]] == [0.01, 0.1]
    message = run(*flags, "--lrs", "0.01", "--resume", "--schedule", "cosine", expect=1).stderr
    assert 'was begun with other options: schedule "constant", got "cosine"' in message


TIGHTNESS = {**TINY_RUN, "--limit-train": "60", "--epochs": "2", "--every": "4", "--certify": "1000", "--starts": "2"}


def test_tightness(data, tmp_path):
    out = tmp_path / "tightness"
    flags = ["tightness", "--scale", "smoke", "--data", data, *words(TIGHTNESS), "--out", out]
    result = run(*flags)
    rows = lines(out / "metrics.jsonl")
    config = read_json(out / "run" / "config.json")
    assert (config["optimizer"], config["fallback"], config["lr"]) == ("tensorion", "sgd", 0.001)
    assert sorted({row["step"] for row in rows}) == [4, 8, 12]  # of 2 x 6
    kernels = [name for name in dict.fromkeys(row["layer"] for row in rows)]
    assert len(rows) == 3 * len(kernels)
    for row in rows:
        sets = tensorion.unfoldings(row["shape"])
        best = max(range(len(sets)), key=row["nuclear_norms"].__getitem__)
        assert tuple(row["online"]) == sets[best]
        assert tuple(row["balanced"]) == tensorion.balanced_unfolding(row["shape"])
        assert row["online_norm"] == row["nuclear_norms"][best]
        assert row["gap"] == pytest.approx(1 - row["balanced_norm"] / row["online_norm"], abs=1e-12)
        assert row["relaxed_lower"] == pytest.approx(1, abs=1e-4)
        assert row["relaxed_upper"] == pytest.approx(1, abs=1e-4)
        assert 0.2 < row["spectral"] <= 1 + 1e-4

    summary = read_json(out / "summary.json")
    gap = summary["tables"][0]["rows"][0]
    assert gap[1:4] == [f"{function([row['gap'] for row in rows]):.4f}" for function in (np.mean, min, max)]
    assert gap[4] == "mean 0.0039, max 0.0732"
    other = np.mean([row["online"] != row["balanced"] for row in rows])
    assert summary["tables"][0]["rows"][4][1] == f"{other:.4f}"
    assert [row[0] for row in summary["tables"][1]["rows"]] == kernels
    assert {entry["layer"] for entry in summary["convolutions"]} == set(kernels)
    for entry in summary["convolutions"]:
        assert entry["spectral"] <= entry["convolution"] * 1.001
        assert entry["convolution"] <= entry["root_times_spectral"] * 1.001
        assert entry["relaxed_lower"] <= entry["relaxed_upper"]
    assert pictures(out) == {"spectral_norm.png", "gap.png", "nuclear_norms.png"}
    assert (out / "report" / "index.html").read_text().count("<h2>") == 3

    # The same table of convolutions for the file of weights.
    shown = run("inspect", out / "run" / "weights.safetensors", "--convolution", 16, "--certify", 1000)
    assert shown.stdout in result.stdout
    shown = run("inspect", out / "run" / "weights.safetensors", "--convolution", 16, "--certify", 1000, "--json")
    # On another number of threads sums are rounded otherwise.
    for ours, theirs in zip(json.loads(shown.stdout), summary["convolutions"], strict=True):
        assert ours == {
            key: value if key in ("layer", "shape") else approx(value, rel=1e-5) for key, value in theirs.items()
        }
    # Over already: the same at once.
    assert run(*flags, "--resume").stdout == result.stdout
    assert "already has a run" in run(*flags, expect=1).stderr


def test_tightness_goes_on_where_it_was_stopped(data, tmp_path):
    flags = ["tightness", "--scale", "smoke", "--data", data, *words(TIGHTNESS), "--checkpoint-every", "0"]
    run(*flags, "--out", tmp_path / "whole")
    out = tmp_path / "stopped"
    command = [PROGRAM, *map(str, flags), "--out", str(out), "--resume"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and not (out / "metrics.jsonl").exists():
            time.sleep(0.005)
        process.kill()
    assert not (out / "summary.json").exists()
    run(*command[1:])
    assert lines(out / "metrics.jsonl") == lines(tmp_path / "whole" / "metrics.jsonl")


def test_laplace_where_all_diverges(tmp_path):
    out = tmp_path / "laplace"
    result = run(*LAPLACE, "--optimizers", "sgd", "--lrs", "1e300", "--out", out)
    assert re.search(r"^sgd +diverged$", result.stdout, re.MULTILINE)
    (problem,) = read_json(out / "summary.json")["problems"]
    assert problem["optimizers"][0]["best"] is None
    assert problem["optimizers"][0]["rates"][0]["error"] is None
    assert pictures(out) == set()


@pytest.mark.parametrize(
    ("flags", "status", "message"),
    [
        (["laplace", "--problems", "3x4"], 1, "dimensions x points x rank, such as 10x32x8, got '3x4'"),
        (["laplace", "--optimizers", "lion"], 2, "lion"),
        (["laplace", "--scale", "tiny"], 2, "tiny not in {paper,small,smoke}"),
        (["laplace", "--lrs", "-1"], 2, "--lrs"),
        (["ablation", "--optimizers", "modes-9"], 1, "--optimizers must be of modes-0, modes-1,"),
        (["tightness", "--every", "0"], 2, "--every"),
        (["compare", "--optimizers", "a=lion"], 1, "or NAME=OPTIMIZER, got 'a=lion'"),
        (["compare", "--scale", "small"], 2, "--scale requires --preset"),
        (["compare", "--preset", "mnist"], 2, "mnist not in {cifar10,cifar100,"),
    ],
)
def test_wrong_options_are_named(flags, status, message, tmp_path):
    assert message in run(*flags, "--out", tmp_path / "out", expect=status).stderr
    assert not (tmp_path / "out" / "metrics.jsonl").exists()


def documented_commands():
    text = DOCUMENT.read_text().replace("\\\n", "")
    return [line for line in text.splitlines() if line.startswith("tensorion ") and "inspect" not in line]


# What replaces the flags of a documented command, so that it takes a second or two.
TINY = {
    "laplace": {"--problems": "3x4x2", "--steps": "10", "--lrs": "0.01", "--seeds": "0", "--threads": "1"},
    "ablation": {**TINY_RUN, "--seeds": "0", "--optimizers": "modes-0,sgd", "--grid-epochs": "1"},
    "tightness": TIGHTNESS,
    # Their data sets have other classes and sizes; flags overrule presets.
    "compare": {
        **{
            **TINY_RUN,
            "--dataset": "cifar10",
            "--model": "resnet18",
            "--seeds": "0",
            "--optimizers": "sgd,tensorion-sgd",
        },
        **{"--weights": None, "--image-size": "32"},
    },
}


@pytest.mark.parametrize("command", documented_commands())
def test_documented_commands_run(command, data, tmp_path):
    _, name, *flags = shlex.split(command)
    replaced = {"--scale": "smoke", "--out": tmp_path / "out", **TINY[name]}
    if name != "laplace":
        replaced["--data"] = data
    kept = [flag for i, flag in enumerate(flags) if {flag, flags[i - 1]}.isdisjoint(replaced)]
    # The program alone draws no figures: that has been tested above.
    program = Path(tensorion.__file__).parent / "bin" / "tensorion"
    given = words({flag: value for flag, value in replaced.items() if value is not None})
    result = run(name, *kept, *given, program=program)
    assert result.stdout.endswith(f"figures: tensorion report {tmp_path / 'out'}\n")


@pytest.mark.parametrize("command", sorted(TINY))
def test_every_flag_is_documented(command):
    flags = set(re.findall(r"--[a-z][a-z-]*", run(command, "--help").stdout)) - {"--help"}
    text = DOCUMENT.read_text() + (ROOT / "docs" / "training.md").read_text()
    assert {flag for flag in flags if f"`{flag}" not in text} == set()
