"""Bad input to the Python package, a table: the error's type, words that name the culprit, and nothing changed.

Options and parameters of the constructor have more cases in test_optimizer_errors.py, the program in
test_bad_input_program.py, C++ in tests/bad_input_test.cpp.
"""

import copy
import math

import pytest
import torch
from support import gaussian
from torch import nn

import tensorion
from tensorion import Tensorion

NAMES = ["kernel", "matrix", "bias"]
SHAPES = [(3, 4, 5), (4, 6), (5,)]
BIG = 2**70
LINEAR = nn.Linear(2, 2)  # made once: that draws random numbers


class World:
    """An optimizer after a step, and a tensor: what bad input must leave alone."""

    def __init__(self):
        self.params = [nn.Parameter(gaussian(shape, i)) for i, shape in enumerate(SHAPES)]
        self.optimizer = Tensorion(zip(NAMES, self.params, strict=True), lr=0.01)
        for i, param in enumerate(self.params):
            param.grad = gaussian(param.shape, 10 + i)
        self.optimizer.step()
        self.x = gaussian((3, 4, 5), 20)
        self.matrix = gaussian((4, 6), 21)
        self.kernel = gaussian((2, 3, 3, 3), 22)
        self.state = copy.deepcopy(self.optimizer.state_dict())

    def snapshot(self):
        tensors = [*self.params, *(param.grad for param in self.params), self.x, self.matrix, self.kernel]
        state = self.optimizer.state_dict()
        tensors += [value for entry in state["state"].values() for value in entry.values()]
        groups = [{k: v for k, v in group.items() if k != "params"} for group in self.optimizer.param_groups]
        members = [[id(param) for param in group["params"]] for group in self.optimizer.param_groups]
        generator = torch.get_rng_state()
        return [as_bytes(tensor) for tensor in [*tensors, generator]], copy.deepcopy(groups), members


def as_bytes(tensor):
    return tensor.detach().clone().reshape(-1).view(torch.uint8).numpy().tobytes()


def make(**options):
    """The optimizer with these options."""
    return lambda world: Tensorion(world.params, **options)


def given(params):
    """The optimizer of these parameters."""
    return lambda world: Tensorion(params(world))


def option(key, value, group=0):
    """A step after an option was changed by hand; it is put back."""

    def call(world):
        values = world.optimizer.param_groups[group]
        before = values[key]
        values.pop(key) if value is None else values.update({key: value})
        try:
            world.optimizer.step()
        finally:
            values[key] = before

    return call


def gradient(index, make_gradient):
    """A step with another gradient; the old one is put back."""

    def call(world):
        param = world.params[index]
        before = param.grad
        param.grad_dtype = None
        param.grad = make_gradient(param)
        try:
            world.optimizer.step()
        finally:
            param.grad = before

    return call


def loaded(change):
    """The optimizer's own state, changed."""

    def call(world):
        state = copy.deepcopy(world.state)
        changed = change(state)
        world.optimizer.load_state_dict(state if changed is None else changed)

    return call


def entry(index, key, value):
    """A state in which one tensor was replaced, by `value` of the old one."""

    def change(state):
        state["state"][index][key] = value(state["state"][index][key])

    return loaded(change)


def group_entry(key, value, group=0):
    def change(state):
        state["param_groups"][group][key] = value

    return loaded(change)


def with_nan(x):
    x = x.clone()
    x.view(-1)[1] = math.nan
    return x


def raising():
    raise KeyError("the closure's own")


def second_group_does_not_fit(world):
    """The first group is right, the second one has an unfolding that its tensor has not."""
    params = [nn.Parameter(world.x.clone()), nn.Parameter(world.x.clone())]
    optimizer = Tensorion([{"params": params[:1]}, {"params": params[1:]}])
    for param in params:
        param.grad = torch.ones_like(param)
    optimizer.param_groups[1]["unfolding"] = (0, 7)
    try:
        optimizer.step()
    finally:
        assert all(torch.equal(param, world.x) for param in params)
        assert not optimizer.state


CASES = {
    # ---- Options of the constructor
    "lr is a bool": (make(lr=True), TypeError, "lr must be a number, got True"),
    "lr is complex": (make(lr=1j), TypeError, "lr must be a number, got 1j"),
    "lr has 400 digits": (make(lr=10**400), ValueError, "lr must be finite, got 1000"),
    "lr is a complex tensor": (make(lr=torch.tensor(1j)), TypeError, "lr must be a real number, got tensor(0.+1.j)"),
    "lr is a bool tensor": (make(lr=torch.tensor(True)), TypeError, "lr must be a real number, got tensor(True)"),
    "lr is a tensor without a value": (
        make(lr=torch.empty((), device="meta")),
        TypeError,
        "lr must be a number, or a tensor that holds one, got tensor(..., device='meta'",
    ),
    "lr is a NaN tensor": (make(lr=torch.tensor(math.nan)), ValueError, "lr must be finite and not negative, got nan"),
    "momentum is NaN": (make(momentum=math.nan), ValueError, "momentum must be in [0, 1), got nan"),
    "momentum is a tensor": (make(momentum=torch.tensor(0.9)), TypeError, "momentum must be a number, got tensor(0.9"),
    "weight_decay is infinite": (
        make(weight_decay=math.inf),
        ValueError,
        "weight_decay must be finite and not negative, got inf",
    ),
    "weight_decay is None": (make(weight_decay=None), TypeError, "weight_decay must be a number, got None"),
    "unfolding names no mode": (
        make(unfolding=()),
        ValueError,
        "unfolding () does not fit parameter 0 of group 0, shape [3, 4, 5]",
    ),
    "unfolding names a mode twice": (make(unfolding=(0, 0)), ValueError, "modes must be distinct, got [0, 0]"),
    "unfolding is negative": (make(unfolding=(-1,)), ValueError, "expected modes such as '(0, 2)', got '(-1,)'"),
    "unfolding is half a tuple": (make(unfolding="(0, 2"), ValueError, "expected modes such as '(0, 2)', got '(0, 2'"),
    "unfolding is a bracket": (make(unfolding="("), ValueError, "expected modes such as '(0, 2)', got '('"),
    "unfolding has no comma": (make(unfolding="(0 2)"), ValueError, "expected modes such as '(0, 2)', got '(0 2)'"),
    "unfolding has 70 bits": (make(unfolding=(BIG,)), ValueError, f"expected modes such as '(0, 2)', got '({BIG},)'"),
    # Once matched by a regular expression, which recursed for every mode.
    "unfolding has a million modes": (
        make(unfolding=(0,) * 1_000_000),
        ValueError,
        "modes must be distinct, got [0, 0",
    ),
    "unfolding is None": (make(unfolding=None), TypeError, "or a sequence of modes, got None"),
    "unfolding is bytes": (make(unfolding=b"online"), TypeError, "or a sequence of modes, got b'online'"),
    "unfolding is of bools": (make(unfolding=(True,)), TypeError, "or a sequence of modes, got (True,)"),
    "ns_steps has 70 bits": (make(ns_steps=BIG), ValueError, f"ns_steps must have at most 63 bits, got {BIG}"),
    "ns_steps is a billion": (make(ns_steps=10**9), ValueError, "ns_steps must be at most 1000, got 1000000000"),
    "ns_steps is a fraction": (make(ns_steps=1.5), TypeError, "ns_steps must be an integer, got 1.5"),
    "ns_steps is a bool": (make(ns_steps=True), TypeError, "ns_steps must be an integer, got True"),
    "ns_coefficients is empty": (
        make(ns_coefficients=[]),
        ValueError,
        "must hold at least one row (a, b, c), got none",
    ),
    "ns_coefficients has a NaN": (make(ns_coefficients=(1.0, math.nan, 0.0)), ValueError, "must be finite, got nan"),
    "ns_coefficients has an empty row": (make(ns_coefficients=[[]]), ValueError, "3 numbers in each row, got 0 in ()"),
    "ns_coefficients is None": (make(ns_coefficients=None), TypeError, "a sequence of such rows, got None"),
    "ns_coefficients is a tensor": (
        make(ns_coefficients=torch.ones(3)),
        TypeError,
        "such rows, got tensor([1., 1., 1.])",
    ),
    "min_order is negative": (make(min_order=-1), ValueError, "min_order must be at least 1, got -1"),
    "min_order has 70 bits": (make(min_order=BIG), ValueError, f"min_order must have at most 63 bits, got {BIG}"),
    "fallback is a number": (make(fallback=3), TypeError, "fallback must be a string, got 3"),
    "three betas": (
        make(fallback_betas=(0.9, 0.9, 0.9)),
        TypeError,
        "fallback_betas must be two numbers, got (0.9, 0.9, 0.9)",
    ),
    "beta is NaN": (make(fallback_betas=(math.nan, 0.9)), ValueError, "fallback_betas must be in [0, 1), got nan"),
    "eps is NaN": (make(fallback_eps=math.nan), ValueError, "fallback_eps must be finite and not negative, got nan"),
    "process_group is a number": (
        make(process_group=3),
        TypeError,
        "process_group must be a ProcessGroup or None, got 3",
    ),
    # ---- Parameters
    "params is None": (
        given(lambda world: None),
        TypeError,
        "params must be an iterable of Tensors or dicts, got NoneType",
    ),
    "params is a number": (
        given(lambda world: 3),
        TypeError,
        "params must be an iterable of Tensors or dicts, got int",
    ),
    "params is a module": (
        given(lambda world: LINEAR),
        TypeError,
        "params must be an iterable of Tensors or dicts, got Linear: its .parameters() are",
    ),
    "params is a path": (
        given(lambda world: "weights.pt"),
        TypeError,
        "expected Tensors, got str as parameter 0 of group 0",
    ),
    "params is a state dict": (
        given(lambda world: LINEAR.state_dict()),
        TypeError,
        "expected Tensors, got str as parameter 0 of group 0",
    ),
    "params of a group is a number": (
        given(lambda world: [{"params": 3}]),
        TypeError,
        "expected Tensors in group 0, got int",
    ),
    "a triple": (
        given(lambda world: [("a", world.params[0], 3)]),
        TypeError,
        "expected pairs of a name and a Tensor in group 0, got a tuple of (str, Parameter, int)",
    ),
    "a name that is a number": (
        given(lambda world: [(1, world.params[0])]),
        TypeError,
        "got a tuple of (int, Parameter)",
    ),
    "a name of nothing": (
        given(lambda world: [("a", None)]),
        TypeError,
        "expected Tensors, got NoneType as parameter 0",
    ),
    "parameter of int8": (
        given(lambda world: [world.x.to(torch.int8)]),
        TypeError,
        "got Char for parameter 0 of group 0, shape [3, 4, 5]",
    ),
    "parameter of float8": (
        given(lambda world: [world.x.to(torch.float8_e4m3fn)]),
        TypeError,
        "expected real floating-point parameters, got Float8_e4m3fn for parameter 0 of group 0, shape [3, 4, 5]",
    ),
    "nested parameter": (
        given(lambda world: [torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)]),
        ValueError,
        "expected dense parameters, got a nested tensor as parameter 0 of group 0",
    ),
    "parameter of 25 modes": (
        given(lambda world: [torch.zeros(1).expand([2] * 25).contiguous()]),
        ValueError,
        "at most 24 modes of size other than 1 are supported, got 25",
    ),
    "lr of a group is text": (
        given(lambda world: [{"params": world.params, "lr": "0.1"}]),
        TypeError,
        "lr must be a number, got '0.1'",
    ),
    "a second group is not one": (
        lambda world: world.optimizer.add_param_group([nn.Parameter(torch.ones(2))]),
        TypeError,
        "a param group must be a dict, got list",
    ),
    "a second group shares memory": (
        lambda world: world.optimizer.add_param_group({"params": [world.params[0].data[:1]]}),
        ValueError,
        "shape [1, 4, 5] and the optimizer's parameter 'kernel', shape [3, 4, 5] share memory",
    ),
    # ---- A step
    "closure is a number": (lambda world: world.optimizer.step(3), TypeError, "closure must be callable, got 3"),
    "closure raises": (lambda world: world.optimizer.step(raising), KeyError, "the closure's own"),
    "lr was changed to text": (option("lr", "0.1"), TypeError, "lr must be a number, got '0.1'"),
    "momentum was changed to NaN": (option("momentum", math.nan), ValueError, "momentum must be finite, got nan"),
    "algorithm was changed": (option("algorithm", "muon"), ValueError, "'adamw' or 'sgd', got 'muon'"),
    "algorithm was taken away": (option("algorithm", None), ValueError, "group 0 has no 'algorithm'"),
    "betas were changed": (
        option("betas", (0.9, math.nan), group=1),
        ValueError,
        "fallback_betas must be finite, got nan",
    ),
    "unfolding was changed": (
        option("unfolding", (3,)),
        ValueError,
        "unfolding (3,) does not fit parameter 'kernel', shape [3, 4, 5]: "
        "[tensorion.unfold] mode must be in [0, 3), got 3",
    ),
    # Once, the first group had been updated by then.
    "unfolding of the second group was changed": (
        second_group_does_not_fit,
        ValueError,
        "unfolding (0, 7) does not fit parameter 0 of group 1, shape [3, 4, 5]",
    ),
    "gradient is sparse": (
        gradient(1, lambda param: torch.eye(4, 6).to_sparse()),
        ValueError,
        "expected a dense gradient, got torch.sparse_coo for parameter 'matrix', shape [4, 6]",
    ),
    "gradient is complex": (
        gradient(0, lambda param: param.detach() * 1j),
        ValueError,
        "expected a gradient like parameter 'kernel', shape [3, 4, 5] (torch.float32 on cpu), got shape [3, 4, 5], "
        "torch.complex64",
    ),
    "gradient is double": (
        gradient(2, lambda param: param.detach().double()),
        ValueError,
        "parameter 'bias', shape [5] (torch.float32",
    ),
    "gradient is half": (
        gradient(2, lambda param: param.detach().half()),
        ValueError,
        "got shape [5], torch.float16 on cpu",
    ),
    "gradient has a NaN": (
        gradient(1, lambda param: with_nan(param.detach())),
        ValueError,
        "the gradient of parameter 'matrix', shape [4, 6] is not finite; nothing was changed",
    ),
    "gradient is infinite": (
        gradient(0, lambda param: param.detach() * math.inf),
        ValueError,
        "the gradient of parameter 'kernel', shape [3, 4, 5] is not finite; nothing was changed",
    ),
    # ---- State dicts
    "state is None": (
        lambda world: world.optimizer.load_state_dict(None),
        TypeError,
        "state_dict must be a dict, got NoneType",
    ),
    "state is a list": (loaded(lambda state: [state]), TypeError, "state_dict must be a dict, got list"),
    "state is empty": (
        loaded(lambda state: {}),
        ValueError,
        "expected a state dict with 'state' and 'param_groups', got one with []",
    ),
    "state is a model's": (
        loaded(lambda state: LINEAR.state_dict()),
        ValueError,
        "expected a state dict with 'state' and 'param_groups', got one with ['bias', 'weight']",
    ),
    "state of Muon": (
        loaded(lambda state: torch.optim.Muon([nn.Parameter(torch.ones(4, 6))]).state_dict()),
        ValueError,
        "expected the state of 2 param groups, got 1",
    ),
    "state of AdamW": (
        loaded(
            lambda state: torch.optim.AdamW(
                [{"params": [torch.ones(3, 4, 5)]}, {"params": [torch.ones(4, 6), torch.ones(5)]}]
            ).state_dict()
        ),
        ValueError,
        "expected the state of algorithm 'tensorion' for parameter 'kernel', shape [3, 4, 5], got 'None'",
    ),
    "'state' is text": (
        loaded(lambda state: {**state, "state": "x"}),
        ValueError,
        "expected 'state' to be a dict, got str",
    ),
    "'param_groups' is a number": (
        loaded(lambda state: {**state, "param_groups": 3}),
        ValueError,
        "expected 'param_groups' to be a list, got int",
    ),
    "a saved group is a number": (
        loaded(lambda state: {**state, "param_groups": [3, state["param_groups"][1]]}),
        ValueError,
        "expected saved group 0 to be a dict with a list 'params'",
    ),
    "a saved group's params are None": (
        group_entry("params", None),
        ValueError,
        "expected saved group 0 to be a dict with a list 'params'",
    ),
    "a saved group's params are lists": (
        group_entry("params", [[]], group=1),
        ValueError,
        "expected 'params' of saved group 1 to be numbers or names, got []",
    ),
    "a saved group has more parameters": (
        group_entry("params", [0, 1, 2]),
        ValueError,
        "expected the state of 1 parameters in group 0, got 3",
    ),
    "a parameter's state is a number": (
        loaded(lambda state: {**state, "state": {**state["state"], 0: 3}}),
        ValueError,
        "expected the state of parameter 'kernel', shape [3, 4, 5] to be a dict, got 3",
    ),
    "momentum is a list": (
        entry(0, "momentum_buffer", lambda m: m.tolist()),
        ValueError,
        "expected a momentum_buffer of shape [3, 4, 5] for parameter 'kernel', shape [3, 4, 5], got a list",
    ),
    "momentum is of integers": (
        entry(0, "momentum_buffer", lambda m: m.long()),
        ValueError,
        "real floating-point momentum_buffer for parameter 'kernel', shape [3, 4, 5], got torch.int64",
    ),
    "momentum is complex": (
        entry(0, "momentum_buffer", lambda m: m * 1j),
        ValueError,
        "'kernel', shape [3, 4, 5], got torch.complex64",
    ),
    "momentum is sparse": (
        entry(0, "momentum_buffer", lambda m: m.to_sparse()),
        ValueError,
        "got torch.float32, torch.sparse_coo",
    ),
    "momentum is on the meta device": (
        entry(0, "momentum_buffer", lambda m: m.to("meta")),
        ValueError,
        "torch.strided on meta",
    ),
    "momentum has a NaN": (
        entry(0, "momentum_buffer", with_nan),
        ValueError,
        "expected a finite momentum_buffer for parameter 'kernel', shape [3, 4, 5], got nan",
    ),
    "momentum is transposed": (entry(0, "momentum_buffer", lambda m: m.mT), ValueError, "got [3, 5, 4]"),
    "step is a number": (
        entry(1, "step", lambda step: 3),
        ValueError,
        "expected a step of shape [] for parameter 'matrix'",
    ),
    "step is negative": (
        entry(1, "step", lambda step: -step),
        ValueError,
        "expected a step that is not negative for parameter 'matrix', shape [4, 6], got -1",
    ),
    "step is NaN": (
        entry(2, "step", lambda step: step * math.nan),
        ValueError,
        "expected a finite step for parameter 'bias'",
    ),
    "exp_avg is infinite": (
        entry(2, "exp_avg", lambda x: x * math.inf),
        ValueError,
        "expected a finite exp_avg for parameter 'bias'",
    ),
    "exp_avg_sq is negative": (
        entry(1, "exp_avg_sq", lambda x: -x),
        ValueError,
        "expected a exp_avg_sq that is not negative for parameter 'matrix', shape [4, 6], got -",
    ),
    "saved lr is text": (group_entry("lr", "x"), TypeError, "lr must be a number, got 'x'"),
    "saved unfolding does not fit": (
        group_entry("unfolding", (7,)),
        ValueError,
        "unfolding (7,) does not fit parameter 'kernel', shape [3, 4, 5]",
    ),
    "saved count of skipped steps is text": (
        loaded(lambda state: {**state, "skipped_steps": "x"}),
        ValueError,
        "expected skipped_steps to be a count, got 'x'",
    ),
    # ---- Functions
    "lmo of an array": (
        lambda w: tensorion.lmo(w.x.numpy()),
        TypeError,
        "[tensorion.lmo] x must be a Tensor, got ndarray",
    ),
    "lmo of a sparse tensor": (
        lambda w: tensorion.lmo(w.x.to_sparse()),
        ValueError,
        "[tensorion.lmo] expected a dense tensor, got Sparse",
    ),
    "lmo of bools": (
        lambda w: tensorion.lmo(w.x > 0),
        TypeError,
        "[tensorion.lmo] expected a real floating-point tensor, got Bool",
    ),
    "lmo of float8": (lambda w: tensorion.lmo(w.x.to(torch.float8_e5m2)), TypeError, "got Float8_e5m2"),
    "lmo of 25 modes": (lambda w: tensorion.lmo(torch.zeros(1).expand([2] * 25)), ValueError, "at most 24 modes"),
    "lmo of a NaN": (lambda w: tensorion.lmo(with_nan(w.x)), ValueError, "got one that contains nan"),
    "polar of a vector": (lambda w: tensorion.polar(w.x[0, 0]), ValueError, "expected (..., m, n), got shape [5]"),
    "polar of a sparse matrix": (
        lambda w: tensorion.polar(w.matrix.to_sparse()),
        ValueError,
        "[tensorion.polar] expected a dense tensor, got Sparse",
    ),
    "polar of rows": (
        lambda w: tensorion.polar(w.matrix.to_sparse_csr()),
        ValueError,
        "expected a dense tensor, got SparseCsr",
    ),
    "polar of float8": (lambda w: tensorion.polar(w.matrix.to(torch.float8_e4m3fn)), TypeError, "got Float8_e4m3fn"),
    "polar in a billion steps": (
        lambda w: tensorion.polar(w.matrix, "newton_schulz", ns_steps=10**9),
        ValueError,
        "ns_steps must be at most 1000, got 1000000000",
    ),
    "unfoldings of text": (
        lambda w: tensorion.unfoldings("345"),
        TypeError,
        "shape must be a sequence of integers, got '345'",
    ),
    "unfoldings of a negative size": (
        lambda w: tensorion.unfoldings((-1, 2, 3)),
        ValueError,
        "sizes must not be negative, got shape [-1, 2, 3]",
    ),
    "unfoldings of 2^80 elements": (
        lambda w: tensorion.unfoldings((2**40, 2**40)),
        ValueError,
        "a tensor must have fewer than 2^63 elements, got shape [1099511627776, 1099511627776]",
    ),
    "unfoldings of a size of 70 bits": (
        lambda w: tensorion.unfoldings((BIG, 2)),
        ValueError,
        f"shape must have at most 63 bits, got {BIG}",
    ),
    "balanced unfolding of a vector": (lambda w: tensorion.balanced_unfolding((3, 1)), ValueError, "got shape [3, 1]"),
    "unfold by a number": (
        lambda w: tensorion.unfold(w.x, 0),
        TypeError,
        "modes must be a sequence of integers, got 0",
    ),
    "unfold a sparse tensor": (
        lambda w: tensorion.unfold(w.x.to_sparse(), (0,)),
        ValueError,
        "[tensorion.unfold] expected a dense tensor, got Sparse",
    ),
    "unfold by all modes": (
        lambda w: tensorion.unfold(w.x, (0, 1, 2)),
        ValueError,
        "got all 3 modes of shape [3, 4, 5]",
    ),
    "fold to another shape": (
        lambda w: tensorion.fold(w.matrix, (0,), (4, 2, 4)),
        ValueError,
        "unfold to a matrix of shape [4, 8], got [4, 6]",
    ),
    "fold to 2^64 elements": (
        lambda w: tensorion.fold(w.matrix, (0,), (4, 2**62)),
        ValueError,
        "a tensor must have fewer than 2^63 elements, got shape [4, 4611686018427387904]",
    ),
    "fold a sparse matrix": (
        lambda w: tensorion.fold(w.matrix.to_sparse(), (0,), (4, 6)),
        ValueError,
        "[tensorion.fold] expected a dense matrix, got Sparse",
    ),
    "nuclear norm of a sparse tensor": (
        lambda w: tensorion.nuclear_norm(w.x.to_sparse(), (0,)),
        ValueError,
        "[tensorion.nuclear_norm] expected a dense tensor, got Sparse",
    ),
    "dual norm of text": (
        lambda w: tensorion.dual_norm("x"),
        TypeError,
        "[tensorion.dual_norm] x must be a Tensor, got str",
    ),
    "dual norm of a sparse tensor": (
        lambda w: tensorion.dual_norm(w.x.to_sparse()),
        ValueError,
        "[tensorion.dual_norm] expected a dense tensor",
    ),
    "relaxed norm to NaN": (
        lambda w: tensorion.relaxed_norm(w.x, tol=math.nan),
        ValueError,
        "tol must be in (0, 1), got nan",
    ),
    "relaxed norm of an infinity": (
        lambda w: tensorion.relaxed_norm(w.x * math.inf),
        ValueError,
        "[tensorion.relaxed_norm] expected finite values, got",
    ),
    "spectral norm from 2^62 starts": (
        lambda w: tensorion.spectral_norm(w.x, restarts=2**62),
        ValueError,
        "restarts must be at most 1000000, got 4611686018427387904",
    ),
    "spectral norm from a bool": (
        lambda w: tensorion.spectral_norm(w.x, restarts=True),
        TypeError,
        "restarts must be an integer, got True",
    ),
    "convolution on one size": (
        lambda w: tensorion.conv_norm(w.kernel, 4),
        TypeError,
        "input_size must be a sequence of integers, got 4",
    ),
    "convolution on no pixels": (
        lambda w: tensorion.conv_norm(w.kernel, (0, 4)),
        ValueError,
        "input sizes must be at least 1, got [0, 4]",
    ),
    "convolution padded otherwise": (
        lambda w: tensorion.conv_norm(w.kernel, (4, 4), padding="same"),
        ValueError,
        'got "same"',
    ),
    "convolution by a sparse kernel": (
        lambda w: tensorion.conv_norm(w.kernel.to_sparse(), (4, 4)),
        ValueError,
        "[tensorion.conv_norm] expected a dense tensor",
    ),
    "plan of nothing": (lambda w: tensorion.plan(None, 2), TypeError, "shapes must be a sequence of shapes, got None"),
    "plan of a size": (lambda w: tensorion.plan([3], 2), TypeError, "shapes must be a sequence of integers, got 3"),
    "plan for no ranks": (lambda w: tensorion.plan([(3, 4, 5)], 0), ValueError, "world_size must be at least 1, got 0"),
    "plan for 10^10 ranks": (
        lambda w: tensorion.plan([(3, 4, 5)], 10**10),
        ValueError,
        "world_size must be at most 1048576, got 10000000000",
    ),
    "plan of 2^120 elements": (lambda w: tensorion.plan([(2**40,) * 3], 2), ValueError, "fewer than 2^63 elements"),
    "param_groups of a list": (lambda w: tensorion.param_groups([1]), TypeError, "model must be a Module, got list"),
    "param_groups by a number": (
        lambda w: tensorion.param_groups(LINEAR, to_fallback=3),
        TypeError,
        "a sequence of rules, got 3",
    ),
    "param_groups by a rule that is a number": (
        lambda w: tensorion.param_groups(LINEAR, to_fallback=[3]),
        TypeError,
        "to_fallback must be patterns, types of modules or functions, got 3",
    ),
    "param_groups of order '3'": (
        lambda w: tensorion.param_groups(LINEAR, min_order="3"),
        TypeError,
        "min_order must be an integer, got '3'",
    ),
    "param_groups of order 0": (
        lambda w: tensorion.param_groups(LINEAR, min_order=0),
        ValueError,
        "min_order must be at least 1, got 0",
    ),
    "param_groups of a lazy module": (
        lambda w: tensorion.param_groups(nn.LazyConv2d(3, 3)),
        ValueError,
        "'weight' has no shape yet: run its lazy module once before",
    ),
    "describe another optimizer": (
        lambda w: tensorion.describe(torch.optim.SGD(w.params, 0.1)),
        TypeError,
        "[tensorion.describe] expected a Tensorion, got SGD",
    ),
}


@pytest.fixture(scope="module")
def world():
    return World()


@pytest.mark.filterwarnings("ignore:.*(sparse|Sparse|nested|beta state)")
@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_named_and_changes_nothing(case, world):
    call, error, words = CASES[case]
    before = world.snapshot()
    with pytest.raises(error) as caught:
        call(world)
    # Exactly this type: NotImplementedError is a RuntimeError, but says nothing of use.
    assert caught.type is error
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert world.snapshot() == before


def test_after_all_of_it_the_optimizer_goes_on_as_if_nothing_had_been(world):
    other = World()
    for each in (world, other):
        each.optimizer.load_state_dict(each.state)
        each.optimizer.step()
    assert world.snapshot()[0] == other.snapshot()[0]


def test_parameters_without_values_are_refused_by_the_step():
    param = nn.Parameter(torch.empty(3, 4, 5, device="meta"))
    optimizer = Tensorion([("kernel", param)])
    param.grad = torch.empty_like(param)
    with pytest.raises(ValueError, match=r"parameter 'kernel', shape \[3, 4, 5\] is on the meta device"):
        optimizer.step()
    assert not optimizer.state
