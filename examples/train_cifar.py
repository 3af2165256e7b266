"""Trains a small network with Tensorion in an ordinary PyTorch loop, on CIFAR-10 or on folders of images.

python train_cifar.py --data cifar-10-batches-bin
python train_cifar.py --data FOLDER        # FOLDER/train/<class>/*.jpg, FOLDER/test/<class>/*.jpg
python train_cifar.py --synthetic          # generated images
"""

import argparse
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

import tensorion


def network(classes: int) -> nn.Sequential:
    def block(c_in: int, c_out: int) -> list[nn.Module]:
        return [
            nn.Conv2d(c_in, c_out, 3, padding=1, bias=False),
            nn.BatchNorm2d(c_out),
            nn.ReLU(),
            nn.Conv2d(c_out, c_out, 3, padding=1, bias=False),
            nn.BatchNorm2d(c_out),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]

    return nn.Sequential(
        *block(3, 32),
        *block(32, 64),
        *block(64, 128),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(128, classes),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--data", type=Path, help="folder with CIFAR-10's binary files, or with train/ and test/")
    source.add_argument("--synthetic", action="store_true", help="use generated images")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--lr", type=float, default=0.02, help="learning rate of the kernels")
    parser.add_argument("--fallback-lr", type=float, default=0.003, help="learning rate of AdamW for the rest")
    parser.add_argument("--unfolding", choices=["balanced", "online"], default="balanced")
    arguments = parser.parse_args()

    torch.manual_seed(0)
    (x, y), (x_test, y_test) = synthetic() if arguments.synthetic else load(arguments.data)
    print(f"{len(x)} training images, {len(x_test)} test images")
    model = network(int(y.max()) + 1)

    # This is the only line that differs from training with another optimizer.
    optimizer = tensorion.Tensorion(
        model.parameters(), lr=arguments.lr, fallback_lr=arguments.fallback_lr, unfolding=arguments.unfolding
    )
    steps = len(x) // arguments.batch_size
    if steps == 0:
        sys.exit(f"expected at least {arguments.batch_size} training images for one batch, got {len(x)}")
    rates = [arguments.lr, arguments.fallback_lr]
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, rates, total_steps=steps * arguments.epochs)

    for epoch in range(arguments.epochs):
        model.train()
        total = 0.0
        for batch in torch.randperm(len(x))[: steps * arguments.batch_size].split(arguments.batch_size):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(augmented(normalized(x[batch]))), y[batch])
            loss.backward()
            optimizer.step()
            scheduler.step()
            total += loss.item()
        accuracy = test(model, x_test, y_test)
        print(f"epoch {epoch + 1}  loss {total / steps:.4f}  test accuracy {accuracy:.4f}", flush=True)


@torch.no_grad()
def test(model: nn.Module, x: Tensor, y: Tensor) -> float:
    model.eval()
    answers = torch.cat([model(normalized(batch)).argmax(1) for batch in x.split(500)])
    return (answers == y).float().mean().item()


def normalized(x: Tensor) -> Tensor:
    mean, deviation = torch.tensor([0.491, 0.482, 0.447]), torch.tensor([0.247, 0.243, 0.262])
    return (x.float() / 255 - mean[:, None, None]) / deviation[:, None, None]


def augmented(x: Tensor) -> Tensor:
    """Shift each batch by up to 4 pixels, and flip images at random."""
    down, right = torch.randint(0, 9, (2,)).tolist()
    moved = nn.functional.pad(x, (4, 4, 4, 4))[:, :, down : down + x.shape[2], right : right + x.shape[3]]
    return torch.where(torch.rand(len(x), 1, 1, 1) < 0.5, moved.flip(3), moved)


Split = tuple[Tensor, Tensor]  # uint8 images of 32 x 32 pixels, and their classes


def load(folder: Path) -> tuple[Split, Split]:
    if (folder / "data_batch_1.bin").exists():
        batches = [folder / f"data_batch_{i}.bin" for i in range(1, 6)]
        return cifar([batch for batch in batches if batch.exists()]), cifar([folder / "test_batch.bin"])
    if (folder / "train").is_dir() and (folder / "test").is_dir():
        return read_images(folder / "train"), read_images(folder / "test")
    sys.exit(f"expected CIFAR-10's binary files (data_batch_1.bin, ...) or folders train and test, got {folder}")


def cifar(files: list[Path]) -> Split:
    """Read records of one label byte and 3 x 32 x 32 pixel bytes."""
    records = torch.cat([torch.frombuffer(bytearray(file.read_bytes()), dtype=torch.uint8) for file in files])
    records = records.reshape(-1, 1 + 3 * 32 * 32)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].long()


def read_images(folder: Path) -> Split:
    try:
        from PIL import Image
    except ImportError:
        sys.exit("folders of images need Pillow: pip install pillow")
    x, y = [], []
    for label, name in enumerate(sorted(path.name for path in folder.iterdir() if path.is_dir())):
        for path in sorted((folder / name).iterdir()):
            image = Image.open(path).convert("RGB").resize((32, 32))
            x.append(torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8).reshape(32, 32, 3))
            y.append(label)
    return torch.stack(x).permute(0, 3, 1, 2).contiguous(), torch.tensor(y)


def synthetic() -> tuple[Split, Split]:
    """Create images of four classes of noisy stripes: vertical or horizontal, narrow or wide."""
    position = torch.arange(32.0)
    narrow, wide = torch.sin(1.6 * position), torch.sin(0.6 * position)
    across, down = torch.ones(32, 1), torch.ones(1, 32)
    waves = torch.stack([narrow * across, wide * across, narrow[:, None] * down, wide[:, None] * down])

    def split(count: int) -> Split:
        y = torch.arange(count) % 4
        x = 128 + 40 * waves[y][:, None] + 40 * torch.randn(count, 3, 32, 32)
        return x.clamp(0, 255).to(torch.uint8), y

    return split(256), split(128)


if __name__ == "__main__":
    main()
