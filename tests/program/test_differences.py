"""`compare --reference`: paired differences by seed, their confidence intervals, and the binomial error."""

import math
import re

import numpy as np
import pytest
import tiny_training
from program import figures, read_json, run
from scipy import stats


@pytest.fixture(scope="module")
def compared(cifar10, tmp_path_factory):
    """A comparison with three seeds, and its output."""
    out = tmp_path_factory.mktemp("differences") / "all"
    flags = [*tiny_training.flags(cifar10, epochs=1), "--optimizers", "sgd,adamw,muon", "--seeds", "0,1,2"]
    result = run("compare", *flags, "--limit-train", "60", "--reference", "adamw", "--out", out)
    return out, result.stdout


def accuracies(out, method):
    runs = [read_json(out / f"{method}-seed{seed}" / "summary.json") for seed in range(3)]
    return np.array([entry["final"]["test_accuracy"] for entry in runs])


def test_intervals_match_scipy(compared):
    out, printed = compared
    differences = read_json(out / "summary.json")["differences"]
    assert differences["reference"] == "adamw"
    assert [entry["method"] for entry in differences["methods"]] == ["sgd", "muon"]
    for entry in differences["methods"]:
        found = stats.ttest_rel(accuracies(out, entry["method"]), accuracies(out, "adamw"))
        low, high = found.confidence_interval(0.95)
        expected = (accuracies(out, entry["method"]) - accuracies(out, "adamw")).mean()
        assert entry["pairs"] == 3
        assert entry["mean"] == pytest.approx(expected, abs=1e-12)
        if math.isfinite(low):  # The deviation of equal differences is zero.
            assert (entry["low"], entry["high"]) == pytest.approx((low, high), abs=1e-9)
        interval = rf"\[{100 * entry['low']:+.2f}, {100 * entry['high']:+.2f}\]"
        line = rf"^{entry['method']} +3 +{re.escape(f'{100 * expected:+.2f}')} +"
        assert re.search(line + interval.replace("+", r"\+").replace(".", r"\."), printed, re.MULTILINE)


def test_table_shows_binomial_error(compared):
    out, printed = compared
    summary = read_json(out / "summary.json")
    assert summary["test_samples"] == 50
    for entry in summary["optimizers"]:
        accuracy = entry["test_accuracy"]["mean"]
        error = stats.binom.std(50, accuracy) / 50
        assert entry["binomial_error"] == pytest.approx(error)
        line = next(line for line in printed.splitlines() if line.startswith(entry["optimizer"]))
        assert f"  {100 * error:.2f}  " in line


def test_report_draws_differences(compared):
    out, _ = compared
    text = run("report", out, "--dpi", "40").stdout
    assert "Difference of the test accuracy from adamw" in text
    assert "differences.png" in figures(out)


def test_one_seed_has_no_interval(cifar10, tmp_path):
    flags = [*tiny_training.flags(cifar10, epochs=1), "--limit-train", "20", "--optimizers", "sgd,adamw"]
    printed = run("compare", *flags, "--reference", "sgd", "--out", tmp_path / "all").stdout
    assert re.search(r"^adamw +1 +[+-][0-9.]+ +- +needs two seeds$", printed, re.MULTILINE)
    (entry,) = read_json(tmp_path / "all" / "summary.json")["differences"]["methods"]
    assert (entry["low"], entry["high"]) == (None, None)


def test_reference_must_be_one_of_the_methods(tmp_path):
    result = run("compare", "--optimizers", "sgd,muon", "--reference", "moun", "--out", tmp_path / "all", expect=2)
    assert "--reference must be one of the compared methods, sgd, muon, got 'moun'" in result.stderr
    assert "did you mean muon?" in result.stderr
    assert not (tmp_path / "all").exists()
