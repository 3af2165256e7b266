"""Compares two treatments of fused projections and stacks of experts: as one tensor, or split into independent tensors.

The model is a small vision transformer with fused QKV projections and MLPs that are stacks of experts. It is trained
with `min_order=2` and each treatment on the same data from the same initial weights:

    python whole_or_split.py --data FOLDER      # the same data as for train_cifar.py
    python whole_or_split.py --synthetic
"""

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from train_cifar import Split, load, normalized, synthetic

import tensorion


class Experts(nn.Module):
    """A soft mixture of MLPs: each token uses a weighted sum of all experts."""

    def __init__(self, width: int, hidden: int, count: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, count)
        self.up = nn.Parameter(torch.randn(count, hidden, width) * width**-0.5)
        self.down = nn.Parameter(torch.randn(count, width, hidden) * hidden**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        hidden = functional.gelu(torch.einsum("bnw,ehw->benh", x, self.up))
        weights = self.router(x).softmax(-1)
        return torch.einsum("benh,ewh,bne->bnw", hidden, self.down, weights)


class Block(nn.Module):
    def __init__(self, width: int, heads: int, experts: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.experts = Experts(width, 2 * width, experts)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        qkv = self.qkv(self.norms[0](x)).view(batch, tokens, 3, self.heads, width // self.heads)
        attended = functional.scaled_dot_product_attention(*qkv.permute(2, 0, 3, 1, 4).unbind(0))
        x = x + self.projection(attended.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.experts(self.norms[1](x))


class Classifier(nn.Module):
    def __init__(self, classes: int, size: int, width: int = 64, depth: int = 2) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.position = nn.Parameter(0.02 * torch.randn(1, (size // 4) ** 2, width))
        self.blocks = nn.Sequential(*(Block(width, 4, 4) for _ in range(depth)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, classes))

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.position
        return self.head(self.blocks(tokens).mean(1))


SLICES = {
    "whole": {},
    "split": {"batch": {"*.experts.up": (0,), "*.experts.down": (0,)}, "split": {"*.qkv.weight": 3}},
}


def train(treatment: str, lr: float, seed: int, train_set: Split, test_set: Split, epochs: int) -> tuple[float, float]:
    """Train a model, and return the mean training loss of the last epoch and the test accuracy in percent."""
    torch.manual_seed(seed)
    x, y = train_set
    model = Classifier(int(y.max()) + 1, x.shape[-1])
    others = ["position", "head", "*.router"]
    groups = tensorion.param_groups(model, min_order=2, to_fallback=others, **SLICES[treatment])
    optimizer = tensorion.Tensorion(groups, lr=lr, fallback_lr=0.002)
    steps = epochs * (len(x) // 64)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(epochs):
        losses = []
        for batch in torch.randperm(len(x))[: len(x) // 64 * 64].split(64):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x[batch]), y[batch])
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
    with torch.no_grad():
        answers = torch.cat([model(part).argmax(1) for part in test_set[0].split(500)])
    return sum(losses) / len(losses), 100 * (answers == test_set[1]).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--data", type=Path, help="folder of images, as for train_cifar.py")
    source.add_argument("--synthetic", action="store_true", help="use generated images")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--limit-train", type=int, default=4000)
    parser.add_argument("--limit-test", type=int, default=2000)
    parser.add_argument("--lr", type=float, nargs="+", default=[0.005, 0.02])
    arguments = parser.parse_args()
    sets = synthetic() if arguments.synthetic else load(arguments.data)
    order = torch.Generator().manual_seed(0)
    chosen = []
    for (x, y), limit in zip(sets, (arguments.limit_train, arguments.limit_test), strict=True):
        picked = torch.randperm(len(x), generator=order)[:limit]
        chosen.append((normalized(x[picked]), y[picked]))
    print("treatment  lr       seed  train loss  test accuracy, %", flush=True)
    for lr in arguments.lr:
        for seed in range(arguments.seeds):
            for treatment in SLICES:
                loss, accuracy = train(treatment, lr, seed, *chosen, arguments.epochs)
                print(f"{treatment:9}  {lr:<7g}  {seed:4}  {loss:10.4f}  {accuracy:16.1f}", flush=True)


if __name__ == "__main__":
    main()
