"""Writes golden/*.json and golden/vit.safetensors: the structure and the outputs of timm's models.

    python tests/lab/models/make_golden.py

Every value is recomputed by the C++ tests from the same options and formulas (timm_reference.py).
"""

import json
import re
from pathlib import Path

import torch
from safetensors.torch import save_file
from timm_reference import build, fill, formula, images, timm

GOLDEN = Path(__file__).parents[1] / "golden"

NAMES = {
    "resnet": ["resnet18", "resnet34", "resnet50"],
    "vit": ["vit_small_patch16_224", "vit_base_patch16_224", "vit_medium_patch16_gap_256"],
    "swin": ["swin_tiny_patch4_window7_224", "swin_small_patch4_window7_224", "swin_base_patch4_window7_224"],
}

# ModelOptions and the height and width of the images, for outputs in evaluation mode.
OUTPUTS = {
    "resnet": [
        ({"name": "resnet18", "stem": "imagenet"}, 64),
        ({"name": "resnet34", "stem": "imagenet"}, 64),
        ({"name": "resnet50", "stem": "imagenet"}, 64),
        ({"name": "resnet18", "stem": "cifar"}, 32),
        ({"name": "resnet34", "stem": "cifar"}, 16),
        ({"name": "resnet50", "stem": "cifar"}, 16),
        ({"name": "resnet18", "stem": "cifar", "width": 0.25, "channels": 1}, 28),
        ({"name": "resnet50", "stem": "imagenet", "width": 0.5}, 45),
    ],
    "vit": [
        ({"name": "vit_small_patch16_224"}, 224),
        ({"name": "vit_base_patch16_224", "image_size": 96}, 96),
        ({"name": "vit_medium_patch16_gap_256"}, 256),
        ({"name": "vit_small_patch16_224", "image_size": 32, "width": 0.5, "depths": [3], "channels": 1}, 32),
    ],
    "swin": [
        ({"name": "swin_tiny_patch4_window7_224"}, 224),
        ({"name": "swin_small_patch4_window7_224", "image_size": 64}, 64),
        ({"name": "swin_base_patch4_window7_224", "image_size": 96}, 96),
        (
            {
                "name": "swin_tiny_patch4_window7_224",
                "image_size": 160,
                "width": 0.34,
                "depths": [2, 3, 1, 2],
                "channels": 1,
            },
            160,
        ),
    ],
}

INITIAL = {
    "resnet": [{"name": "resnet18"}, {"name": "resnet50", "depths": [1, 1, 1, 1]}],
    "vit": [
        {"name": "vit_small_patch16_224", "image_size": 32, "depths": [2]},
        {"name": "vit_medium_patch16_gap_256", "image_size": 32, "depths": [1]},
    ],
    "swin": [{"name": "swin_tiny_patch4_window7_224", "image_size": 64, "depths": [2, 1, 1, 1]}],
}

# Like OUTPUTS, but smaller and in training mode.
TRAINING = {
    "resnet": [
        ({"name": "resnet18", "stem": "cifar", "width": 0.125, "depths": [1, 2, 1, 1]}, 16),
        ({"name": "resnet50", "stem": "imagenet", "width": 0.125, "depths": [1, 1, 1, 1]}, 64),
    ],
    "vit": [
        ({"name": "vit_small_patch16_224", "image_size": 32, "width": 0.34, "depths": [2]}, 32),
        ({"name": "vit_medium_patch16_gap_256", "image_size": 48, "width": 0.25, "depths": [1]}, 48),
    ],
    "swin": [
        (
            {"name": "swin_tiny_patch4_window7_224", "image_size": 64, "width": 0.34, "depths": [2, 1, 1, 1]},
            64,
        ),
    ],
}

CLASSES = 10
LABELS = [3, 8]
SEED = 5


def round_off(values):
    return [float(f"{value:.6g}") for value in values]


def shapes(model):
    """Returns {name: shape}. Blocks with equal shapes share an entry whose name has a range such as "0-11"."""
    groups = {}
    for name, tensor in model.state_dict().items():
        match = re.match(r"((?:blocks|layer\d|layers\.\d\.blocks)\.)(\d+)(\..*)", name)
        if not match:
            groups[name, "", tuple(tensor.shape)] = []
            continue
        before, number, after = match.groups()
        key = before, after, tuple(tensor.shape)
        groups.setdefault(key, []).append(int(number))
    folded = {}
    for (before, after, shape), numbers in groups.items():
        if numbers:
            assert numbers == list(range(numbers[0], numbers[-1] + 1))
            before += f"{numbers[0]}-{numbers[-1]}"
        folded[before + after] = list(shape)
    return folded


def norm_eps(name):
    """Returns the eps of the normalizations, which is too small to have a visible effect on the outputs."""
    return sorted({module.eps for module in build({"name": name}).modules() if hasattr(module, "eps")})


def case(options, size):
    options = {**options, "classes": CLASSES}
    return options, [2, options.get("channels", 3), size, size]


def outputs(options, size):
    options, shape = case(options, size)
    model = build(options).eval()
    fill(model)
    with torch.no_grad():
        logits = model(images(shape))
    return {"options": options, "images": shape, "logits": [round_off(row) for row in logits.tolist()]}


def initial(options):
    """Returns the sum of absolute values and the first value of each initial weight for a seed."""
    options = {**options, "classes": CLASSES}
    torch.manual_seed(SEED)
    return {"options": options, "seed": SEED, "values": sketch(build(options).named_parameters())}


def training(options, size):
    """Returns the loss, the gradients and the running statistics of one step from the formula's weights."""
    options, shape = case(options, size)
    model = build(options).train()
    fill(model)
    torch.manual_seed(SEED)
    loss = torch.nn.functional.cross_entropy(model(images(shape)), torch.tensor(LABELS))
    loss.backward()
    return {
        "options": options,
        "images": shape,
        "labels": LABELS,
        "seed": SEED,
        "loss": round_off([loss.item()])[0],
        "gradients": sketch((name, parameter.grad) for name, parameter in model.named_parameters()),
        "statistics": sketch((name, buffer) for name, buffer in model.named_buffers() if name in model.state_dict()),
    }


def sketch(named_tensors):
    """Returns two numbers per tensor: the sum of absolute values and the first value."""
    return {
        name: round_off([tensor.double().abs().sum().item(), tensor.flatten()[0].item()])
        for name, tensor in named_tensors
    }


def write_json(path, value):
    """Writes one entry per line, so that diffs are readable."""
    text = json.dumps(value, indent=1)
    text = re.sub(r"\[[^][{}]*\]", lambda match: re.sub(r"\s+", " ", match.group()), text)
    path.write_text(text + "\n")


def write_weights(path):
    """Writes weights in half precision, as timm does, and the outputs of their model to a small file."""
    model = timm.models.VisionTransformer(
        img_size=8, patch_size=4, embed_dim=8, depth=1, num_heads=2, num_classes=3, class_token=True
    ).eval()
    weights = {name: formula(name, tuple(tensor.shape)).half() for name, tensor in model.state_dict().items()}
    model.load_state_dict(weights)
    with torch.no_grad():
        logits = model(images([2, 3, 8, 8]))
    save_file({**weights, "expected.logits": logits}, path, metadata={"format": "pt"})


def main():
    torch.set_num_threads(2)
    GOLDEN.mkdir(exist_ok=True)
    for family, names in NAMES.items():
        golden = {
            "timm": timm.__version__,
            "shapes": {name: shapes(build({"name": name})) for name in names},
            "norm_eps": {name: norm_eps(name) for name in names},
            "outputs": [outputs(*entry) for entry in OUTPUTS[family]],
            "initial": [initial(entry) for entry in INITIAL[family]],
            "training": [training(*entry) for entry in TRAINING[family]],
        }
        write_json(GOLDEN / f"{family}.json", golden)
    write_weights(GOLDEN / "vit.safetensors")


if __name__ == "__main__":
    main()
