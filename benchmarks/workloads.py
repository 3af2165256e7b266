"""The tensors that optimizers are timed on: kernels of known networks, momenta with realistic spectra."""

import torch


def _resnet(blocks: list[int], bottleneck: bool) -> list[tuple[int, ...]]:
    """The kernels of a ResNet with the stem for small images."""
    shapes, inputs = [(64, 3, 3, 3)], 64
    for stage, count in enumerate(blocks):
        width = 64 << stage
        outputs = 4 * width if bottleneck else width
        for block in range(count):
            if bottleneck:
                shapes += [(width, inputs, 1, 1), (width, width, 3, 3), (outputs, width, 1, 1)]
            else:
                shapes += [(width, inputs, 3, 3), (width, width, 3, 3)]
            if block == 0 and (stage > 0 or bottleneck):
                shapes.append((outputs, inputs, 1, 1))
            inputs = outputs
    return shapes


def _video_resnet18() -> list[tuple[int, ...]]:
    """The 5-D kernels of R3D-18."""
    shapes, inputs = [(64, 3, 3, 7, 7)], 64
    for width in (64, 128, 256, 512):
        for _ in range(2):
            shapes += [(width, inputs, 3, 3, 3), (width, width, 3, 3, 3)]
            inputs = width
    return shapes


def _order(shape: tuple[int, ...]) -> int:
    return sum(size != 1 for size in shape)


#: Per network, the parameters of effective order >= 3: what Tensorion orthogonalizes by default.
NETWORKS = {
    name: [shape for shape in shapes if _order(shape) >= 3]
    for name, shapes in {
        "resnet18": _resnet([2, 2, 2, 2], bottleneck=False),
        "resnet50": _resnet([3, 4, 6, 3], bottleneck=True),
        "vit_base_patch_embedding": [(768, 3, 16, 16)],
        "swin_tiny_patch_embedding": [(96, 3, 4, 4)],
        "video_resnet18": _video_resnet18(),
    }.items()
}

SPECTRA = ("power_law", "gaussian")


def momentum(shape: tuple[int, ...], spectrum: str, seed: int) -> torch.Tensor:
    """A momentum of this shape.

    "power_law": every mode's Gram matrix decays as i^-1 in random directions, which gives the unfoldings of
    a kernel the decay met in training: the largest singular value some 10 to 100 times the median.
    """
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator)
    if spectrum == "power_law":
        for mode, size in enumerate(shape):
            if size > 3:
                basis = torch.linalg.qr(torch.randn(size, size, generator=generator))[0]
                decay = torch.arange(1, size + 1, dtype=torch.float32) ** -0.5
                x = torch.movedim(torch.tensordot(x, basis * decay, dims=([mode], [0])), -1, mode)
    return x.contiguous()
