#!/usr/bin/env python3
"""Writes tensorion/polar/rational_filter_tables.h. Run it as `python scripts/make_rational_filter_tables.py`.

A filter is a function f(x) = x q(x^2) with q(s) = alpha + gamma s + sum_j beta_j / (s + c_j) that is close to 1 on
(0, 1] and at most 1. It costs one inverse of a positive definite matrix per pole c_j and no matrix product.

The first pass starts with two poles and adds more if the spectrum has many small values. For each number of poles there
are several filters, because choosing among weights is free once the inverses are computed. Each filter is the solution
of a linear program that maximizes <A, X> for one kind of spectrum.

The last filter, `fine`, is Zolotarev's function of type (2r+1, 2r): the best approximation of sign(x) on
[-1, -l] u [l, 1], scaled to at most 1. It is used for matrices whose singular values are close to 1 after a first pass.

The certificates are upper and lower bounds of sqrt(s) on [0, 1]. They are linear combinations of 1, s, s^2 and, for
each pole, c/(s+c), (c/(s+c))^2 and log(1+s/c). The sums of these functions over the spectrum are traces that are free
once the inverses are computed. Each certificate is the solution of a linear program that minimizes the error for one
kind of spectrum.

If rounding adds a matrix E to S, a trace of g(S) changes by at most ||g'(S)||_F ||E||_F. It also changes by at most
|g'(0)| |tr E| + ||g'(S) - g'(0) I||_F ||E||_F, which is smaller if most eigenvalues are small. Each certificate g
therefore has a `sensitivity` (p, q, |g'(0)|, k): with u = c/(s+c) for the smallest pole c, g'(s)^2 <= p u + q u^2 and
|g'(s) - g'(0)| <= k (1 - u). Each factorization has its own E, so these bounds hold for the sum of the absolute values
of the contributions of the poles to g', which the linear programs limit.

Certificates of determinants only, log(1+s/c) with more shifts c, give tighter bounds of the nuclear norm at the same
cost. Their sensitivity is (k, w). Here |g'(s)| <= k / (2 sqrt(s + c)) for the smallest shift c, and determinants also
bound the trace of 1/(s+c). w is the sum of the absolute values of the weights, each of which multiplies the rounding
error of m logarithms.
"""

from pathlib import Path

import numpy as np
from rational_filter_header import FilterLevel, LogDetLevel, document
from scipy.optimize import linprog
from scipy.special import ellipj, ellipkm1

# In the order in which they are used. The values were chosen by experiments with momenta of ResNet-18.
POLES = np.array([5e-4, 2e-2, 1e-5, 1e-6, 0.3])
FINE_RESOLUTION = 1e-3
FINE_GRID = np.concatenate([[0.0], np.geomspace(1e-14, 1, 200001)])
# Each entry is (k, r, share of zeros, limit of 2 |g'(s)| sqrt(s + c)). It stands for a spectrum with density x^-k in
# log x on [r sqrt(c), 1], where c is the smallest pole.
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

# The shifts of the determinants. The search uses the first 2, then 4, 7 and all 11. The first two decide between most
# unfoldings of momenta of ResNet-18; they were chosen among pairs from 1e-5 to 2e-2.
SHIFTS = np.array([5e-5, 5e-3, 2e-6, 0.15, 5e-4, 3e-2, 2e-7, 1.5e-5, 1.5e-3, 2e-8, 0.9])
# Spectra for the certificates of determinants, as in CERTIFICATES, but r is the smallest singular value itself.
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
    """Solve a linear program in variables for which its columns are orthogonal.

    `ones` is an optional linear combination of the variables that must be 1.
    """
    change = np.sqrt(len(rows)) * np.linalg.inv(np.linalg.qr(rows)[1])
    equal = {} if ones is None else {"A_eq": (ones @ change)[None], "b_eq": [1.0]}
    solution = linprog(-objective @ change, A_ub=rows @ change, b_ub=limits, bounds=(None, None), **equal)
    assert solution.success, solution.message
    return change @ solution.x


def powers(x, poles):
    """Evaluate the functions whose linear combinations are filters."""
    return np.column_stack([x, x**3] + [x / (x * x + c) for c in poles])


def spectra(resolution):
    """Return kinds of spectra as (points, masses). The objective of a filter is the sum of mass times filter value."""
    x = np.geomspace(resolution / 100, 1, 3000)
    many_small = np.where(x >= 0.4 * resolution, x**-0.5, 0)
    all_large = np.where(x >= 0.2, x, 0)
    result = [(x, many_small), (x, all_large)]
    for least in (0.3, 1, 3):  # Most singular values are small, and few are much larger.
        result.append((x, x * ((x > least * resolution) & (x < 10 * least * resolution))))
    for exponent, count in ((0.25, 2000), (0.75, 2000), (1.5, 200)):
        sigma = np.arange(1, count + 1.0) ** -exponent
        s = sigma**2
        sigma /= np.sqrt(s.mean() + np.sqrt((count - 1) * s.var()))  # the library's bound of the largest eigenvalue
        result.append((sigma, sigma))
    return result


def filters(poles):
    """Return rows (alpha, gamma, beta_j).

    There is the best filter for each kind of spectrum, a filter with f(1) = 1, which leaves orthogonal matrices
    unchanged, and the filter with the largest minimum above the resolution.
    """
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


def passband_min_of(row, poles):
    """Return the largest number with f(x) >= number * min(1, x / resolution)."""
    x = np.geomspace(1e-8, 1, 400001)
    return (powers(x, poles) @ row / np.minimum(1, x / np.sqrt(min(poles)))).min()


def zolotarev(resolution, poles):
    """Return alpha, beta_j, c_j and the minimum of the scaled function (Nakatsukasa and Freund 2016, eq. 2.6)."""
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
    """The functions in a certificate: 1, s, s^2 and, for each pole, three functions or only the logarithm."""

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
        """Split slopes into the parts of 1, s and s^2 and of each pole. The other columns of a part are 0."""
        return [np.where(np.isin(np.arange(slopes.shape[1]), group), slopes, 0) for group in self.groups]


def sensitivity(parts, s, c):
    """Return the sensitivity of a sum of parts with these derivatives on the grid s, which begins with 0."""
    u = c / (s + c)
    derivative = np.abs(parts).sum(axis=0)
    needed = derivative**2 / u
    p = needed[u < 0.01].max()  # s is much larger than c
    q = max(0.0, ((needed - p) / u).max())
    change = np.abs(parts - parts[:, :1]).sum(axis=0)
    k = (change / (1 - u + (u == 1)))[s > 1e-6 * c].max()
    return 1.001 * np.array([p, q, derivative[0], k])


def certificate(basis, side, exponent, least, zeros, limit=None, function=np.sqrt):
    """Return the coefficients of an upper (side = 1) or lower (side = -1) bound of the function on [0, 1]."""
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
    # The bound may be violated between grid points, so shift it by the largest violation on a finer grid.
    gap = side * (basis.values(FINE_GRID) @ coefficients - function(FINE_GRID))
    coefficients[0] += side * max(0.0, -gap.min()) * 1.01
    return coefficients


def pole_certificate(poles, side, *kind):
    """Return the coefficients of a certificate and its sensitivity."""
    basis = Basis(poles)
    row = certificate(basis, side, *kind)
    slopes = basis.slopes(FINE_GRID)
    parts = np.array([slopes[:, group] @ row[group] for group in basis.groups])
    return np.r_[row, sensitivity(parts, FINE_GRID, min(poles))]


def determinant_certificate(shifts, side, *kind):
    """Return the coefficients of a certificate of determinants and its sensitivity."""
    basis = Basis(shifts, logarithms_only=True)
    row = certificate(basis, side, *kind)
    slope = np.abs(row[1] + 2 * row[2] * FINE_GRID) + basis.slopes(FINE_GRID)[:, 3:] @ np.abs(row[3:])
    k = (2 * slope * np.sqrt(FINE_GRID + min(shifts))).max()
    return np.r_[row, 1.001 * k, np.abs(row[3:]).sum()]


def value_sensitivity(row, poles):
    """Return the sensitivity of <A, X> = tr S Q(S + E), whose derivative is s Q'(s), and to rounding of Q itself."""
    s = FINE_GRID
    alpha, gamma, beta = row[0], row[1], row[2:]
    polynomial = np.abs(gamma * s) + np.abs(alpha + gamma * s)
    of_poles = [np.abs(b) * (s / (s + c) ** 2 + 1 / (s + c)) for b, c in zip(beta, poles, strict=True)]
    return sensitivity(np.array([polynomial, *of_poles]), s, min(poles))


def make_filter_level(poles):
    cutoff = np.sqrt(min(poles))
    rows = [(np.r_[row, value_sensitivity(row, poles)], passband_min_of(row, poles)) for row in filters(poles)]
    upper, lower = (
        [pole_certificate(poles, side, k, r * cutoff, *rest) for k, r, *rest in CERTIFICATES] for side in (1, -1)
    )
    return FilterLevel(cutoff, rows, upper, lower)


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
    return LogDetLevel(len(shifts), upper, lower, [np.r_[row, np.abs(row[3:]).sum()] for row in inverses])


def main():
    text = document(
        POLES,
        SHIFTS,
        [make_filter_level(POLES[:count]) for count in (2, 3, 4, 5)],
        (FINE_RESOLUTION, *zolotarev(FINE_RESOLUTION, 6)),
        [make_log_det_level(SHIFTS[:count]) for count in (2, 4, 7, 11)],
    )
    (Path(__file__).parent.parent / "tensorion" / "polar" / "rational_filter_tables.h").write_text(text)


if __name__ == "__main__":
    main()
