"""The generator of the Polar Express polynomials reproduces the published ones for their interval."""

from pathlib import Path

import pytest
import torch
from support import load_script

ROOT = Path(__file__).parents[2]
generator = load_script(ROOT / "scripts/make_polar_express_tables.py")

# Amsel et al., arXiv 2505.16932.
PUBLISHED = [
    (8.28721201814563, -23.595886519098837, 17.300387312530933),
    (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
    (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
    (3.3184196573706015, -2.488488024314874, 0.51004894012372),
    (2.300652019954817, -1.6689039845747493, 0.4188073119525673),
    (1.891301407787398, -1.2679958271945868, 0.37680408948524835),
    (1.8750014808534479, -1.2500016453999487, 0.3750001645474248),
    (1.875, -1.25, 0.375),
]


def test_generator_reproduces_published_polynomials():
    for row, published in zip(generator.polar_express(1e-3, 8, safety=1.0), PUBLISHED, strict=True):
        assert row == pytest.approx(published, rel=1e-8)


@pytest.mark.parametrize("steps", generator.LOWER_ENDS)
def test_header_matches_generator(steps):
    rows = generator.polar_express(generator.LOWER_ENDS[steps], steps)
    flat = torch.tensor([value for row in rows for value in row], dtype=torch.float64)
    found = torch.tensor(torch.ops.tensorion.polar_express_schedule(steps), dtype=torch.float64)
    torch.testing.assert_close(found, flat, rtol=1e-9, atol=0)


@pytest.mark.parametrize(("steps", "lower"), generator.LOWER_ENDS.items())
def test_singular_values_converge_to_one(steps, lower):
    x = torch.logspace(torch.tensor(lower).log10().item(), 0, 10001, dtype=torch.float64)
    for a, b, c in generator.polar_express(lower, steps):
        x = x * (a + x**2 * (b + c * x**2))
    assert (x - 1).abs().max() < (0.04 if steps == 3 else 0.02)
