"""Checks an installed package by a short training. The optional argument is the version that torch must have."""

import sys

import torch
from torch import nn

import tensorion


def main():
    if sys.argv[1:] and not torch.__version__.startswith(sys.argv[1]):
        sys.exit(f"expected torch {sys.argv[1]}, got {torch.__version__}")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 6 * 6, 2))
    optimizer = tensorion.Tensorion(model.parameters(), lr=0.02)
    x = torch.randn(32, 1, 8, 8)
    y = (x.mean((1, 2, 3)) > 0).long()
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if not losses[-1] < losses[0] / 4:
        sys.exit(f"training does not work: expected the loss to fall below {losses[0] / 4}, got {losses[-1]}")
    print(f"tensorion {tensorion.__version__} with torch {torch.__version__}: {tensorion.cmake_prefix_path}")


if __name__ == "__main__":
    main()
