"""The methods that peers.py compares: Tensorion's, the plain form, and the Muons of other libraries."""

import importlib.util
import math
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

import tensorion

MUON = (3.4445, -4.7750, 2.0315)
LR = 1e-3
Step = Callable[[], None]


def plain_newton_schulz(matrix: torch.Tensor, rows: list[tuple[float, float, float]]) -> torch.Tensor:
    """Run Newton-Schulz as published, with full products."""
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / x.norm()
    for a, b, c in rows:
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


def published(name: str, steps: int) -> list[tuple[float, ...]]:
    values = torch.ops.tensorion.named_coefficients(name)
    rows = [tuple(values[i : i + 3]) for i in range(0, len(values), 3)]
    return [rows[min(i, len(rows) - 1)] for i in range(steps)]


def modes_of(shape: tuple[int, ...], unfolding: str) -> tuple[int, ...]:
    return (0,) if unfolding == "flattened" else tensorion.balanced_unfolding(shape)


def ours(params: list[torch.Tensor], unfolding: str, **options) -> Step:
    choice = (0,) if unfolding == "flattened" else unfolding
    return tensorion.Tensorion(params, lr=LR, weight_decay=0.0, unfolding=choice, **options).step


def plain(params: list[torch.Tensor], unfolding: str) -> Step:
    """Return a step of Muon in fp32, with full matrix products on this unfolding."""
    buffers = [torch.zeros_like(param) for param in params]

    @torch.no_grad()
    def step() -> None:
        for param, buffer in zip(params, buffers, strict=True):
            buffer.mul_(0.95).add_(param.grad)
            modes = modes_of(tuple(param.shape), unfolding)
            matrix = tensorion.unfold(buffer, modes)
            update = tensorion.fold(plain_newton_schulz(matrix, [MUON] * 5), modes, param.shape)
            param.add_(update, alpha=-LR * 0.2 * math.sqrt(max(matrix.shape)))

    return step


def gram_newton_schulz(params: list[torch.Tensor]) -> Step:
    """Return a step of gram-newton-schulz, with its torch implementation, on flattened kernels."""
    from gram_newton_schulz import GramNewtonSchulz

    solve = GramNewtonSchulz(ns_use_kernels=False, compile_kwargs=None)
    buffers = [torch.zeros_like(param) for param in params]

    @torch.no_grad()
    def step() -> None:
        for param, buffer in zip(params, buffers, strict=True):
            buffer.mul_(0.95).add_(param.grad)
            param.add_(solve(buffer.flatten(1)).view_as(param), alpha=-LR)

    return step


def flattened(params: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return views of kernels as matrices, with their gradients."""
    flat = [param.detach().flatten(1).requires_grad_() for param in params]
    for view, param in zip(flat, params, strict=True):
        view.grad = param.grad.flatten(1)
    return flat


def torch_muon(params: list[torch.Tensor]) -> Step:
    """Return a step of torch.optim.Muon, which accepts only matrices, on flattened kernels in bf16, its default."""
    return torch.optim.Muon(flattened(params), lr=LR, weight_decay=0.0).step


def timm_muon(params: list[torch.Tensor]) -> Step:
    # timm imports torchvision, which timm.optim.muon does not need. Empty packages avoid this import.
    if "timm" not in sys.modules:
        spec = importlib.util.find_spec("timm")
        if spec is None:
            raise ModuleNotFoundError("No module named 'timm'")
        folder = Path(spec.submodule_search_locations[0])
        for name, path in (("timm", folder), ("timm.optim", folder / "optim")):
            sys.modules[name] = types.ModuleType(name)
            sys.modules[name].__path__ = [str(path)]
    from timm.optim.muon import Muon

    return Muon(params, lr=LR, weight_decay=0.0).step


def with_own_gradients(optimizer: torch.optim.Optimizer, params: list[torch.Tensor]) -> Step:
    """Return a step on copies of the gradients, for an optimizer that changes or deletes gradients."""
    grads = [param.grad for param in params]

    def step() -> None:
        for param, grad in zip(params, grads, strict=True):
            param.grad = grad.clone()
        optimizer.step()
        for param, grad in zip(params, grads, strict=True):
            param.grad = grad

    return step


def heavyball_muon(params: list[torch.Tensor]) -> Step:
    import heavyball

    heavyball.utils.compile_mode = None
    return with_own_gradients(heavyball.Muon(params, lr=LR, weight_decay=0.0), params)


def pytorch_optimizer_muon(params: list[torch.Tensor]) -> Step:
    import pytorch_optimizer

    flat = flattened(params)
    return with_own_gradients(
        pytorch_optimizer.Muon([{"params": flat, "use_muon": True}], lr=LR, weight_decay=0.0), flat
    )


#: The Muons of other libraries. All of them flatten kernels.
PEERS: dict[str, Callable[[list[torch.Tensor]], Step]] = {
    "gram-newton-schulz": gram_newton_schulz,
    "torch.optim.Muon": torch_muon,
    "timm Muon": timm_muon,
    "heavyball Muon": heavyball_muon,
    "pytorch-optimizer Muon": pytorch_optimizer_muon,
}


@dataclass(frozen=True)
class Method:
    """A way to make a step."""

    unfolding: str  # "balanced", "online" or "flattened"
    name: str
    make: Callable[[list[torch.Tensor]], Step]
    is_slow: bool = False  # if true, only one step is timed


#: The method with which all times of an unfolding are compared.
PLAIN = "plain Newton-Schulz"
DEFAULT = "Tensorion, default"


def methods(quick: bool) -> list[Method]:
    """Return all methods, grouped by unfolding: methods that flatten kernels do less work than the others."""
    found = []
    for unfolding in ("balanced", "flattened"):
        found.append(Method(unfolding, PLAIN, lambda p, u=unfolding: plain(p, u)))
        found.append(Method(unfolding, DEFAULT, lambda p, u=unfolding: ours(p, u)))
        if unfolding == "balanced":
            found.append(Method("online", DEFAULT, lambda p: ours(p, "online")))
        for name in ("polar_express",) if quick else ("muon", "polar_express", "cans"):
            options = {"polar": "newton_schulz", "ns_coefficients": name}
            make = lambda p, u=unfolding, o=options: ours(p, u, **o)  # noqa: E731
            found.append(Method(unfolding, f"Tensorion, newton_schulz, {name}", make))
        if not quick:
            make = lambda p, u=unfolding: ours(p, u, polar="svd")  # noqa: E731
            found.append(Method(unfolding, "Tensorion, svd", make, is_slow=True))
    if not quick:
        found += [Method("flattened", name, make, is_slow=True) for name, make in PEERS.items()]
    return found
