"""Runs the Python examples on tiny data. The C++ example is part of the test cmake_project."""

import importlib.util
import re
import runpy
import sys
from pathlib import Path

import pytest
import torch
from support import gaussian

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def run(monkeypatch, capsys):
    def run(name, *arguments):
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return run


@pytest.fixture(scope="module")
def timm():
    for package in ("timm", "torchvision"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    # timm imports torchvision. If torchvision was built for another torch, it fails unless its operators are declared.
    # The examples do not use them.
    library = torch.library.Library("torchvision", "FRAGMENT")
    try:
        torch.ops.load_library(Path(importlib.util.find_spec("torchvision").origin).with_name("_C.so"))
    except OSError:
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor boxes, Tensor scores, float threshold) -> Tensor")
    import timm

    yield timm
    del library


def accuracies(output):
    return [float(number) for number in re.findall(r"test accuracy ([\d.]+)", output)]


def stripes(count):
    """Create images of two classes: horizontal or vertical stripes."""
    y = torch.arange(count) % 2
    wave = (128 + 60 * torch.sin(torch.arange(32.0))).expand(3, 32, 32)
    x = torch.stack([wave, wave.transpose(1, 2)])[y] + 20 * gaussian((count, 3, 32, 32), count)
    return x.clamp(0, 255).to(torch.uint8), y.to(torch.uint8)


def test_whole_or_split_on_generated_images(run, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    output = run("whole_or_split.py", "--synthetic", "--epochs", 2, "--seeds", 1, "--lr", 0.01)
    rows = [line.split() for line in output.splitlines()[1:]]
    assert [row[0] for row in rows] == ["whole", "split"]
    assert all(float(row[4]) > 60 for row in rows)
    assert rows[0][3] != rows[1][3]


def test_train_cifar_on_generated_images(run):
    output = run("train_cifar.py", "--synthetic", "--epochs", 2, "--batch-size", 32)
    assert "256 training images, 128 test images" in output
    assert accuracies(output)[-1] > 0.9


def test_train_cifar_on_binary_files(run, tmp_path):
    for name, count in [("data_batch_1", 96), ("data_batch_2", 32), ("test_batch", 32)]:
        x, y = stripes(count)
        (tmp_path / f"{name}.bin").write_bytes(torch.cat([y[:, None], x.flatten(1)], 1).numpy().tobytes())
    output = run("train_cifar.py", "--data", tmp_path, "--epochs", 2, "--batch-size", 16, "--unfolding", "online")
    assert "128 training images, 32 test images" in output
    assert accuracies(output)[-1] > 0.9


def write_images(folder, count):
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    for index, (x, y) in enumerate(zip(*stripes(count), strict=True)):
        place = folder / ("down" if y else "across")
        place.mkdir(parents=True, exist_ok=True)
        image.fromarray(x.permute(1, 2, 0).contiguous().numpy()).save(place / f"{index}.png")


def test_train_cifar_on_folders(run, tmp_path):
    write_images(tmp_path / "train", 64)
    write_images(tmp_path / "test", 16)
    output = run("train_cifar.py", "--data", tmp_path, "--epochs", 4, "--batch-size", 16)
    assert "64 training images, 16 test images" in output
    assert accuracies(output)[-1] > 0.9


def test_train_cifar_errors_say_what_is_missing(run, tmp_path, monkeypatch):
    with pytest.raises(SystemExit, match=r"expected CIFAR-10's binary files .* or folders train and test, got"):
        run("train_cifar.py", "--data", tmp_path)
    (tmp_path / "train").mkdir()
    (tmp_path / "test").mkdir()
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(SystemExit, match="need Pillow: pip install pillow"):
        run("train_cifar.py", "--data", tmp_path)
    with pytest.raises(SystemExit, match="expected at least 1000 training images for one batch, got 256"):
        run("train_cifar.py", "--synthetic", "--batch-size", 1000)


def test_finetune_timm_errors_say_what_is_missing(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(SystemExit, match="this example needs timm and a torchvision built for"):
        run("finetune_timm.py")


@pytest.mark.parametrize(
    ("name", "options", "parameter", "matrix"),
    [
        (
            "vit_tiny_patch16_224",
            {"img_size": 32, "depth": 2, "embed_dim": 48},
            "patch_embed.proj.weight",
            "144x256",
        ),
        (
            "swin_tiny_patch4_window7_224",
            {"img_size": 32, "depths": (1, 1), "embed_dim": 24, "num_heads": (2, 2), "window_size": 4},
            "patch_embed.proj.weight",
            "24x48",
        ),
    ],
)
def test_finetune_timm(run, timm, tmp_path, monkeypatch, name, options, parameter, matrix):
    create = timm.create_model

    def small(name, **others):
        model = create(name, **others, **options)
        model.pretrained_cfg["input_size"] = (3, 32, 32)
        return model

    monkeypatch.setattr(timm, "create_model", small)
    weights = small(name).state_dict()
    torch.save({"model": weights}, tmp_path / "weights.pth")
    arguments = ["--model", name, "--synthetic", "--epochs", 15, "--batch-size", 8]
    output = run("finetune_timm.py", *arguments, "--weights", tmp_path / "weights.pth", "--fallback-lr", 3e-3)
    header, row = output.splitlines()[:2]
    assert header.split()[0] == "group"
    assert row.split()[1] == parameter
    assert matrix in row.split()
    assert accuracies(output)[-1] > 0.9
    with pytest.raises(SystemExit, match=r"nowhere\.pth does not exist: download the weights"):
        run("finetune_timm.py", *arguments, "--weights", tmp_path / "nowhere.pth")
    torch.save({"weight": torch.ones(3)}, tmp_path / "other.pth")
    with pytest.raises(SystemExit, match=r"other\.pth does not contain weights of this model"):
        run("finetune_timm.py", *arguments, "--weights", tmp_path / "other.pth")
