"""Creates timm's models from the same options as ours, and weights and images by a formula.

timm imports torchvision, which is not available for every version of torch. Its operators are not used here. If they
cannot be loaded, their schemas are declared before the import:

    pip install torch==2.13.0 numpy safetensors huggingface_hub pyyaml pillow
    pip install --no-deps timm torchvision==0.28.0
"""

import importlib.util
import math
from pathlib import Path

import torch

TORCHVISION = importlib.util.find_spec("torchvision")
try:
    torch.ops.load_library(Path(TORCHVISION.origin).with_name("_C.so"))
except OSError:
    SCHEMAS = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        SCHEMAS.define(f"{operator}(Tensor boxes, Tensor scores, float threshold) -> Tensor")

import timm  # noqa: E402
from timm.models import resnet  # noqa: E402


def build(options):
    """Creates the timm model for the given ModelOptions (lab/models/models.h)."""
    name = options["name"]
    kwargs = {"num_classes": options.get("classes", 1000), "in_chans": options.get("channels", 3)}
    width = options.get("width", 1.0)
    depths = options.get("depths")
    if name.startswith("resnet"):
        return build_resnet(name, width, options.get("stem", "imagenet"), depths, kwargs)
    if "image_size" in options:
        kwargs["img_size"] = options["image_size"]
    if name.startswith("vit"):
        heads = {"small": 6, "base": 12, "medium": 8}[name.split("_")[1]]
        heads = max(1, round(heads * width))
        kwargs.update(num_heads=heads, embed_dim=64 * heads)
        if depths:
            kwargs["depth"] = depths[0]
    else:
        heads = {"tiny": 3, "small": 3, "base": 4}[name.split("_")[1]]
        heads = max(1, round(heads * width))
        kwargs.update(num_heads=tuple(heads << stage for stage in range(4)), embed_dim=32 * heads)
        if depths:
            kwargs["depths"] = tuple(depths)
    return timm.create_model(name, **kwargs)


def build_resnet(name, width, stem, depths, kwargs):
    """Builds a ResNet from timm's blocks with our stem, because timm has neither the small stem nor other widths."""
    block = resnet.Bottleneck if name == "resnet50" else resnet.BasicBlock
    layers = depths or {"resnet18": (2, 2, 2, 2)}.get(name, (3, 4, 6, 3))
    base = max(8, 8 * round(64 * width / 8))
    channels = (base, 2 * base, 4 * base, 8 * base)

    class ResNet(resnet.ResNet):
        def init_weights(self, zero_init_last=True):
            self.bn1 = torch.nn.BatchNorm2d(base)
            if stem == "cifar":
                self.conv1 = torch.nn.Conv2d(kwargs["in_chans"], base, 3, padding=1, bias=False)
                self.maxpool = torch.nn.Identity()
            elif base != 64:
                self.conv1 = torch.nn.Conv2d(kwargs["in_chans"], base, 7, stride=2, padding=3, bias=False)
            if base != 64:
                stages, _ = resnet.make_blocks(
                    (block,) * 4,
                    channels,
                    layers,
                    base,
                    cardinality=1,
                    base_width=64,
                    norm_layer=torch.nn.BatchNorm2d,
                )
                for stage_name, stage in stages:
                    setattr(self, stage_name, stage)
            super().init_weights(zero_init_last)

    return ResNet(block, layers, channels=channels, **kwargs)


def uniform(name, count):
    """Returns numbers in [-1, 1): a 32-bit hash of the name and the position."""
    mask = 0xFFFFFFFF
    seed = 2166136261
    for byte in name.encode():
        seed = (seed ^ byte) * 16777619 & mask
    x = (torch.arange(count, dtype=torch.int64) + seed) & mask
    for _ in range(2):
        x = ((x ^ (x >> 16)) * 0x45D9F3B) & mask
    x = x ^ (x >> 16)
    return x.to(torch.float64) / 2.0**31 - 1.0


def formula(name, shape):
    """Returns the tensor with this name: weights with unit gain, and normalizations close to the identity."""
    values = uniform(name, math.prod(shape)).reshape(shape)
    if name.endswith("running_var"):
        values = 1.0 + 0.5 * values
    elif name.endswith((".weight", ".gamma")):
        fan_in = math.prod(shape[1:])
        values = 1.0 + 0.2 * values if len(shape) == 1 else values * math.sqrt(3.0 / fan_in)
    else:
        values = 0.2 * values
    return values.to(torch.float32)


def images(shape):
    """Returns a batch of images by the formula, with mean 0 and variance 1."""
    return (uniform("images", math.prod(shape)) * math.sqrt(3.0)).reshape(shape).to(torch.float32)


def fill(model):
    """Sets every weight and statistic by the formula."""
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point():
                tensor.copy_(formula(name, tuple(tensor.shape)))
