"""The performance goals of the project: ratios with their targets and the measured values.

peers.py collects them. Some come from its tables, the others from training.py, processes.py and steps timed here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import processes
import torch
import training
from baselines import LR, ours
from measure import Ratio, paired_ratio, take_turns
from step_table import Row, default_row, make_params

import tensorion


@dataclass(frozen=True)
class Target:
    """The goal for a ratio: a maximum, and a more ambitious aim."""

    name: str
    most: float
    aim: float


TARGETS = {
    "balanced": Target("balanced / plain", 0.28, 0.24),
    "floor": Target("balanced / floor", 3.0, 2.5),
    "flattened": Target("flattened / plain", 0.19, 0.15),
    "online": Target("online / balanced", 1.7, 1.4),
    "online_gaussian": Target("online / balanced, Gaussian momenta", 2.2, 1.7),
    "online_interval": Target("online with online_interval=10 / balanced", 1.12, 1.05),
    "online_memory": Target("memory of online, in unfoldings", 9, 6),
    "vit": Target("ViT-B/16 patch embedding / plain", 0.33, 0.28),
    "swin": Target("Swin-T patch embedding / plain", 1.0, 0.7),
    "training": Target("training step / SGD", 1.15, 1.10),
    "training_flattened": Target("training step, flattened / SGD", 1.06, 1.03),
    "processes": Target("two processes / one", 0.60, 0.55),
}
#: Measurements in addition to the tables.
EXTRA = ("online", "training", "processes")


@dataclass
class Result:
    """A target with the measured value. `low` and `high` are quartiles over the rounds, if there are several."""

    key: str
    name: str
    measured: float
    low: float | None
    high: float | None
    at_most: float
    aim: float
    reached: bool


def result(key: str, found: Ratio | float) -> Result:
    target = TARGETS[key]
    ratio = found if isinstance(found, Ratio) else None
    value = ratio.median if ratio else float(found)
    low, high = (ratio.low, ratio.high) if ratio else (None, None)
    return Result(key, target.name, value, low, high, target.most, target.aim, value <= target.most)


def from_rows(rows: Sequence[Row]) -> list[Result]:
    """Return the ratios that are part of the tables."""
    wanted: list[tuple[str, tuple[str, str, str], Callable[[Row], float]]] = [
        ("balanced", ("resnet18", "trained", "balanced"), lambda row: row.relative_to_plain),
        ("floor", ("resnet18", "trained", "balanced"), lambda row: row.relative_to_floor),
        ("flattened", ("resnet18", "trained", "flattened"), lambda row: row.relative_to_plain),
        ("online_memory", ("resnet18", "trained", "online"), lambda row: row.extra_memory),
        ("vit", ("vit_base_patch_embedding", "power_law", "balanced"), lambda row: row.relative_to_plain),
        ("swin", ("swin_tiny_patch_embedding", "power_law", "balanced"), lambda row: row.relative_to_plain),
    ]
    found = []
    for key, place, value in wanted:
        row = default_row(rows, *place)
        if row is not None:
            found.append(result(key, value(row)))
    return found


def online(spectrum: str, rounds: int) -> dict[str, Ratio]:
    """Compare a step of "online" with a balanced one. For trained momenta, also use `online_interval=10`."""
    balanced = ours(make_params("resnet18", spectrum), "balanced")
    calls = {"balanced": balanced, "online": ours(make_params("resnet18", spectrum), "online")}
    if spectrum == "trained":
        interval = ours(make_params("resnet18", spectrum), "online", online_interval=10)

        def cycle() -> None:
            for _ in range(10):
                interval()

        calls["interval"] = cycle
    times = take_turns(calls, rounds)
    ratios = {"online": paired_ratio(times["online"], times["balanced"])}
    if "interval" in times:
        ratios["interval"] = paired_ratio([seconds / 10 for seconds in times["interval"]], times["balanced"])
    return ratios


def measured(rows: Sequence[Row], rounds: int, extra: Sequence[str] = EXTRA) -> tuple[list[Result], dict]:
    """Return all ratios in the order of TARGETS, and the times of training steps and of processes."""
    found, details = from_rows(rows), {}
    if "online" in extra:
        trained = online("trained", rounds)
        found += [result("online", trained["online"]), result("online_interval", trained["interval"])]
        found.append(result("online_gaussian", online("gaussian", rounds)["online"]))
    if "training" in extra:
        ratios, details["training"] = training.measure(
            2 * rounds + 1
        )  # forward and backward passes vary more than updates
        found.append(result("training", ratios["Tensorion"]))
        found.append(result("training_flattened", ratios["Tensorion, flattened"]))
    if "processes" in extra:
        tensorion.release_scratch()
        ratio, details["processes"] = processes.measure(rounds)
        details["processes"]["planned"] = processes.planned()
        found.append(result("processes", ratio))
    order = list(TARGETS)
    return sorted(found, key=lambda one: order.index(one.key)), details


def all_but_polar(spectrum: str, rounds: int) -> float:
    """Return the share of a balanced step of ResNet-18 that is not spent on polar factors.

    It consists of the update of the momentum and the copies to the unfoldings and back, by the functions of the step.
    Here, the copies to the unfoldings include an addition that a step does not perform.
    """
    params = make_params("resnet18", spectrum)
    grads, buffers = [param.grad for param in params], [torch.zeros_like(param) for param in params]
    modes = [tensorion.balanced_unfolding(param.shape) for param in params]
    matrices = [tensorion.unfold(grad, m).contiguous() for grad, m in zip(grads, modes, strict=True)]
    folded = [tensorion.fold(a, m, p.shape) for a, m, p in zip(matrices, modes, params, strict=True)]
    ops = torch.ops.tensorion

    @torch.no_grad()
    def rest() -> None:
        ops.add_gradients_(buffers, grads, momentum=0.95, maximize=False)
        ops.apply_directions_(folded, buffers, lr=LR, weight_decay=0.0)
        ops.apply_directions_(params, folded, lr=LR, weight_decay=0.0)

    times = take_turns({"rest": rest, "step": ours(make_params("resnet18", spectrum), "balanced")}, rounds)
    return paired_ratio(times["rest"], times["step"]).median


def print_results(results: Sequence[Result]) -> None:
    print(f"\n{'ratio':<44}{'measured':>10}{'quartiles':>16}{'at most':>9}{'aim':>7}")
    for one in results:
        quartiles = "" if one.low is None else f"{one.low:.2f} to {one.high:.2f}"
        mark = "" if one.reached else "  not reached"
        print(f"{one.name:<44}{one.measured:>10.3f}{quartiles:>16}{one.at_most:>9}{one.aim:>7}{mark}")
