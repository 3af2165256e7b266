"""Compares the fraction of the LMO's optimum that different unfoldings attain on kernels of ResNet-18.

The momenta are random with decaying spectra, as in training. "flattened" is Muon's fixed unfolding, "balanced" is the
unfolding that Tensorion chooses by shape, and "online" is the best unfolding for the values. The column `solved` is the
number of unfoldings whose nuclear norm "online" had to compute.
"""

import torch

import tensorion


def decaying(shape: tuple[int, ...]) -> torch.Tensor:
    """Create a random tensor whose singular values decay along each mode."""
    x = torch.randn(shape)
    for mode, size in enumerate(shape):
        weights = torch.arange(1.0, size + 1) ** -0.5
        mix = torch.linalg.qr(torch.randn(size, size))[0] * weights
        x = torch.movedim(torch.tensordot(x, mix, dims=([mode], [0])), -1, mode)
    return x


def main() -> None:
    torch.manual_seed(0)
    print(f"{'kernel':>16}  {'flattened':>9}  {'balanced':>15}  {'online':>15}  solved")
    for width in (64, 128, 256):
        momentum = decaying((width, width, 3, 3))
        flattened = tensorion.lmo(momentum, unfolding=(0,))
        balanced = tensorion.lmo(momentum, unfolding="balanced")
        online = tensorion.lmo(momentum, unfolding="online")
        shape = "x".join(map(str, momentum.shape))
        print(
            f"{shape:>16}  {flattened.value / online.upper:>9.1%}  "
            f"{balanced.value / online.upper:>7.1%} {balanced.modes!s:>7}  "
            f"{online.value / online.upper:>7.1%} {online.modes!s:>7}  {online.solved} of 7"
        )


if __name__ == "__main__":
    main()
