"""Measures time, quality, flops and memory of all methods on the kernels of one network."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from baselines import DEFAULT, PLAIN, Method, modes_of
from measure import alternate, large_product, quality, work
from workloads import NETWORKS, momenta

import tensorion


@dataclass
class Row:
    network: str
    spectrum: str
    unfolding: str
    method: str
    seconds: float
    quality_mean: float
    quality_least: float
    relative_to_plain: float  # compared with the plain form on the same unfolding, or on the balanced one for online
    relative_to_floor: float
    product_gflop: float
    extra_memory: float  # in multiples of the largest unfolding


def make_params(network: str, spectrum: str) -> list[torch.Tensor]:
    params = []
    for grad in momenta(network, spectrum):
        param = torch.zeros_like(grad, requires_grad=True)
        param.grad = grad.clone()
        params.append(param)
    return params


def nuclear_norm(matrix: torch.Tensor) -> float:
    """Compute the nuclear norm from the eigenvalues of the Gram matrix, in double precision."""
    wide = (matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T).double()
    return float(torch.linalg.eigvalsh(wide @ wide.T).clamp_min(0).sqrt().sum())


class Judge:
    """Computes the quality of updates. Each nuclear norm is computed once."""

    def __init__(self) -> None:
        self._norms: dict[tuple, float] = {}

    def __call__(self, key: tuple, params: list[torch.Tensor], unfolding: str) -> list[float]:
        result = []
        for index, param in enumerate(params):
            modes = (
                modes_of(tuple(param.shape), unfolding) if unfolding != "online" else tensorion.lmo(param.grad).modes
            )
            place = (*key, index, modes)
            if place not in self._norms:
                self._norms[place] = nuclear_norm(tensorion.unfold(param.grad, modes))
            # A step of "online" may orthogonalize another unfolding, whose norm is at most a thousandth smaller.
            used = [modes] if unfolding != "online" else same_sides(tuple(param.shape), modes)
            matrices = [(tensorion.unfold(param.grad, m), -tensorion.unfold(param.detach(), m)) for m in used]
            result.append(max(quality(*pair, self._norms[place]) for pair in matrices))
        return result


def same_sides(shape: tuple[int, ...], modes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the unfoldings whose matrices have the same sides as this one."""

    def sides(which: tuple[int, ...]) -> list[int]:
        return sorted(tensorion.unfold(torch.empty(shape, device="meta"), which).shape)

    return [other for other in tensorion.unfoldings(shape) if sides(other) == sides(modes)]


def base_of(unfolding: str) -> str:
    """Return the unfolding whose plain form and floor a method is compared with."""
    return "flattened" if unfolding == "flattened" else "balanced"


def sides(network: str, unfolding: str) -> list[tuple[int, int]]:
    """Return the smaller and the larger side of each unfolded kernel."""
    found = []
    for shape in NETWORKS[network]:
        matrix = tensorion.unfold(torch.empty(shape, device="meta"), modes_of(shape, base_of(unfolding))).shape
        found.append((min(matrix), max(matrix)))
    return found


def run(network: str, spectrum: str, compared: Sequence[Method], rounds: int, judge: Judge) -> list[Row]:
    """Return one row for each method. A method that raises an error is left out, and the error is printed."""
    steps, done, qualities, counts, seconds = {}, {}, {}, {}, {}
    for method in compared:
        key = (method.unfolding, method.name)
        params = make_params(network, spectrum)
        try:
            step = method.make(params)
            start = time.perf_counter()
            if method.is_slow:  # up to minutes in 16 bits on a CPU
                counts[key] = work(step)
                seconds[key] = time.perf_counter() - start
            else:
                step()
                steps[key] = step
        except Exception as error:
            print(f"  {method.name}: left out ({type(error).__name__}: {str(error).splitlines()[0][:100]})")
            continue
        done[key] = method
        qualities[key] = judge((network, spectrum), params, method.unfolding)
    for key, step in steps.items():
        tensorion.release_scratch()  # so that the scratch memory is counted
        counts[key] = work(step)
    product, product_flops = large_product()
    seconds |= alternate(steps | {"product": product}, rounds, warm=True)
    rate = product_flops / seconds.pop("product")
    rows = []
    for key, method in done.items():
        flops, memory = counts[key]
        shapes = sides(network, method.unfolding)
        rows.append(
            Row(
                network=network,
                spectrum=spectrum,
                unfolding=method.unfolding,
                method=method.name,
                seconds=seconds[key],
                quality_mean=sum(qualities[key]) / len(qualities[key]),
                quality_least=min(qualities[key]),
                relative_to_plain=seconds[key] / seconds[base_of(method.unfolding), PLAIN],
                relative_to_floor=seconds[key] * rate / sum(3 * m * m * n for m, n in shapes),
                product_gflop=flops / 1e9,
                extra_memory=memory / (4 * max(m * n for m, n in shapes)),
            )
        )
    return rows


TITLES = {
    "balanced": "Balanced unfoldings, and the choice among all of them (online)",
    "flattened": "Flattened kernels, (0,): smaller matrices, so that less is orthogonalized",
}


def print_rows(rows: Sequence[Row]) -> None:
    """Print one table for each unfolding, because the amount of work differs between unfoldings."""
    print(f"\n{rows[0].network}, {rows[0].spectrum} momenta")
    for base, title in TITLES.items():
        group = [row for row in rows if base_of(row.unfolding) == base]
        plain = next(row for row in group if row.method == PLAIN)
        print(f"\n{title}; plain: {plain.product_gflop:.1f} GFLOP of products")
        print(f"{'method':<38}{'ms':>9}{'/plain':>8}{'/floor':>8}{'q mean':>8}{'q least':>9}{'GFLOP':>9}{'memory':>8}")
        for row in group:
            name = row.method + (", online" if row.unfolding == "online" else "")
            print(
                f"{name:<38}{1e3 * row.seconds:>9.1f}{row.relative_to_plain:>8.2f}{row.relative_to_floor:>8.2f}"
                f"{row.quality_mean:>8.3f}{row.quality_least:>9.3f}{row.product_gflop:>9.1f}{row.extra_memory:>8.1f}"
            )


def default_row(rows: Sequence[Row], network: str, spectrum: str, unfolding: str) -> Row | None:
    """Return the row of Tensorion's default method."""
    for row in rows:
        if (row.network, row.spectrum, row.unfolding, row.method) == (network, spectrum, unfolding, DEFAULT):
            return row
    return None
