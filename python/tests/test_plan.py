"""The plan of a distributed step."""

from math import prod

import pytest
from support import all_unfoldings, assert_error

import tensorion

RESNET50 = [
    (64, 3, 7, 7),
    *3 * [(64, 64, 3, 3)],
    *4 * [(128, 128, 3, 3)],
    *6 * [(256, 256, 3, 3)],
    *3 * [(512, 512, 3, 3)],
]
MIXED = [*RESNET50, (768, 3, 16, 16), (1, 197, 384), (5, 4, 3), (0, 3, 3), (7, 1, 1), *40 * [(768, 3072)]]


def cost(shape, modes):
    rows = prod(shape[mode] for mode in modes)
    cols = prod(shape) // rows
    return min(rows, cols) ** 2 * (rows + cols)


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 7, 8, 64, 1024])
@pytest.mark.parametrize("shapes", [RESNET50, MIXED, []], ids=["resnet50", "mixed", "none"])
def test_every_tensor_has_one_owner(shapes, world_size):
    plan = tensorion.plan(shapes, world_size)
    assert (len(plan.owners), len(plan.costs), len(plan.loads)) == (len(shapes), len(shapes), world_size)
    solved = [(index, rank) for members in plan.rounds for rank, some in enumerate(members) for index in some]
    assert sorted(solved) == list(enumerate(plan.owners))
    assert sum(plan.loads) == sum(plan.costs)
    largest = max(map(prod, shapes), default=0)
    for members in plan.rounds:
        assert len(members) == world_size
        for some in members:
            assert sum(prod(shapes[index]) for index in some) <= largest
    # Graham's bound for greedy scheduling.
    largest = max(plan.costs, default=0)
    assert max(plan.loads) <= sum(plan.costs) / world_size + (1 - 1 / world_size) * largest
    assert plan.speedup <= world_size
    assert plan.imbalance * plan.speedup == pytest.approx(world_size)
    # The plan is deterministic.
    assert tensorion.plan([list(shape) for shape in shapes], world_size) == plan


@pytest.mark.parametrize("unfolding", ["balanced", "online"])
def test_costs_of_balanced_unfolding(unfolding):
    for shape, predicted in zip(RESNET50, tensorion.plan(RESNET50, 2, unfolding=unfolding).costs, strict=True):
        modes = max(all_unfoldings(shape), key=lambda modes: _side(shape, modes))
        assert predicted == cost(shape, modes), shape


def test_costs_of_fixed_unfolding():
    assert tensorion.plan(RESNET50, 2, unfolding=(0,)).costs == tuple(cost(shape, (0,)) for shape in RESNET50)


def _side(shape, modes):
    rows = prod(shape[mode] for mode in modes)
    return min(rows, prod(shape) // rows)


def test_speedup_of_known_shapes():
    plan = tensorion.plan([(8, 8), (8, 8), (4, 4), (4, 4)], 2)
    assert plan.owners == (0, 1, 0, 1)
    assert plan.costs == (1024.0, 1024.0, 128.0, 128.0)
    assert (plan.speedup, plan.imbalance) == (2.0, 1.0)
    assert plan.rounds == (((0,), (1,)), ((2,), (3,)))
    # With more ranks than tensors, the largest tensor limits the speedup.
    assert tensorion.plan([(8, 8), (4, 4)], 1000).speedup == (1024 + 128) / 1024
    # Small tensors share a round.
    assert tensorion.plan([(8, 8), *4 * [(4, 4)]], 1).rounds == (((0,),), ((1, 2, 3, 4),))


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        (([(2, 3)], 0), {}, ValueError, "[tensorion.plan] world_size must be at least 1, got 0"),
        (([(2, 3)], 1.5), {}, TypeError, "[tensorion.plan] world_size must be an integer, got 1.5"),
        (([2, 3], 2), {}, TypeError, "[tensorion.plan] shapes must be a sequence of integers, got 2"),
        (([(2, 3)], 2), {"unfolding": "square"}, ValueError, "got 'square'"),
        (([(2, 3, 4)], 2), {"unfolding": (5,)}, ValueError, "mode must be in [0, 3), got 5"),
    ],
)
def test_bad_arguments_raise(arguments, options, error, message):
    assert_error(lambda: tensorion.plan(*arguments, **options), error, message)
