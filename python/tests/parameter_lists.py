"""Models with the parameter names and shapes of published models, which are recorded in parameter_lists.txt.

Each line has the name of a parameter, its shape, and the type of its module with the number of groups of a convolution,
as created by torchvision 0.28 and timm 1.0.30.
"""

from pathlib import Path

import torch
from torch import nn

_CONVOLUTIONS = {"Conv1d": nn.Conv1d, "Conv2d": nn.Conv2d, "Conv3d": nn.Conv3d, "Conv3DSimple": nn.Conv3d}


def recorded():
    """Return (name, shape, module type, number of groups) of each parameter, by model."""
    models = {}
    for line in (Path(__file__).parent / "parameter_lists.txt").read_text().splitlines():
        if line.startswith("#"):
            rows = models[line[2:]] = []
            continue
        name, shape, kind = line.split()
        kind, _, groups = kind.partition("/")
        rows.append((name, tuple(map(int, shape.split("x"))), kind, int(groups or 1)))
    return models


def is_convolution(kind):
    return kind in _CONVOLUTIONS


def model_of(rows):
    """Create a model on the meta device with these parameters. Its convolutions are torch modules."""
    root = nn.Module()
    with torch.device("meta"):
        for name, shape, kind, groups in rows:
            *path, last = name.split(".")
            parent = root
            for part in path[:-1]:
                if part not in parent._modules:
                    parent.add_module(part, nn.Module())
                parent = parent._modules[part]
            if path and is_convolution(kind) and last == "weight":
                out, inputs, *size = shape
                module = _CONVOLUTIONS[kind](inputs * groups, out, size, groups=groups, bias=False)
                parent.add_module(path[-1], module)
                continue
            if path:
                if path[-1] not in parent._modules:
                    parent.add_module(path[-1], nn.Module())
                parent = parent._modules[path[-1]]
            parent.register_parameter(last, nn.Parameter(torch.empty(shape)))
    return root
