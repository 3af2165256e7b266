#!/usr/bin/env python3
"""Writes tensorion/zolotarev_tables.h: run it as `python scripts/make_zolotarev_tables.py`.

Zolotarev's rational function x p(x^2) of type (2r+1, 2r) is the best approximation of sign(x) on
[-1, -l] u [l, 1]; scaled to at most 1 it stays in [floor, 1] there. In partial fractions
p(s) = alpha + sum_j beta_j / (s + c_j), so it costs r inverses of positive definite matrices and no
product. With r = 4 it equals two dynamically weighted Halley steps: that is `coarse`. `light` has the three larger
of its poles, with the weights that are best for them, so that one more inverse makes a coarse pass of a light one.

The certificates bound sqrt(s) on [0, 1] from above and below by combinations of 1, s, s^2 and, per pole,
c/(s+c), (c/(s+c))^2, log(1+s/c): summed over the spectrum these are traces that the inverses give away.
Each is the solution of a linear program that minimizes the relative error above sigma = t and lets it be
`weight` * t * that error below.

Where rounding adds a matrix E to S, a trace of g(S) moves by at most ||g'(S)||_F ||E||_F, and by at most
|g'(0)| |tr E| + ||g'(S) - g'(0) I||_F ||E||_F, which is less where most eigenvalues are small. So each certificate g
has a `sensitivity` too, (p, q, |g'(0)|, k): with u = c/(s+c) of the smallest pole, g'(s)^2 <= p u + q u^2 and
|g'(s) - g'(0)| <= k (1 - u). The programs limit |g'|.
"""

from pathlib import Path

import numpy as np
from scipy.optimize import linprog
from scipy.special import ellipj, ellipkm1

LIGHT_RESOLUTION = 8e-3
COARSE_RESOLUTION = FINE_RESOLUTION = 1e-3
# (weight, t / l, limit of 2 |g'(s)| sqrt(s + c)); limits that cost little accuracy.
CERTIFICATES = [(5, 2, 6), (20, 1, 5), (20, 2, 5), (100, 2, 4), (100, 4, 3), (1000, 8, 2)]


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


def best_weights(poles, resolution):
    """alpha, beta_j and the floor of the best function with these poles and the value 1 at 1: a linear program."""
    x = np.concatenate([np.geomspace(1e-6, resolution, 400), np.geomspace(resolution, 1, 6000)])
    basis = np.column_stack([x] + [x / (x * x + c) for c in poles])
    scale = 1 / np.abs(basis).max(axis=0)
    basis *= scale
    above = basis[x >= resolution]
    rows = np.concatenate([np.c_[basis, np.zeros(len(x))], np.c_[-above, np.ones(len(above))]])
    limits = np.concatenate([np.ones(len(x)), np.zeros(len(above))])
    count = basis.shape[1]
    solution = linprog(
        np.r_[np.zeros(count), -1.0],
        A_ub=rows,
        b_ub=limits,
        A_eq=np.r_[basis[-1], 0.0][None],
        b_eq=[1.0],
        bounds=[(None, None)] * count + [(0, 1)],
        method="highs",
    )
    assert solution.success, solution.message
    weights = solution.x[:count] * scale
    fine = np.geomspace(resolution, 1, 400001)
    values = fine * (weights[0] + (weights[1:] / (fine[:, None] ** 2 + poles)).sum(axis=1))
    return weights[0] / values.max(), weights[1:] / values.max(), values.min() / values.max()


def moments(s, poles):
    """The basis, one column per function."""
    columns = [np.ones_like(s), s, s * s]
    for c in poles:
        columns += [c / (s + c), (c / (s + c)) ** 2, np.log1p(s / c)]
    return np.stack(columns, axis=1)


def derivatives(s, poles):
    """Of the basis."""
    columns = [np.zeros_like(s), np.ones_like(s), 2 * s]
    for c in poles:
        columns += [-c / (s + c) ** 2, -2 * c * c / (s + c) ** 3, 1 / (s + c)]
    return np.stack(columns, axis=1)


def sensitivity(derivative, s, c):
    """Of what has this derivative; s begins with 0."""
    u = c / (s + c)
    needed = derivative**2 / u
    p = needed[u < 0.01].max()  # for s far above c
    q = max(0.0, ((needed - p) / u).max())
    away = s > 1e-6 * c
    k = (np.abs(derivative - derivative[0]) / (1 - u + (u == 1)))[away].max()
    return 1.001 * np.array([p, q, abs(derivative[0]), k])


def certificate(poles, side, weight, t, limit):
    """Coefficients of a bound of sqrt(s), above for side = 1, below for side = -1, then its sensitivity."""
    s = np.concatenate([[0.0], np.geomspace(1e-12, 1, 6000)])
    basis, root = moments(s, poles), np.sqrt(s)
    allowed = np.where(root >= t, root, weight * t)
    count = basis.shape[1]
    rows = np.concatenate([np.c_[-side * basis, np.zeros(len(s))], np.c_[side * basis, -allowed]])
    limits = np.concatenate([-side * root, side * root])
    some = s[::10]
    slopes = derivatives(some, poles) * (2 * np.sqrt(some + min(poles)))[:, None]
    rows = np.concatenate([rows, *(np.c_[sign * slopes, np.zeros(len(some))] for sign in (1, -1))])
    limits = np.concatenate([limits, np.full(2 * len(some), float(limit))])
    objective = np.r_[np.zeros(count), 1.0]
    bounds = [(None, None)] * count + [(0, None)]
    solution = linprog(objective, A_ub=rows, b_ub=limits, bounds=bounds, method="highs")
    assert solution.success, solution.message
    coefficients = solution.x[:count]
    # Between the grid points: push the bound outwards by the worst violation of a finer grid.
    fine = np.concatenate([[0.0], np.geomspace(1e-14, 1, 200001)])
    gap = side * (moments(fine, poles) @ coefficients - np.sqrt(fine))
    coefficients[0] += side * max(0.0, -gap.min()) * 1.01
    return np.r_[coefficients, sensitivity(derivatives(fine, poles) @ coefficients, fine, min(poles))]


def value_sensitivity(alpha, beta, poles):
    """Of <A, X> = tr S Q(S + E), whose derivative is s Q'(s), and to rounding of Q itself, <S, Q E'>."""
    s = np.concatenate([[0.0], np.geomspace(1e-14, 1, 200001)])
    q = alpha + (beta / (s[:, None] + poles)).sum(axis=1)
    return sensitivity(s * (beta / (s[:, None] + poles) ** 2).sum(axis=1) + q, s, min(poles))


def numbers(values):
    return "{" + ", ".join(f"{value:.17g}" for value in values) + "}"


def filter_lines(name, resolution, floor, alpha, beta, poles):
    return [
        "",
        f"inline constexpr double k{name}Resolution = {resolution:g};",
        f"inline constexpr double k{name}Floor = {floor:.17g};",
        f"inline constexpr double k{name}Alpha = {alpha:.17g};",
        f"inline constexpr double k{name}Beta[] = {numbers(beta)};",
        f"inline constexpr double k{name}C[] = {numbers(poles)};",
    ]


def certificates(name, alpha, beta, poles, resolution):
    lines = [f"inline constexpr double k{name}ValueSensitivity[] = {numbers(value_sensitivity(alpha, beta, poles))};"]
    for bound, side in (("Upper", 1), ("Lower", -1)):
        lines.append(f"inline constexpr double k{name}{bound}[kCertificates][{7 + 3 * len(poles)}] = {{")
        for weight, t, limit in CERTIFICATES:
            lines.append(f"    {numbers(certificate(poles, side, weight, t * resolution, limit))},")
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
    alpha, beta, poles, floor = zolotarev(COARSE_RESOLUTION, 4)
    poles, beta = np.roll(poles, -1), np.roll(beta, -1)  # those of the light pass first
    light_alpha, light_beta, light_floor = best_weights(poles[:3], LIGHT_RESOLUTION)
    fine_alpha, fine_beta, fine_poles, fine_floor = zolotarev(FINE_RESOLUTION, 6)
    lines += filter_lines("Light", LIGHT_RESOLUTION, light_floor, light_alpha, light_beta, poles[:3])
    lines += certificates("Light", light_alpha, light_beta, poles[:3], LIGHT_RESOLUTION)
    lines += filter_lines("Coarse", COARSE_RESOLUTION, floor, alpha, beta, poles)
    lines += certificates("Coarse", alpha, beta, poles, COARSE_RESOLUTION)
    lines += filter_lines("Fine", FINE_RESOLUTION, fine_floor, fine_alpha, fine_beta, fine_poles)
    lines += ["", "}  // namespace tensorion::zolotarev", ""]
    target = Path(__file__).parent.parent / "tensorion" / "zolotarev_tables.h"
    target.write_text("// clang-format off\n" + "\n".join(lines))


if __name__ == "__main__":
    main()
