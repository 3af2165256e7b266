"""Fine-tunes a Vision Transformer or Swin from timm with Tensorion for the patch embedding and AdamW for the rest.

    python finetune_timm.py --model vit_small_patch16_224 --weights vit_small.safetensors --data FOLDER
    python finetune_timm.py --model swin_tiny_patch4_window7_224 --weights swin_tiny.pth --synthetic

FOLDER contains train/<class>/* and val/<class>/*. Weights are read from a file. Nothing is downloaded.
"""

import argparse
import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import tensorion

try:
    import timm
    from timm.data import create_transform, resolve_model_data_config
    from torchvision.datasets import ImageFolder
except (ImportError, RuntimeError) as error:  # A torchvision that was built for another torch raises RuntimeError.
    sys.exit(f"this example needs timm and a torchvision built for torch {torch.__version__}: {error}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="vit_small_patch16_224", help="name of a timm model")
    parser.add_argument("--weights", type=Path, required=True, help=".safetensors or .pth file with its weights")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--data", type=Path, help="folder with train/ and val/")
    source.add_argument("--synthetic", action="store_true", help="use a few generated images")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-3, help="learning rate of the patch embedding")
    parser.add_argument("--fallback-lr", type=float, default=1e-4, help="learning rate of AdamW for the rest")
    arguments = parser.parse_args()

    torch.manual_seed(0)
    model = timm.create_model(arguments.model, pretrained=False)
    config = resolve_model_data_config(model)
    train_set, test_set, classes = synthetic(config) if arguments.synthetic else folders(arguments.data, config)
    read_weights(model, arguments.weights)
    model.reset_classifier(classes)

    # The patch embedding is a kernel of order 4. Matrices, norms and the position embedding have a lower order and go
    # to AdamW. to_fallback keeps the new head with AdamW for any min_order.
    groups = tensorion.param_groups(model, to_fallback=["head"], decay_vectors=False)
    optimizer = tensorion.Tensorion(groups, lr=arguments.lr, fallback_lr=arguments.fallback_lr, weight_decay=0.05)
    print(*(line for line in tensorion.describe(optimizer).splitlines() if "adamw" not in line), sep="\n")

    loader = DataLoader(train_set, arguments.batch_size, shuffle=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, len(loader) * arguments.epochs)
    for epoch in range(arguments.epochs):
        model.train()
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            total += loss.item()
        accuracy = test(model, DataLoader(test_set, arguments.batch_size))
        print(f"epoch {epoch + 1}  loss {total / len(loader):.4f}  test accuracy {accuracy:.4f}", flush=True)


@torch.no_grad()
def test(model: nn.Module, loader: DataLoader) -> float:
    model.eval()
    right = [(model(x).argmax(1) == y).float() for x, y in loader]
    return torch.cat(right).mean().item()


def read_weights(model: nn.Module, file: Path) -> None:
    if not file.is_file():
        sys.exit(
            f"{file} does not exist: download the weights from the page of the model, and pass the file with --weights"
        )
    if file.suffix == ".safetensors":
        from safetensors.torch import load_file

        weights = load_file(file)
    else:
        weights = torch.load(file, map_location="cpu", weights_only=True)
        weights = weights.get("model", weights)  # The authors of Swin save weights under this key.
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        sys.exit(f"{file} does not contain weights of this model: {error}")


def folders(folder: Path, config: dict) -> tuple[Dataset, Dataset, int]:
    for split in ("train", "val"):
        if not (folder / split).is_dir():
            sys.exit(f"expected {folder / split} with a folder of images for each class, got no such folder")
    train_set = ImageFolder(folder / "train", create_transform(**config, is_training=True))
    test_set = ImageFolder(folder / "val", create_transform(**config))
    return train_set, test_set, len(train_set.classes)


def synthetic(config: dict) -> tuple[Dataset, Dataset, int]:
    """Create images of two classes: the upper or the lower half is bright."""
    channels, height, width = config["input_size"]
    y = torch.arange(16) % 2
    x = 0.5 * torch.randn(16, channels, height, width)
    x[y == 0, :, : height // 2] += 1
    x[y == 1, :, height // 2 :] += 1
    return TensorDataset(x, y), TensorDataset(x, y), 2


if __name__ == "__main__":
    main()
