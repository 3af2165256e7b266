"""`benchmarks/laplace_spectrum.py`, which explains the results of `tensorion laplace`."""

from pathlib import Path

import numpy as np
import pytest
import torch
from program import read_json_lines, run
from support import load_script

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "laplace_spectrum.py"


@pytest.fixture(scope="module")
def script():
    return load_script(SCRIPT)


def test_errors_by_frequency_match_dense_tensor(script):
    d, n = 3, 5
    train = script.random_train(d, n, 2, seed=3)
    x = torch.einsum("aib,bjc,ckd->ijk", *train).numpy()
    matrix = (2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)) * (n + 1) ** 2
    values, vectors = np.linalg.eigh(matrix)
    expected = np.zeros(n)
    for mode in range(d):
        shares = np.square(np.tensordot(vectors.T, np.moveaxis(x, mode, 0), 1)).sum((1, 2)) / np.square(x).sum()
        expected += shares * (values - values[0]) / (d * values[0])
    assert script.errors_by_frequency(train).numpy() == pytest.approx(expected, rel=1e-10, abs=1e-12)
    assert script.quotient(train).item() / (d * values[0]) - 1 == pytest.approx(expected.sum(), rel=1e-10)


@pytest.mark.parametrize("name", ["tensorion", "online", "muon"])
def test_trajectory_matches_the_program(script, name, tmp_path):
    flags = ["--problems", "4x8x3", "--optimizers", name, "--lrs", "0.05", "--seeds", "0", "--steps", "20"]
    run("laplace", *flags, "--schedule", "cosine", "--threads", "1", "--out", tmp_path / "out")
    errors = {row["step"]: row["error"] for row in read_json_lines(tmp_path / "out" / "metrics.jsonl")}
    for point in script.trace("4x8x3", name, 0.05, 20, 20):
        assert point["error"] == pytest.approx(errors[point["step"]], rel=1e-6)
        assert point["low"] + point["middle"] + point["high"] == pytest.approx(point["error"])
