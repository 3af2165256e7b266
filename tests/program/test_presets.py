"""The paper's training experiments at small sizes: `tensorion ablation` and `tensorion compare --preset`."""

import re

import pytest
from program import figures, read_json, run, words
from tiny_training import TINY_RUN

PAPER_ABLATION = {
    # Tables "tau-ablation-epoch25" and "tau-ablation-lr": method, set of modes, learning rate, accuracy, test loss.
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


def test_ablation(image_folder, tmp_path):
    out = tmp_path / "ablation"
    result = run("ablation", "--scale", "smoke", "--data", image_folder, *words(TINY_RUN), "--out", out)
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
        assert rows[name][:5] == [name, title, f"{lr:.3g}", "1", ours]
        assert ours in printed[name]
        assert accuracy not in printed[name]  # The paper's numbers apply to other runs.
        assert loss not in printed[name]
    assert "modes counted from 1" in result.stdout
    assert "the paper's numbers are not shown, because they are for CIFAR-10, ResNet-18, 25 epochs" in result.stdout
    assert "Unfoldings of a kernel: CIFAR-10, 20 samples, ResNet-18 (width 0.125), 1 epoch" in result.stdout
    assert {"test_accuracy.png", "test_loss.png", "train_loss.png"} <= figures(out)
    page = (out / "report" / "index.html").read_text()
    assert all(f">{name}<" in page for name in PAPER_ABLATION)
    again = run("ablation", "--scale", "smoke", "--data", image_folder, *words(TINY_RUN), "--out", out, "--resume")
    assert again.stdout == result.stdout


def test_grid_search_chooses_learning_rates(image_folder, tmp_path):
    out = tmp_path / "ablation"
    flags = {**TINY_RUN, "--limit-train": "60", "--epochs": "2", "--data": image_folder, "--out": out}
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
        expected = grid["lrs"][best]
        assert ("beyond" in entry) == (best != 1)
        if "beyond" in entry:  # The best rate was at the edge, and the grid was extended.
            assert entry["beyond"] == pytest.approx(expected * expected / 0.02)
            if (entry["beyond_accuracy"] or -1) > accuracies[best]:
                expected = entry["beyond"]
        assert entry["lr"] == expected
        assert read_json(out / f"{entry['method']}-seed0" / "config.json")["lr"] == expected
    assert "Validation accuracy (%) by learning rate" in result.stdout
    edges = sum("beyond" in entry for entry in grid["methods"])
    assert result.stdout.count("at the edge of the grid") == edges


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
def test_compare_presets(preset, image_folder, tmp_path):
    out = tmp_path / "compare"
    flags = {**TINY_RUN, "--data": image_folder, "--out": out, "--preset": preset, "--scale": "smoke"}
    if preset != "cifar10":
        flags |= {"--depths": "1", "--image-size": "32"}
    run("compare", *words(flags))
    rows = {row[0]: row for row in read_json(out / "summary.json")["table"]["rows"]}
    assert list(rows) == list(PRESETS[preset])
    for name, (schedule, lr, decay, _, _) in PRESETS[preset].items():
        config = read_json(out / f"{name}-seed0" / "config.json")
        assert (config["schedule"], config["lr"], config["weight_decay"]) == (schedule, lr, decay)
        optimizer, _, fallback = name.partition("-")
        assert (config["optimizer"], config.get("fallback", "")) == (optimizer, fallback)


def test_flags_override_presets(image_folder, tmp_path):
    out = tmp_path / "compare"
    flags = {**TINY_RUN, "--data": image_folder, "--out": out, "--preset": "cifar10", "--scale": "smoke"}
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


def test_deviations_from_the_paper_are_recorded(image_folder, tmp_path):
    out = tmp_path / "compare"
    flags = {**TINY_RUN, "--data": image_folder, "--out": out, "--preset": "cifar10", "--scale": "smoke"}
    result = run("compare", *words(flags | {"--optimizers": "sgd,tensorion-sgd"}))
    own = read_json(out / "tensorion-sgd-seed0" / "config.json")["deviations"]
    for sentence in (
        "The number of epochs is 1; in the paper it is 200.",
        "The width of the model is multiplied by 0.125.",
        "Training uses only 20 samples of the training set.",
        "Testing uses only 20 samples of the test set.",
        "The learning rate of the fallback of tensorion-sgd, 0.001, is our choice; the paper does not specify it.",
    ):
        assert sentence in own
        assert f"- {sentence}\n" in result.stdout
    assert any("--polar auto" in sentence for sentence in own)
    assert not any("tensorion" in sentence for sentence in read_json(out / "sgd-seed0" / "config.json")["deviations"])
    assert set(own) <= set(read_json(out / "summary.json")["deviations"])
    # The record of a run is still a configuration.
    run("train", "--config", out / "tensorion-sgd-seed0" / "config.json", "--out", tmp_path / "again")


@pytest.mark.parametrize(
    ("command", "method"),
    [
        (["compare", "--preset", "cifar10"], "newton_schulz"),
        (["compare", "--preset", "cifar10", "--scale", "small"], "auto"),
        (["tightness"], "newton_schulz"),
        (["tightness", "--scale", "small"], "auto"),
        (["ablation"], "svd"),
        (["ablation", "--scale", "small"], "svd"),
    ],
)
def test_the_papers_scale_uses_the_papers_polar_factors(command, method, image_folder):
    text = run(*command, "--data", image_folder, "--print-config").stdout
    (line,) = (line for line in text.splitlines() if line.startswith("polar = "))
    assert set(re.findall(r'"([a-z_]+)"', line)) == {method}
    if method == "newton_schulz":
        assert re.search(r"^ns_steps = .*5", text, re.MULTILINE)


def test_unfoldings_under_one_protocol(image_folder, tmp_path):
    out = tmp_path / "compare"
    flags = {**TINY_RUN, "--data": image_folder, "--out": out, "--preset": "unfoldings", "--scale": "smoke"}
    result = run("compare", *words(flags))
    expected = {
        "muon": ((0,), 1),
        "balanced": ("balanced", 1),
        "online": ("online", 1),
        "online-10": ("online", 10),
        "modes-0-1": ((0, 1), 1),
    }
    for name, (unfolding, interval) in expected.items():
        config = read_json(out / f"{name}-seed0" / "config.json")
        assert (config["schedule"], config["fallback"]) == ("onecycle", "adamw")
        assert "deviations" not in config
        if name != "muon":  # Muon always has the modes (0,).
            assert config["online_interval"] == interval
            assert config["unfolding"].replace(" ", "") == str(unfolding).replace(" ", "")
    summary = read_json(out / "summary.json")
    assert summary["differences"]["reference"] == "muon"
    assert [entry["optimizer"] for entry in summary["optimizers"]] == [*expected, "adamw", "sgd"]
    assert "Unfoldings under one protocol: CIFAR-10" in result.stdout


def test_reference_of_a_preset_need_not_be_compared(image_folder, tmp_path):
    flags = {**TINY_RUN, "--data": image_folder, "--preset": "unfoldings", "--scale": "smoke"}
    out = tmp_path / "out"
    run("compare", *words(flags | {"--optimizers": "sgd,adamw", "--out": out}))
    assert "differences" not in read_json(out / "summary.json")


@pytest.mark.parametrize(
    ("flags", "status", "message"),
    [
        (["ablation", "--optimizers", "modes-9"], 2, "--optimizers must be from modes-0, modes-1,"),
        (["compare", "--optimizers", "a=lion"], 2, "or NAME=OPTIMIZER, got 'a=lion'"),
        (["compare", "--scale", "small"], 2, "--scale requires --preset"),
        (["compare", "--preset", "mnist"], 2, "got 'mnist'"),
    ],
)
def test_bad_options_are_errors(flags, status, message, tmp_path):
    assert message in run(*flags, "--out", tmp_path / "out", expect=status).stderr
    assert not (tmp_path / "out" / "metrics.jsonl").exists()
