"""Bad input of the optimizer raises a clear error and changes nothing."""

import pytest
import torch
from support import assert_error, assert_same, copies, gaussian, parameters, set_gradients
from torch import nn
from torch_versions import HAS_GRAD_DTYPE

from tensorion import Tensorion

NAMES = ["kernel", "matrix", "bias"]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"lr": -1.0}, ValueError, "lr must be finite and not negative, got -1"),
        ({"lr": float("nan")}, ValueError, "lr must be finite and not negative, got nan"),
        ({"lr": float("inf")}, ValueError, "lr must be finite and not negative, got inf"),
        ({"lr": "fast"}, TypeError, "lr must be a number, got 'fast'"),
        ({"lr": None}, TypeError, "lr must be a number, got None"),
        ({"lr": torch.tensor(-0.5)}, ValueError, "lr must be finite and not negative, got -0.5"),
        ({"lr": torch.ones(2)}, ValueError, "lr must have one element, got shape [2]"),
        ({"momentum": 1.0}, ValueError, "momentum must be in [0, 1), got 1"),
        ({"momentum": -0.1}, ValueError, "momentum must be in [0, 1), got -0.1"),
        ({"momentum": "0.9"}, TypeError, "momentum must be a number, got '0.9'"),
        ({"nesterov": 1}, TypeError, "nesterov must be True or False, got 1"),
        ({"weight_decay": -0.1}, ValueError, "weight_decay must be finite and not negative, got -0.1"),
        ({"unfolding": "square"}, ValueError, "'balanced', 'online' or a set of modes, got 'square'"),
        ({"unfolding": 2}, TypeError, "unfolding must be 'balanced', 'online' or a sequence of modes, got 2"),
        ({"unfolding": (0.5,)}, TypeError, "or a sequence of modes, got (0.5,)"),
        ({"polar": "qr"}, ValueError, "'auto', 'halley', 'newton_schulz' or 'svd', got 'qr'"),
        ({"polar": 3}, TypeError, "polar must be a string, got 3"),
        ({"ns_coefficients": "moun"}, ValueError, "got 'moun'"),
        ({"ns_coefficients": (1.0, 2.0)}, ValueError, "3 numbers in each row, got 2 in (1.0, 2.0)"),
        ({"ns_steps": 0}, ValueError, "ns_steps must be at least 1, got 0"),
        ({"adjust_lr_fn": "rms"}, ValueError, "got 'rms'"),
        ({"min_order": 0}, ValueError, "min_order must be at least 1, got 0"),
        ({"min_order": "3"}, TypeError, "min_order must be an integer, got '3'"),
        ({"fallback": "lion"}, ValueError, "fallback must be 'adamw', 'sgd' or nothing, got 'lion'"),
        ({"fallback_lr": -2.0}, ValueError, "fallback_lr must be finite and not negative, got -2"),
        (
            {"fallback_weight_decay": -2.0},
            ValueError,
            "fallback_weight_decay must be finite and not negative",
        ),
        ({"fallback_betas": (0.9, 1.0)}, ValueError, "fallback_betas must be in [0, 1), got 1"),
        ({"fallback_betas": 0.9}, TypeError, "fallback_betas must be two numbers, got 0.9"),
        ({"fallback_betas": (0.9, "x")}, TypeError, "fallback_betas must be a number, got 'x'"),
        ({"fallback_eps": -1e-8}, ValueError, "fallback_eps must be finite and not negative"),
        ({"fallback_momentum": 1.5}, ValueError, "fallback_momentum must be in [0, 1), got 1.5"),
        ({"nonfinite": "warn"}, ValueError, "nonfinite must be 'error', 'skip' or 'ignore', got 'warn'"),
        ({"maximize": None}, TypeError, "maximize must be True or False, got None"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_bad_options_raise(options, error, message):
    assert_error(lambda: Tensorion(parameters(), **options), error, message)
    # The same option in a param group raises the same error.
    if not {"min_order", "fallback"} & options.keys():
        with pytest.raises(error):
            Tensorion([{"params": parameters(), **options}])
        optimizer = Tensorion(parameters())
        with pytest.raises(error):
            optimizer.add_param_group({"params": parameters(), **options})
        assert len(optimizer.param_groups) == 2


@pytest.mark.parametrize(
    ("key", "value", "error", "message"),
    [
        ("lr", float("nan"), ValueError, "lr must be finite, got nan"),
        ("lr", float("inf"), ValueError, "lr must be finite, got inf"),
        ("lr", torch.tensor(float("nan")), ValueError, "lr must be finite, got nan"),
        ("lr", "fast", TypeError, "lr must be a number, got 'fast'"),
        ("lr", None, TypeError, "lr must be a number, got None"),
        ("lr", torch.ones(2), ValueError, "lr must have one element, got shape [2]"),
        ("momentum", float("nan"), ValueError, "momentum must be finite, got nan"),
        ("momentum", "0.9", TypeError, "momentum must be a number, got '0.9'"),
        ("weight_decay", -float("inf"), ValueError, "weight_decay must be finite, got -inf"),
        ("unfolding", "square", ValueError, "'balanced', 'online' or a set of modes, got 'square'"),
        ("unfolding", 2, TypeError, "unfolding must be 'balanced', 'online' or a sequence of modes, got 2"),
        ("nonfinite", "warn", ValueError, "nonfinite must be 'error', 'skip' or 'ignore', got 'warn'"),
    ],
    ids=str,
)
def test_options_changed_later_are_checked_before_a_step(key, value, error, message):
    params = parameters()
    set_gradients(params, 1)
    before = copies(params)
    optimizer = Tensorion(params)
    optimizer.param_groups[0][key] = value
    assert_error(optimizer.step, error, message)
    assert_same(params, before)
    assert not optimizer.state


@pytest.mark.parametrize(
    ("key", "value"), [("lr", -4e-18), ("lr", -1.0), ("momentum", 1.0), ("momentum", -0.1), ("weight_decay", -1e-20)]
)
def test_step_accepts_values_that_schedulers_write(key, value):
    # As in torch's optimizers, ranges are checked only if the user gives an option.
    params = parameters()
    optimizer = Tensorion(params, fallback="sgd")
    for k in range(2):
        set_gradients(params, k)
        optimizer.step()
        for group in optimizer.param_groups:
            group[key] = value
    assert all(param.isfinite().all() for param in params)
    # A checkpoint with this value can be loaded.
    Tensorion(parameters(), fallback="sgd").load_state_dict(optimizer.state_dict())


def test_options_are_keyword_only():
    with pytest.raises(TypeError):
        Tensorion(parameters(), 1e-3, 0.9)
    with pytest.raises(TypeError, match="momentums"):
        Tensorion(parameters(), momentums=0.9)


WHOLE = gaussian((6, 3, 4), 1)


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        (lambda: [], ValueError, "empty parameter list"),
        (lambda: [{"params": []}, {"params": []}], ValueError, "expected at least one parameter, got none"),
        (lambda: parameters()[0], TypeError, "an iterable of Tensors or dicts"),
        (lambda: [parameters()[0], 3.0], TypeError, "expected Tensors, got float as parameter 1 of group 0"),
        (lambda: [{"params": {parameters()[0]}}], TypeError, "expected an ordered collection of parameters, got a set"),
        (lambda: [{"lr": 0.1}], ValueError, "expected 'params' in group 0, got only ['lr']"),
        (lambda: [{"params": parameters()}, parameters()[0]], TypeError, "must be a dict, got Parameter"),
        (
            lambda: [("kernel", parameters()[0]), parameters()[1]],
            ValueError,
            "expected names for all parameters of group 0 or for none of them, got 1 names for 2 parameters",
        ),
        (
            lambda: [("c", torch.zeros(2, 3, 4, dtype=torch.complex64))],
            TypeError,
            "expected real floating-point parameters, got ComplexFloat for parameter 'c', shape [2, 3, 4]",
        ),
        (
            lambda: [torch.zeros(2, 3, dtype=torch.long)],
            TypeError,
            "got Long for parameter 0 of group 0, shape [2, 3]",
        ),
        (
            lambda: [torch.zeros(3), torch.eye(3).to_sparse()],
            ValueError,
            "expected dense parameters, got Sparse for parameter 1 of group 0, shape [3, 3]",
        ),
        (lambda: [torch.zeros(3, requires_grad=True) * 2], ValueError, "non-leaf"),
        (
            lambda: [("stretched", torch.zeros(1, 3, 4).expand(2, 3, 4))],
            ValueError,
            "several elements of parameter 'stretched', shape [2, 3, 4] share one memory location",
        ),
        (
            lambda: [("a", WHOLE[:4]), ("b", WHOLE[3:])],
            ValueError,
            "parameter 'a', shape [4, 3, 4] and parameter 'b', shape [3, 3, 4] share memory",
        ),
        (
            lambda: [WHOLE, WHOLE.view(18, 4)],
            ValueError,
            "parameter 0 of group 0, shape [6, 3, 4] and parameter 1 of group 0, shape [18, 4] share memory",
        ),
        (
            lambda: [{"params": [WHOLE]}, {"params": [WHOLE]}],
            ValueError,
            "parameter 0 of group 1, shape [6, 3, 4] and the optimizer's parameter 0 of group 0, "
            "shape [6, 3, 4] share memory",
        ),
        (lambda: nn.LazyConv2d(4, 3).parameters(), ValueError, "has no shape yet: run its lazy module once"),
        (
            lambda: [{"params": parameters(), "unfolding": (4,)}],
            ValueError,
            "unfolding (4,) does not fit parameter 0 of group 0, shape [6, 4, 3, 3]: "
            "[tensorion.unfold] mode must be in [0, 4), got 4",
        ),
        (
            lambda: [{"params": [("k", parameters()[0])], "unfolding": (0, 1, 2, 3)}],
            ValueError,
            "unfolding (0, 1, 2, 3) does not fit parameter 'k', shape [6, 4, 3, 3]",
        ),
        (
            lambda: [{"params": [torch.ones(())], "algorithm": "tensorion", "unfolding": "online"}],
            ValueError,
            "unfolding online does not fit parameter 0 of group 0, shape []",
        ),
        (
            lambda: [{"params": parameters(), "fallback": None}],
            ValueError,
            "parameter 1 of group 0, shape [5, 7] needs a fallback (order < 3), got none",
        ),
        (
            lambda: [{"params": parameters(), "algorithm": "muon"}],
            ValueError,
            "algorithm must be 'tensorion', 'adamw'",
        ),
        (
            lambda: [{"params": parameters(), "algorithm": None}],
            TypeError,
            "algorithm must be a string, got None",
        ),
        (
            lambda: [{"params": zip(NAMES, parameters(), strict=True)}, {"params": [torch.ones(3)]}],
            ValueError,
            "with/without names",
        ),
    ],
)
def test_bad_parameters_raise(params, error, message):
    assert_error(lambda: Tensorion(params()), error, message, prefix="")


@pytest.mark.parametrize(
    "params",
    [
        [WHOLE[:3], WHOLE[3:]],
        [WHOLE[..., ::2], WHOLE[..., 1::2]],  # The address ranges overlap, but the elements do not.
        [torch.zeros(0, 3), torch.zeros(0, 3), torch.zeros(3)],
    ],
    ids=["halves", "interleaved", "empty"],
)
def test_disjoint_views_of_one_tensor_are_accepted(params):
    optimizer = Tensorion(params)
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(params)


@pytest.mark.parametrize(
    "bad",
    [
        lambda params: torch.ones(2, requires_grad=True) * 2,
        lambda params: torch.ones(2, dtype=torch.long),
        lambda params: params[2],
    ],
    ids=["non-leaf", "integers", "twice"],
)
def test_bad_group_does_not_change_the_optimizer(bad):
    params = parameters()
    optimizer = Tensorion(params)
    kernel = nn.Parameter(gaussian((3, 4, 5), 1))
    with pytest.raises((TypeError, ValueError)):
        optimizer.add_param_group({"params": [kernel, bad(params)]})
    assert len(optimizer.param_groups) == 2
    set_gradients([*params, kernel], 1)
    optimizer.step()
    assert kernel not in optimizer.state
    # A second attempt with a valid group works.
    optimizer.add_param_group({"params": [kernel, nn.Parameter(torch.ones(2))]})
    assert len(optimizer.param_groups) == 4


def test_duplicates_warn_and_are_updated_once():
    params, twins = parameters(), parameters()
    with pytest.warns(UserWarning, match="duplicate parameters") as caught:
        optimizer = Tensorion([*params, params[0], params[2]])
    assert caught[0].filename == __file__
    set_gradients(params, 1)
    set_gradients(twins, 1)
    optimizer.step()
    Tensorion(twins).step()
    assert_same(params, twins)


def test_bad_gradients_raise_and_change_nothing():
    params = parameters()
    optimizer = Tensorion(zip(NAMES, params, strict=True))
    set_gradients(params, 1)
    before = copies(params)
    params[2].grad = torch.ones(8).to_sparse()
    with pytest.raises(ValueError, match=r"dense gradient, got torch.sparse_coo for parameter 'bias', shape \[8\]"):
        optimizer.step()
    if HAS_GRAD_DTYPE:
        params[2].grad = None
        params[2].grad_dtype = None
        params[2].grad = torch.ones(8, dtype=torch.float64)
        message = r"gradient that matches parameter 'bias', shape \[8\] \(torch.float32 on cpu\), got .*, torch.float64"
        with pytest.raises(ValueError, match=message):
            optimizer.step()
    assert_same(params, before)
    assert not optimizer.state
