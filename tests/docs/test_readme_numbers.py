"""The numbers in the README agree with the committed results."""

import json
import re
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PLAIN, OURS = "plain Newton-Schulz", "Tensorion, default"


def table_row(beginning):
    """The numbers of a row of the README, without its links."""
    line = next(line for line in README.splitlines() if line.startswith(f"| {beginning}"))
    return [float(number) for cell in line.split("|")[2:4] for number in re.findall(r"\d+(?:\.\d+)?", cell)]


def measured(unfolding, method):
    rows = json.loads((ROOT / "results" / "performance" / "amd-epyc-family-26-avx512.json").read_text())["rows"]
    return next(
        row
        for row in rows
        if (row["network"], row["spectrum"], row["unfolding"], row["method"])
        == ("resnet18", "trained", unfolding, method)
    )


def accuracy(experiment, method):
    lines = (ROOT / "results" / experiment / "table.txt").read_text().splitlines()
    row = next(line for line in lines if line.startswith(f"{method} ") and "+-" in line)
    return float(re.search(r"([\d.]+) \+-", row)[1])


def test_time():
    plain, ours = table_row("Time of a step")
    assert plain == measured("balanced", PLAIN)["relative_to_plain"] == 1
    assert ours == pytest.approx(measured("balanced", OURS)["relative_to_plain"], abs=0.05)


def test_quality():
    exact, low, high, ours = [1.0, *table_row("Quality of the direction")]
    plain = [measured(unfolding, PLAIN) for unfolding in ("balanced", "flattened")]
    assert low == pytest.approx(min(row["quality_least"] for row in plain), abs=0.006)
    assert high == pytest.approx(max(row["quality_mean"] for row in plain), abs=0.006)
    assert ours <= measured("balanced", OURS)["quality_least"] <= exact


def test_accuracy():
    shown = table_row("Test accuracy on CIFAR-10")
    measured = [accuracy("unfoldings", method) for method in ("adamw", "muon", "balanced")]
    assert shown == pytest.approx(measured, abs=0.06)


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has no Muon")
def test_muon_of_torch_refuses_kernels():
    with pytest.raises(ValueError, match="2D"):
        torch.optim.Muon([torch.nn.Parameter(torch.zeros(4, 3, 3, 3))])
