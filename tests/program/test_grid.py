"""`compare --grid` with the second grid, for the learning rate of the fallback."""

import pytest
import tiny_training
from program import files, read_json, run

LRS = [0.005, 0.02, 0.08]
FALLBACK_LRS = [0.002, 0.02]
MIDDLE = FALLBACK_LRS[1]  # fallback_lr of the first grid


def accuracy(folder):
    summary = read_json(folder / "summary.json")
    return summary["final"]["test_accuracy"] if summary["status"] == "finished" else None


def expected_best(grid, accuracies, beyond_accuracy):
    """The best value, and the value that was tried beyond the edge of the grid."""
    best = max(range(len(grid)), key=lambda i: accuracies[i])
    beyond = None
    if best == 0:
        beyond = grid[0] * grid[0] / grid[1]
    elif best == len(grid) - 1:
        beyond = grid[-1] * grid[-1] / grid[-2]
    if beyond is not None and beyond_accuracy(beyond) > accuracies[best]:
        return beyond, beyond
    return grid[best], beyond


@pytest.fixture(scope="module")
def searched(cifar10, tmp_path_factory):
    out = tmp_path_factory.mktemp("grid") / "out"
    flags = [*tiny_training.flags(cifar10), "--optimizers", "sgd,tensorion", "--validation", "30", "--grid"]
    flags += ["--grid-lrs", ",".join(map(str, LRS)), "--grid-fallback-lrs", ",".join(map(str, FALLBACK_LRS))]
    result = run("compare", *flags, "--out", out)
    return flags, out, result


def test_both_rates_are_the_best_of_their_grids(searched):
    _, out, result = searched
    summary = read_json(out / "summary.json")["grid"]
    assert (summary["lrs"], summary["fallback_lrs"]) == (LRS, FALLBACK_LRS)
    folder = out.with_name("out-grid")
    sgd, tensorion = summary["methods"]
    assert "fallback" not in sgd

    found = tensorion["accuracies"]
    assert found == [accuracy(folder / f"tensorion-lr{lr:g}") for lr in LRS]
    lr, _ = expected_best(LRS, found, lambda beyond: accuracy(folder / f"tensorion-lr{beyond:g}"))
    assert tensorion["lr"] == pytest.approx(lr)

    def second(value):
        # The run with the same two rates as the best one of the first grid is not repeated.
        is_known = value == MIDDLE
        name = f"tensorion-lr{lr:g}" + ("" if is_known else f"-fallback{value:g}")
        config = read_json(folder / name / "config.json")
        assert (config["lr"], config["fallback_lr"]) == pytest.approx((lr, value))
        return accuracy(folder / name)

    fallback = tensorion["fallback"]
    assert fallback["fallback_lr_before"] == MIDDLE
    assert fallback["accuracies"] == [second(value) for value in FALLBACK_LRS]
    best, beyond = expected_best(FALLBACK_LRS, fallback["accuracies"], second)
    assert fallback["fallback_lr"] == pytest.approx(best)
    assert fallback.get("beyond") == (beyond if beyond is None else pytest.approx(beyond))
    final = read_json(out / "tensorion-seed0" / "config.json")
    assert (final["lr"], final["fallback_lr"]) == (tensorion["lr"], fallback["fallback_lr"])

    assert "Validation accuracy (%) by the fallback's learning rate" in result.stdout
    edges = sum("beyond" in entry for entry in (sgd, tensorion, fallback))
    assert result.stdout.count("at the edge of the grid") == edges
    assert f"tensorion (lr {lr:g})" in result.stdout


def test_in_the_first_grid_the_fallback_does_not_follow_lr(searched):
    """An lr of 0.3 was rejected for all methods because it was the rate of AdamW for the other parameters, too."""
    _, out, _ = searched
    configs = [read_json(out.with_name("out-grid") / f"tensorion-lr{lr:g}" / "config.json") for lr in LRS]
    assert [(config["lr"], config["fallback_lr"]) for config in configs] == [(lr, MIDDLE) for lr in LRS]


def test_the_first_grid_can_be_resumed_with_the_second(searched, cifar10, tmp_path):
    """Runs of the first grid have the same names without the second grid, and the same options with --fallback-lr."""
    flags, out, result = searched
    at = flags.index("--grid-fallback-lrs")
    first = [*flags[:at], "--fallback-lr", f"tensorion={MIDDLE}", "--out", tmp_path / "out"]
    run("compare", *first)
    before = files(tmp_path / "out-grid")
    assert before < files(out.with_name("out-grid"))
    # The runs that were compared have other rates than those that the second grid finds: another folder.
    (tmp_path / "out").rename(tmp_path / "old")
    again = run("compare", *flags, "--out", tmp_path / "out", "--resume")
    assert again.stdout.splitlines()[:8] == result.stdout.splitlines()[:8]
    assert files(tmp_path / "out-grid") == files(out.with_name("out-grid"))


def test_the_search_and_the_comparison_train_on_the_same_images(cifar10, tmp_path):
    """With the same seed and rate, a run of the search equals the run of the comparison, except for the test data."""
    flags = [*tiny_training.flags(cifar10, epochs=1), "--optimizers", "sgd", "--limit-train", "40"]
    flags += ["--validation", "30", "--grid", "--grid-lrs", "0.1", "--grid-seed", "0"]
    run("compare", *flags, "--out", tmp_path / "out")
    folders = [tmp_path / "out-grid" / "sgd-lr0.1", tmp_path / "out" / "sgd-seed0"]
    losses, tested = zip(
        *((tiny_training.metrics(folder)[0]["train_loss"], read_json(folder / "config.json")) for folder in folders),
        strict=True,
    )
    assert losses[0] == losses[1]
    assert [config["train_samples"] for config in tested] == [40, 40]
    assert [config["test_samples"] for config in tested] == [30, 50]


def test_a_second_grid_needs_the_first(cifar10, tmp_path):
    flags = [*tiny_training.flags(cifar10), "--grid-fallback-lrs", "0.1", "--out", tmp_path / "out"]
    assert "--grid-fallback-lrs requires --grid" in run("compare", *flags, expect=2).stderr
