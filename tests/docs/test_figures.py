"""The figures of docs/math.md: the script runs, and what it draws is what the library computes."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support import gaussian, load_script

import tensorion

SCRIPT = Path(__file__).parents[2] / "scripts" / "make_math_figures.py"


@pytest.fixture(scope="module")
def figures():
    return load_script(SCRIPT)


@pytest.fixture
def spectrum(figures):
    return figures.Spectrum(gaussian((48, 96), 0).double() * torch.arange(1.0, 49)[:, None] ** -0.7)


def test_script_draws_all_figures(tmp_path):
    subprocess.run([sys.executable, SCRIPT, "--out", tmp_path, "--width", "4"], check=True, timeout=120)
    assert {path.name for path in tmp_path.iterdir()} == {"unfolding.png", "filters.png", "bounds.png"}
    for path in tmp_path.iterdir():
        assert path.read_bytes().startswith(b"\x89PNG")
        assert (SCRIPT.parents[1] / "docs" / "images" / path.name).exists()


@pytest.mark.parametrize("poles", [2, 3, 4])
def test_filters_stay_in_the_unit_interval(spectrum, poles):
    values = spectrum.rational_filter(poles)(spectrum.scale * torch.logspace(-6, 0, 1000, dtype=torch.float64))
    assert values.min() >= 0
    assert values.max() <= 1 + 1e-9


@pytest.mark.parametrize("coefficients", ["muon", "polar_express"])
def test_polynomials_match_the_library(spectrum, coefficients):
    expected = tensorion.polar(torch.diag(spectrum.sigma), "newton_schulz", ns_coefficients=coefficients, ns_steps=5)
    torch.testing.assert_close(spectrum.newton_schulz(coefficients)(spectrum.sigma), expected.diag())


@pytest.mark.parametrize(("level", "width"), [(0, 0.05), (1, 0.05), (2, 1e-3), (3, 3e-4)])
def test_bounds_hold_and_narrow(spectrum, level, width):
    lower, upper = spectrum.log_det_bounds(level)
    assert lower <= spectrum.nuclear_norm <= upper
    assert upper - lower <= width * spectrum.nuclear_norm
