"""The tensors on which optimizers are timed: kernels of known networks, and momenta with realistic spectra."""

import functools
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

import tensorion  # noqa: F401 - registers the operator that is_ours calls


class _Block(nn.Module):
    """Two 3 x 3 convolutions; with a bottleneck, 1 x 1, 3 x 3 and 1 x 1, and four times as many outputs."""

    def __init__(self, inputs: int, width: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        outputs = 4 * width if bottleneck else width
        if bottleneck:
            sizes = [(inputs, width, 1, 1), (width, width, 3, stride), (width, outputs, 1, 1)]
        else:
            sizes = [(inputs, width, 3, stride), (width, width, 3, 1)]
        layers: list[nn.Module] = []
        for before, after, kernel, step in sizes:
            convolution = nn.Conv2d(before, after, kernel, step, kernel // 2, bias=False)
            layers += [convolution, nn.BatchNorm2d(after), nn.ReLU()]
        self.branch = nn.Sequential(*layers[:-1])
        self.skip = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.skip = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.branch(x) + self.skip(x))


def _resnet(blocks: list[int], bottleneck: bool, width: int, stem: int, classes: int) -> nn.Module:
    """Create a ResNet whose first kernel is stem x stem: 3 for small images, 7 for ImageNet (without the pooling)."""
    first = nn.Conv2d(3, width, stem, 1 if stem == 3 else 2, stem // 2, bias=False)
    layers: list[nn.Module] = [first, nn.BatchNorm2d(width), nn.ReLU()]
    inputs = width
    for stage, count in enumerate(blocks):
        for block in range(count):
            layers.append(_Block(inputs, width << stage, 2 if stage and not block else 1, bottleneck))
            inputs = (width << stage) * (4 if bottleneck else 1)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


def resnet18(width: int = 64, stem: int = 3, classes: int = 10) -> nn.Module:
    return _resnet([2, 2, 2, 2], False, width, stem, classes)


def resnet50(width: int = 64, stem: int = 3, classes: int = 10) -> nn.Module:
    return _resnet([3, 4, 6, 3], True, width, stem, classes)


def shapes(network: Callable[..., nn.Module], **options: int) -> list[tuple[int, ...]]:
    """Return the shapes of the network's parameters without allocating them."""
    with torch.device("meta"):
        return [tuple(param.shape) for param in network(**options).parameters()]


def _video_resnet18() -> list[tuple[int, ...]]:
    """Return the shapes of the 5-D kernels of R3D-18."""
    shapes, inputs = [(64, 3, 3, 7, 7)], 64
    for width in (64, 128, 256, 512):
        for _ in range(2):
            shapes += [(width, inputs, 3, 3, 3), (width, width, 3, 3, 3)]
            inputs = width
    return shapes


def is_ours(shape: tuple[int, ...], min_order: int = 3) -> bool:
    """Return whether Tensorion orthogonalizes a parameter of this shape."""
    return not torch.ops.tensorion.fallback_reason(shape, min_order, [], [])


#: For each network, the shapes of the parameters that Tensorion orthogonalizes by default.
NETWORKS = {
    name: [shape for shape in every if is_ours(shape)]
    for name, every in {
        "resnet18": shapes(resnet18),
        "resnet50": shapes(resnet50),
        "vit_base_patch_embedding": [(768, 3, 16, 16)],
        "swin_tiny_patch_embedding": [(96, 3, 4, 4)],
        "video_resnet18": _video_resnet18(),
    }.items()
}

#: The kinds of momenta. "trained" is available for ResNet-18 only.
SPECTRA = ("trained", "power_law", "gaussian")


def make_images(count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Create images of ten classes, each a shifted smooth pattern with noise of two scales, and their labels."""
    patterns = functional.interpolate(
        torch.randn(10, 3, 6, 6, generator=torch.Generator().manual_seed(0)), size=(40, 40), mode="bicubic"
    )
    labels = torch.randint(10, (count,), generator=generator)
    shifts = torch.randint(9, (count, 2), generator=generator).tolist()
    crops = [patterns[c, :, i : i + 32, j : j + 32] for c, (i, j) in zip(labels, shifts, strict=True)]
    smooth = functional.interpolate(torch.randn(count, 3, 16, 16, generator=generator), size=(32, 32), mode="bilinear")
    return torch.stack(crops) + smooth + 0.3 * torch.randn(count, 3, 32, 32, generator=generator), labels


@functools.cache
def trained_momenta(steps: int = 12, batch: int = 24, width: int = 64) -> list[torch.Tensor]:
    """Return the momenta of ResNet-18's kernels after some training steps with SGD."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    network = resnet18(width)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.02, momentum=0.9)
    for _ in range(steps):
        images, labels = make_images(batch, generator)
        optimizer.zero_grad()
        functional.cross_entropy(network(images), labels).backward()
        optimizer.step()
    kernels = [param for param in network.parameters() if is_ours(tuple(param.shape))]
    return [optimizer.state[param]["momentum_buffer"] for param in kernels]


def momenta(network: str, spectrum: str) -> list[torch.Tensor]:
    """Return one momentum for each shape in NETWORKS[network]."""
    if spectrum == "trained":
        return trained_momenta()
    return [momentum(shape, spectrum, seed) for seed, shape in enumerate(NETWORKS[network])]


#: The largest size of a mode for which momentum() computes a random basis, which takes cubic time.
LARGEST_BASIS = 2048


def momentum(shape: tuple[int, ...], spectrum: str, seed: int) -> torch.Tensor:
    """Create a momentum of this shape.

    With "power_law", the eigenvalues of the Gram matrix of every mode decay as i^-1, in random directions. The singular
    values of the unfoldings then decay as in training: the largest one is 10 to 100 times the median.
    """
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator)
    if spectrum == "power_law":
        for mode, size in enumerate(shape):
            decay = torch.arange(1, size + 1, dtype=torch.float32) ** -0.5
            if size > LARGEST_BASIS:  # no basis is needed, because rotations do not change the Gaussian distribution
                x *= decay.reshape([-1 if other == mode else 1 for other in range(len(shape))])
            elif size > 3:
                basis = torch.linalg.qr(torch.randn(size, size, generator=generator))[0]
                x = torch.movedim(torch.tensordot(x, basis * decay, dims=([mode], [0])), -1, mode)
    return x.contiguous()
