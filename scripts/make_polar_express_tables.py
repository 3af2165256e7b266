#!/usr/bin/env python3
"""Writes tensorion/polar/polar_express_tables.h: run it as `python scripts/make_polar_express_tables.py`.

Polar Express (Amsel et al., arXiv 2505.16932) composes odd polynomials a x + b x^3 + c x^5, each the best approximation
of 1 on the interval [l, 2 - l] that its predecessors leave of the singular values. The published coefficients are those
for [1e-3, 1]. Other lower ends suit other numbers of steps: a few steps are spent best on the large singular values.
"""

from pathlib import Path

import numpy as np

# The lower end of the interval for each number of steps: about the smallest for which the last interval lies within
# 0.02 of 1 (0.04 with three steps).
LOWER_ENDS = {3: 3e-2, 4: 1e-2, 5: 4e-3, 6: 1e-3, 7: 2.5e-4, 8: 6e-5}
# The published choice: intervals that reach below this share of their upper end are cut off there, so that no
# polynomial almost vanishes inside of its interval.
CUSHION = 0.02407327424182761
# All but the last polynomial are those of x / SAFETY: rounding may lift a singular value over the upper end, where
# polynomials grow fast.
SAFETY = 1.01


def best_polynomial(lower: float, upper: float) -> tuple[float, float, float]:
    """The odd polynomial of degree 5 that is closest to 1 on [lower, upper], by Remez's algorithm."""
    if lower / upper >= 1 - 5e-6:  # then it is that of an interval of one point, to rounding
        return 15 / 8 / upper, -10 / 8 / upper**3, 3 / 8 / upper**5
    inner = (3 * lower + upper) / 4, (lower + 3 * upper) / 4
    error, previous = np.inf, None
    while previous is None or abs(previous - error) > 1e-15:
        previous = error
        points = (lower, *inner, upper)
        system = [[x, x**3, x**5, sign] for x, sign in zip(points, (1, -1, 1, -1), strict=True)]
        a, b, c, error = np.linalg.solve(np.array(system), np.ones(4))
        # The extrema, where the derivative vanishes.
        inner = tuple(np.sqrt((-3 * b + np.array([-1, 1]) * np.sqrt(9 * b * b - 20 * a * c)) / (10 * c)))
    return float(a), float(b), float(c)


def polar_express(lower: float, steps: int, safety: float = SAFETY) -> list[tuple[float, float, float]]:
    """The rows (a, b, c) for singular values in [lower, 1]."""
    upper, rows = 1.0, []
    for step in range(steps):
        a, b, c = best_polynomial(max(lower, CUSHION * upper), upper)
        if CUSHION * upper > lower:  # the values on the whole interval are centred around 1 again
            at_lower, at_upper = (a * x + b * x**3 + c * x**5 for x in (lower, upper))
            a, b, c = (2 / (at_lower + at_upper) * value for value in (a, b, c))
        if step < steps - 1:
            a, b, c = a / safety, b / safety**3, c / safety**5
        rows.append((a, b, c))
        lower = a * lower + b * lower**3 + c * lower**5
        upper = 2 - lower
    return rows


def main() -> None:
    lines = [
        "// clang-format off",
        "// Made by scripts/make_polar_express_tables.py; do not edit.",
        "#pragma once",
        "",
        "#include <array>",
        "",
        '#include "tensorion/coefficients.h"',
        "",
        "namespace tensorion::polar_express_tables {",
        "",
        f"inline constexpr int64_t kFewestSteps = {min(LOWER_ENDS)};",
        "",
        "// For each number of steps from kFewestSteps on.",
        f"inline const std::array<Coefficients, {len(LOWER_ENDS)}> kBySteps{{{{",
    ]
    for steps, lower in LOWER_ENDS.items():
        lines.append(f"    // singular values in [{lower:g}, 1]")
        rows = [", ".join(repr(value) for value in row) for row in polar_express(lower, steps)]
        lines.append("    {" + ",\n     ".join(f"{{{row}}}" for row in rows) + "},")
    lines += ["}};", "", "}  // namespace tensorion::polar_express_tables", ""]
    header = Path(__file__).parents[1] / "tensorion/polar/polar_express_tables.h"
    header.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
