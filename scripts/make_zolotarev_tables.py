#!/usr/bin/env python3
"""Writes tensorion/zolotarev_tables.h: run it as `python scripts/make_zolotarev_tables.py`.

Zolotarev's rational function x p(x^2) of type (2r+1, 2r) is the best approximation of sign(x) on
[-1, -l] u [l, 1]; scaled to at most 1 it stays in [floor, 1] there. In partial fractions
p(s) = alpha + sum_j beta_j / (s + c_j), so it costs r inverses of positive definite matrices and no
product. With r = 4 it equals two dynamically weighted Halley steps.

The certificates bound sqrt(s) on [0, 1] from above and below by combinations of 1, s, s^2 and, per pole,
c/(s+c), (c/(s+c))^2, log(1+s/c): summed over the spectrum these are traces that the inverses give away.
Each is the solution of a linear program that minimizes the relative error above sigma = t and lets it be
`weight` * t * that error below.
"""

from pathlib import Path

import numpy as np
from scipy.optimize import linprog
from scipy.special import ellipj, ellipkm1

# Name, resolution l, poles r, and whether the nuclear norm is to be certified.
LEVELS = [("Light", 7e-3, 3, True), ("Coarse", 1e-3, 4, True), ("Fine", 1e-3, 6, False)]
# A fourth pole, which makes the certificates of the light pass as sharp as those of the coarse one.
EXTRA_POLE, EXTRA_RESOLUTION = 1.1e-6, 1e-3
CERTIFICATES = [(5, 2), (20, 1), (20, 2), (100, 2), (100, 4), (1000, 8)]  # (weight, t / l)


def zolotarev(resolution, poles):
    """alpha, beta_j, c_j and the floor of the scaled function (Nakatsukasa and Freund 2016, eq. 2.6)."""
    complete = ellipkm1(resolution**2)
    index = np.arange(1, 2 * poles + 1)
    sn, cn, _, _ = ellipj(index * complete / (2 * poles + 1), 1 - resolution**2)
    c = resolution**2 * (sn / cn) ** 2
    odd, even = c[0::2], c[1::2]
    beta = np.array([np.prod(even - odd[j]) / np.prod(np.delete(odd, j) - odd[j]) for j in range(poles)])
    x = np.geomspace(resolution, 1, 400001)
    values = x * (1 + (beta / (x[:, None] ** 2 + odd)).sum(axis=1))
    top = values.max()
    return 1 / top, beta / top, odd, values.min() / top


def moments(s, poles):
    """The basis, one column per function."""
    columns = [np.ones_like(s), s, s * s]
    for c in poles:
        columns += [c / (s + c), (c / (s + c)) ** 2, np.log1p(s / c)]
    return np.stack(columns, axis=1)


def certificate(poles, side, weight, t):
    """Coefficients of a bound of sqrt(s): above for side = 1, below for side = -1."""
    s = np.concatenate([[0.0], np.geomspace(1e-12, 1, 6000)])
    basis, root = moments(s, poles), np.sqrt(s)
    allowed = np.where(root >= t, root, weight * t)
    count = basis.shape[1]
    rows = np.concatenate([np.c_[-side * basis, np.zeros(len(s))], np.c_[side * basis, -allowed]])
    limits = np.concatenate([-side * root, side * root])
    objective = np.r_[np.zeros(count), 1.0]
    bounds = [(None, None)] * count + [(0, None)]
    solution = linprog(objective, A_ub=rows, b_ub=limits, bounds=bounds, method="highs")
    assert solution.success, solution.message
    coefficients = solution.x[:count]
    # Between the grid points: push the bound outwards by the worst violation of a finer grid.
    fine = np.concatenate([[0.0], np.geomspace(1e-14, 1, 200001)])
    gap = side * (moments(fine, poles) @ coefficients - np.sqrt(fine))
    coefficients[0] += side * max(0.0, -gap.min()) * 1.01
    return coefficients


def numbers(values):
    return "{" + ", ".join(f"{value:.17g}" for value in values) + "}"


def certificates(name, poles, resolution):
    lines = []
    for bound, side in (("Upper", 1), ("Lower", -1)):
        lines.append(f"inline constexpr double k{name}{bound}[kCertificates][{3 + 3 * len(poles)}] = {{")
        for weight, t in CERTIFICATES:
            lines.append(f"    {numbers(certificate(poles, side, weight, t * resolution))},")
        lines.append("};")
    return lines


def main():
    lines = [
        "// Made by scripts/make_zolotarev_tables.py; do not edit.",
        "#pragma once",
        "",
        "namespace tensorion::zolotarev {",
        "",
        f"inline constexpr int kCertificates = {len(CERTIFICATES)};",
    ]
    for name, resolution, count, certified in LEVELS:
        alpha, beta, poles, floor = zolotarev(resolution, count)
        lines += [
            "",
            f"inline constexpr double k{name}Resolution = {resolution:g};",
            f"inline constexpr double k{name}Floor = {floor:.17g};",
            f"inline constexpr double k{name}Alpha = {alpha:.17g};",
            f"inline constexpr double k{name}Beta[] = {numbers(beta)};",
            f"inline constexpr double k{name}C[] = {numbers(poles)};",
        ]
        if certified:
            lines += certificates(name, poles, resolution)
    poles = np.append(zolotarev(*LEVELS[0][1:3])[2], EXTRA_POLE)
    lines += ["", f"inline constexpr double kExtraC = {EXTRA_POLE:g};"]
    lines += certificates("LightExtra", poles, EXTRA_RESOLUTION)
    lines += ["", "}  // namespace tensorion::zolotarev", ""]
    target = Path(__file__).parent.parent / "tensorion" / "zolotarev_tables.h"
    target.write_text("// clang-format off\n" + "\n".join(lines))


if __name__ == "__main__":
    main()
