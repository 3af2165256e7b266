"""Second derivatives of norms raise an error instead of returning wrong values."""

import pytest
import torch
from support import gaussian

import tensorion

NORMS = {"nuclear_norm": lambda x: tensorion.nuclear_norm(x, range(min(1, x.dim()))), "dual_norm": tensorion.dual_norm}
#: Functions of the gradient of a norm.
USES = {
    "squared norm": lambda norm, x: norm(x) ** 2,
    "norm": lambda norm, x: norm(x),
    "weighted norm": lambda norm, x: norm(x) * x.square().sum(),
}


def gradient(norm, x, use):
    return torch.autograd.grad(USES[use](NORMS[norm], x), x, create_graph=True)[0]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("shape", [(3, 4, 5), (4, 4), ()], ids=str)
def test_second_derivatives_raise(norm, use, shape):
    # Regression: the polar factor was treated as a constant, and its part of the second derivative was missing.
    x = gaussian(shape, 1, torch.float64).requires_grad_()
    first = gradient(norm, x, use)
    with pytest.raises(RuntimeError, match=rf"\[tensorion.{norm}\] the function is differentiable only once"):
        torch.autograd.grad(first.square().sum(), x)


@pytest.mark.parametrize("norm", NORMS)
def test_gradient_penalty_raises(norm):
    # Regression: together with a term that has a second derivative, the missing one went unnoticed.
    x = gaussian((3, 4, 5), 1, torch.float64).requires_grad_()
    loss = gradient(norm, x, "norm").square().sum() + x.pow(4).sum()
    with pytest.raises(RuntimeError, match=norm):
        loss.backward()
    assert x.grad is None


@pytest.mark.parametrize("norm", NORMS)
def test_gradgradcheck_raises(norm):
    x = gaussian((3, 4, 2), 1, torch.float64).requires_grad_()
    with pytest.raises(RuntimeError, match=norm):
        torch.autograd.gradgradcheck(lambda x: NORMS[norm](x) ** 2, (x,))


@pytest.mark.parametrize("norm", NORMS)
def test_first_derivatives_with_create_graph(norm):
    x = gaussian((3, 4, 5), 1, torch.float64).requires_grad_()
    with_graph = gradient(norm, x, "squared norm")
    without = torch.autograd.grad(NORMS[norm](x) ** 2, x)[0]
    assert torch.equal(with_graph, without)
    assert with_graph.requires_grad
    torch.autograd.gradcheck(lambda x: NORMS[norm](x) ** 2, (x,))
