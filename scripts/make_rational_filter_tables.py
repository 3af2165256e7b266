#!/usr/bin/env python3
"""Writes tensorion/polar/rational_filter_tables.h: run it as `python scripts/make_rational_filter_tables.py`.

A filter f(x) = x q(x^2), q(s) = alpha + gamma s + sum_j beta_j / (s + c_j), that is close to 1 on (0, 1] and nowhere
above it, costs an inverse of a positive definite matrix for each pole c_j and no product.

The poles of a first pass come one after the other, two at once: with few of them it is good for spectra with few small
values. For each number of poles there are several filters, since the weights cost nothing to choose when the inverses
are there: each is the solution of a linear program that makes the most of <A, X> for one kind of spectrum.

The last filter, `fine`, is Zolotarev's, of type (2r+1, 2r): the best approximation of sign(x) on [-1, -l] u [l, 1],
scaled to at most 1. It is for matrices whose singular values a first pass has brought near to 1.

The certificates bound sqrt(s) on [0, 1] from above and below by combinations of 1, s, s^2 and, per pole,
c/(s+c), (c/(s+c))^2, log(1+s/c): summed over the spectrum these are traces that the inverses give away.
Each is the solution of a linear program that makes the least error for one kind of spectrum.

Where rounding adds a matrix E to S, a trace of g(S) moves by at most ||g'(S)||_F ||E||_F, and by at most
|g'(0)| |tr E| + ||g'(S) - g'(0) I||_F ||E||_F, which is less where most eigenvalues are small. So each certificate g
has a `sensitivity` too, (p, q, |g'(0)|, k): with u = c/(s+c) of the smallest pole, g'(s)^2 <= p u + q u^2 and
|g'(s) - g'(0)| <= k (1 - u). Each factorization has an E of its own, so that these hold for the sum of the absolute
values of the poles' parts of g', which the programs limit.

Determinants alone, log(1+s/c) at more places, bound the nuclear norm closer for the same price. There the sensitivity
is (k, w): |g'(s)| <= k / (2 sqrt(s + c)) with the smallest c, whose trace 1/(s+c) is bounded by determinants, too; and
w is the sum of the absolute values of the weights, each of which multiplies the rounding of m logarithms.
"""

from pathlib import Path

import numpy as np
from scipy.optimize import linprog
from scipy.special import ellipj, ellipkm1

POLES = np.array([5e-4, 2e-2, 1e-5, 1e-6, 0.3])  # in the order of their use; chosen by trying momenta of ResNet-18
FINE_RESOLUTION = 1e-3
FINE_GRID = np.concatenate([[0.0], np.geomspace(1e-14, 1, 200001)])
# Spectra with density x^-k in log x on [r sqrt(c), 1], c the smallest pole, and a share of zeros, as (k, r, share,
# limit of 2 |g'(s)| sqrt(s + c)).
CERTIFICATES = [
    (1, 0.1, 0, 6),
    (1, 0.3, 0, 3),
    (1, 1, 0, 6),
    (1, 3, 0, 6),
    (1.5, 1, 0, 3),
    (1.5, 3, 0, 3),
    (1.5, 10, 0, 3),
    (1, 1, 0.5, 6),
    (0.5, 1, 0.9, 6),
    (0.5, 3, 0.9, 3),
    (0, 3, 0.99, 6),
]


# Where determinants are taken: three at first, then seven, nine, and all. Four of them are poles, too: there
# factorizations serve twice.
SHIFTS = np.array([1e-5, 5e-4, 2e-2, 2e-7, 7e-5, 3.5e-3, 0.15, 2e-8, 1e-6, 0.05, 0.9])
# The same kinds of spectra for determinants, but with the least value itself.
DETERMINANT_CERTIFICATES = [
    (1, 3e-4, 0, 3),
    (1, 3e-3, 0, 3),
    (1, 1e-2, 0, 3),
    (0, 1e-2, 0, 3),
    (0, 0.1, 0, 3),
    (1.5, 1e-3, 0, 3),
    (1, 1e-3, 0.5, 3),
    (0, 3e-3, 0.99, 3),
]


def maximize(objective, rows, limits, ones=None):
    """The solution of a linear program, in variables that make its columns orthogonal. `ones`: a combination that must
    be 1."""
    change = np.sqrt(len(rows)) * np.linalg.inv(np.linalg.qr(rows)[1])
    equal = {} if ones is None else {"A_eq": (ones @ change)[None], "b_eq": [1.0]}
    solution = linprog(-objective @ change, A_ub=rows @ change, b_ub=limits, bounds=(None, None), **equal)
    assert solution.success, solution.message
    return change @ solution.x


def powers(x, poles):
    """The functions whose combinations are filters."""
    return np.column_stack([x, x**3] + [x / (x * x + c) for c in poles])


def spectra(resolution):
    """Kinds of spectra, as points with masses: what a filter is worth is the sum of mass times filter."""
    x = np.geomspace(resolution / 100, 1, 3000)
    many_small = np.where(x >= 0.4 * resolution, x**-0.5, 0)
    all_large = np.where(x >= 0.2, x, 0)
    result = [(x, many_small), (x, all_large)]
    for least in (0.3, 1, 3):  # beside few that are much larger
        result.append((x, x * ((x > least * resolution) & (x < 10 * least * resolution))))
    for exponent, count in ((0.25, 2000), (0.75, 2000), (1.5, 200)):
        sigma = np.arange(1, count + 1.0) ** -exponent
        s = sigma**2
        sigma /= np.sqrt(s.mean() + np.sqrt((count - 1) * s.var()))  # as lambda is bounded
        result.append((sigma, sigma))
    return result


def filters(poles):
    """Rows alpha, gamma, beta_j: the best for each kind of spectrum, the one with the largest least value, and one with
    f(1) = 1, which leaves what is orthogonal as it is."""
    resolution = np.sqrt(min(poles))
    x = np.concatenate([np.geomspace(1e-6, 1e-3, 400), np.geomspace(1e-3, 1, 3000)])
    basis = powers(x, poles)
    inside = np.concatenate([basis, -basis]), np.concatenate([np.ones(len(x)), np.zeros(len(x))])
    rows = [maximize(mass @ powers(sigma, poles), *inside) for sigma, mass in spectra(resolution)]
    rows.append(maximize((x * (x >= 0.1)) @ basis, *inside, powers(np.ones(1), poles)[0]))
    above = basis[x >= resolution]
    with_floor = np.concatenate([np.c_[basis, np.zeros(len(x))], np.c_[-above, np.ones(len(above))]])
    limits = np.concatenate([np.ones(len(x)), np.zeros(len(above))])
    rows.append(maximize(np.r_[np.zeros(basis.shape[1]), 1.0], with_floor, limits)[:-1])
    fine = np.concatenate([np.geomspace(1e-8, 1e-3, 20001), np.geomspace(1e-3, 1, 400001)])
    values = powers(fine, poles)
    return [row / (values @ row).max() for row in rows]


def floor_of(row, poles):
    """f(x) >= floor min(1, x / resolution)."""
    x = np.geomspace(1e-8, 1, 400001)
    return (powers(x, poles) @ row / np.minimum(1, x / np.sqrt(min(poles)))).min()


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


class Basis:
    """The functions that a certificate combines: 1, s, s^2 and per pole three, or the logarithm alone."""

    def __init__(self, poles, logarithms_only=False):
        self.poles = poles
        self.kept = slice(2, 3) if logarithms_only else slice(0, 3)
        width = 1 if logarithms_only else 3
        count = 3 + width * len(poles)
        self.groups = [range(3), *(range(j, j + width) for j in range(3, count, width))]

    def values(self, s):
        columns = [np.ones_like(s), s, s * s]
        for c in self.poles:
            columns += [c / (s + c), (c / (s + c)) ** 2, np.log1p(s / c)][self.kept]
        return np.stack(columns, axis=1)

    def slopes(self, s):
        columns = [np.zeros_like(s), np.ones_like(s), 2 * s]
        for c in self.poles:
            columns += [-c / (s + c) ** 2, -2 * c * c / (s + c) ** 3, 1 / (s + c)][self.kept]
        return np.stack(columns, axis=1)

    def parts(self, slopes):
        """Of 1, s and s^2, then of each pole: the others are 0."""
        return [np.where(np.isin(np.arange(slopes.shape[1]), group), slopes, 0) for group in self.groups]


def sensitivity(parts, s, c):
    """Of a sum of parts with these derivatives; s begins with 0."""
    u = c / (s + c)
    derivative = np.abs(parts).sum(axis=0)
    needed = derivative**2 / u
    p = needed[u < 0.01].max()  # for s far above c
    q = max(0.0, ((needed - p) / u).max())
    change = np.abs(parts - parts[:, :1]).sum(axis=0)
    k = (change / (1 - u + (u == 1)))[s > 1e-6 * c].max()
    return 1.001 * np.array([p, q, derivative[0], k])


def certificate(basis, side, exponent, least, zeros, limit=None, function=np.sqrt):
    """Coefficients of a bound of the function on [0, 1], above for side = 1, below for side = -1."""
    s = np.concatenate([[0.0], np.geomspace(1e-12, 1, 3000)])
    rows, limits = [-side * basis.values(s)], [-side * function(s)]
    if limit:
        some = s[::6]
        for part in basis.parts(basis.slopes(some) * (2 * np.sqrt(some + min(basis.poles)))[:, None]):
            rows += [part, -part]
            limits += [np.full(len(some), float(limit))] * 2
    x = np.geomspace(least, 1, 1000)
    density = (1 - zeros) * x**-exponent / (x**-exponent).sum()
    traces = density @ basis.values(x * x) + zeros * basis.values(np.zeros(1))[0]
    coefficients = maximize(-side * traces / (density @ x), np.concatenate(rows), np.concatenate(limits))
    # Between the grid points: push the bound outwards by the worst violation of a finer grid.
    gap = side * (basis.values(FINE_GRID) @ coefficients - function(FINE_GRID))
    coefficients[0] += side * max(0.0, -gap.min()) * 1.01
    return coefficients


def pole_certificate(poles, side, *kind):
    """With its sensitivity."""
    basis = Basis(poles)
    row = certificate(basis, side, *kind)
    slopes = basis.slopes(FINE_GRID)
    parts = np.array([slopes[:, group] @ row[group] for group in basis.groups])
    return np.r_[row, sensitivity(parts, FINE_GRID, min(poles))]


def determinant_certificate(shifts, side, *kind):
    """With its sensitivity."""
    basis = Basis(shifts, logarithms_only=True)
    row = certificate(basis, side, *kind)
    slope = np.abs(row[1] + 2 * row[2] * FINE_GRID) + basis.slopes(FINE_GRID)[:, 3:] @ np.abs(row[3:])
    k = (2 * slope * np.sqrt(FINE_GRID + min(shifts))).max()
    return np.r_[row, 1.001 * k, np.abs(row[3:]).sum()]


def value_sensitivity(row, poles):
    """Of <A, X> = tr S Q(S + E), whose derivative is s Q'(s), and to rounding of Q itself, <S, Q E'>."""
    s = FINE_GRID
    alpha, gamma, beta = row[0], row[1], row[2:]
    polynomial = np.abs(gamma * s) + np.abs(alpha + gamma * s)
    of_poles = [np.abs(b) * (s / (s + c) ** 2 + 1 / (s + c)) for b, c in zip(beta, poles, strict=True)]
    return sensitivity(np.array([polynomial, *of_poles]), s, min(poles))


def numbers(values):
    return "{" + ", ".join(f"{value:.17g}" for value in values) + "}"


def array(rows):
    """An initializer of a std::array of structs, a row a line."""
    return ["    {{", *(f"        {row}," for row in rows), "    }},"]


def bound(polynomial, shifts):
    """A Certificate: weights of 1, s and s^2, and three for each shift."""
    return f"{{{numbers(polynomial)[1:-1]}, {{{{{', '.join(map(numbers, shifts))}}}}}}}"


def filter_certificate(row):
    *weights, p, q, slope, k = row
    return f"{{{bound(weights[:3], np.reshape(weights[3:], (-1, 3)))}, {numbers([p, q, slope, k])}}}"


def filter_weights(row, passband_min):
    alpha, gamma, *beta, p, q, slope, k = row
    return f"{{{alpha:.17g}, {gamma:.17g}, {numbers(beta)}, {passband_min:.17g}, {numbers([p, q, slope, k])}}}"


def log_det_certificate(row, shifts):
    """`row` ends with the slope, which bounds of the inverse do not have, and the weight."""
    weights, rest = row[: 3 + shifts], list(row[3 + shifts :])
    slope, weight = rest if len(rest) == 2 else [0, *rest]
    return f"{{{bound(weights[:3], [(0, 0, w) for w in weights[3:]])}, {slope:.17g}, {weight:.17g}}}"


def filter_level(cutoff, filters, upper, lower):
    return [
        "{",
        f"    {cutoff:.17g},",
        *array(filter_weights(row, passband_min) for row, passband_min in filters),
        *array(map(filter_certificate, upper)),
        *array(map(filter_certificate, lower)),
        "},",
    ]


def log_det_level(shifts, upper, lower, inverse):
    tables = [array(log_det_certificate(row, shifts) for row in rows) for rows in (upper, lower, inverse)]
    return ["{", f"    {shifts},", *(line for table in tables for line in table), "},"]


def make_filter_level(poles):
    cutoff = np.sqrt(min(poles))
    rows = [(np.r_[row, value_sensitivity(row, poles)], floor_of(row, poles)) for row in filters(poles)]
    upper, lower = (
        [pole_certificate(poles, side, k, r * cutoff, *rest) for k, r, *rest in CERTIFICATES] for side in (1, -1)
    )
    return filter_level(cutoff, rows, upper, lower)


def make_log_det_level(shifts):
    upper, lower = (
        [determinant_certificate(shifts, side, *kind) for kind in DETERMINANT_CERTIFICATES] for side in (1, -1)
    )
    c = min(shifts)
    basis = Basis(shifts, logarithms_only=True)
    inverses = [
        certificate(basis, 1, exponent, least, zeros, function=lambda s: c / (s + c))
        for exponent, least, zeros, _ in DETERMINANT_CERTIFICATES
    ]
    return log_det_level(len(shifts), upper, lower, [np.r_[row, np.abs(row[3:]).sum()] for row in inverses])


def document(filter_levels, fine, log_det_levels, poles=POLES, shifts=SHIFTS):
    """The header. `fine`: alpha, beta_j, poles and the least value of Zolotarev's function."""
    alpha, beta, fine_poles, passband_min = fine
    lines = [
        "// clang-format off",
        "// Made by scripts/make_rational_filter_tables.py; do not edit.",
        "#pragma once",
        "",
        "#include <array>",
        "#include <cstddef>",
        "",
        '#include "tensorion/polar/spectrum_moments.h"',
        "",
        "namespace tensorion::rational_filter_tables {",
        "",
        "// How far rounding moves a trace of g(S), with u = c / (s + c) of the smallest pole:",
        "// g'(s)^2 <= inverse u + inverse_squared u^2, |g'(0)| = at_zero, |g'(s) - g'(0)| <= tail (1 - u).",
        "struct Sensitivity {",
        "  double inverse;",
        "  double inverse_squared;",
        "  double at_zero;",
        "  double tail;",
        "};",
        "",
        "struct FilterCertificate {",
        "  Certificate bound;",
        "  Sensitivity sensitivity;",
        "};",
        "",
        f"inline constexpr size_t kMaxPoles = {len(poles)};",
        "",
        "// f(x) = x (alpha + gamma x^2 + sum_j beta_j / (x^2 + c_j)) is in [passband_min, 1] above the cutoff, and at",
        "// least x / cutoff times passband_min below it.",
        "struct FilterWeights {",
        "  double alpha;",
        "  double gamma;",
        "  std::array<double, kMaxPoles> beta;",
        "  double passband_min;",
        "  Sensitivity sensitivity;  // of <A, X>",
        "};",
        "",
        "// All there is for a number of poles.",
        "struct FilterLevel {",
        "  double cutoff;",
        f"  std::array<FilterWeights, {len(spectra(1)) + 2}> filters;",
        f"  std::array<FilterCertificate, {len(CERTIFICATES)}> upper;",
        f"  std::array<FilterCertificate, {len(CERTIFICATES)}> lower;",
        "};",
        "",
        "// |g'(s)| <= slope / (2 sqrt(s + c)) with the smallest shift c; `weight` is the sum of the absolute weights.",
        "struct LogDetCertificate {",
        "  Certificate bound;",
        "  double slope;",
        "  double weight;",
        "};",
        "",
        "// All there is for a number of shifts. `inverse` bounds the trace of c / (s + c) with the smallest shift c.",
        "struct LogDetLevel {",
        "  size_t shifts;",
        f"  std::array<LogDetCertificate, {len(DETERMINANT_CERTIFICATES)}> upper;",
        f"  std::array<LogDetCertificate, {len(DETERMINANT_CERTIFICATES)}> lower;",
        f"  std::array<LogDetCertificate, {len(DETERMINANT_CERTIFICATES)}> inverse;",
        "};",
        "",
        "// In the order of their use.",
        f"inline constexpr double kPoles[] = {numbers(poles)};",
        f"inline constexpr double kShifts[] = {numbers(shifts)};",
        "",
        "// For two, three, four and five poles.",
        "inline constexpr FilterLevel kFilterLevels[] = {",
        *(line for level in filter_levels for line in level),
        "};",
        "",
        "// Zolotarev's function, for singular values that a first pass has brought near to 1.",
        f"inline constexpr double kFineCutoff = {FINE_RESOLUTION:g};",
        f"inline constexpr double kFinePassbandMin = {passband_min:.17g};",
        f"inline constexpr double kFineAlpha = {alpha:.17g};",
        f"inline constexpr double kFineBeta[] = {numbers(beta)};",
        f"inline constexpr double kFinePoles[] = {numbers(fine_poles)};",
        "",
        "inline constexpr LogDetLevel kLogDetLevels[] = {",
        *(line for level in log_det_levels for line in level),
        "};",
        "",
        "}  // namespace tensorion::rational_filter_tables",
        "",
    ]
    return "\n".join(lines)


def main():
    text = document(
        [make_filter_level(POLES[:count]) for count in (2, 3, 4, 5)],
        zolotarev(FINE_RESOLUTION, 6),
        [make_log_det_level(SHIFTS[:count]) for count in (3, 7, 9, 11)],
    )
    (Path(__file__).parent.parent / "tensorion" / "polar" / "rational_filter_tables.h").write_text(text)


if __name__ == "__main__":
    main()
