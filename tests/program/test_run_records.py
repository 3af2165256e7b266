"""The record of a run's data, which is checked when the run is resumed or reported on."""

import json
import struct

import numpy as np
import pytest
import tiny_training
from PIL import Image
from program import read_json, run
from tiny_training import metrics, write_cifar10, write_image_folder

IMAGE_FOLDER = [
    "--dataset",
    "imagefolder",
    "--epochs",
    "1",
    "--threads",
    "1",
    "--batch-size",
    "20",
    *tiny_training.TINY_MODEL,
]


@pytest.fixture(scope="module")
def other_cifar10(tmp_path_factory):
    """The data of `cifar10` with one pixel changed."""
    folder = tmp_path_factory.mktemp("other")
    write_cifar10(folder)
    content = bytearray((folder / "test_batch.bin").read_bytes())
    content[-1] ^= 1
    (folder / "test_batch.bin").write_bytes(content)
    return folder


def test_data_is_recorded_and_checked(cifar10, other_cifar10, tmp_path):
    """Regression: a run could be resumed with another data folder with the same number of samples."""
    out = tmp_path / "run"
    run("train", *tiny_training.flags(cifar10, epochs=1), "--out", out)
    config = read_json(out / "config.json")
    assert config["data"] == str(cifar10)
    assert config["class_names"][:2] == ["airplane", "automobile"]
    assert config["preprocessing"]["size"] == [32, 32]
    assert config["preprocessing"]["train"] == "random crop, padding 4, random horizontal flip"
    assert config["preprocessing"]["test"] == "none"
    assert config["preprocessing"]["mean"][0] == pytest.approx(125.307 / 255)
    message = run("train", *tiny_training.flags(other_cifar10, epochs=1), "--out", out, "--resume", expect=1).stderr
    assert f'was started with other data: data_fingerprint "{config["data_fingerprint"]}", got ' in message
    moved = tmp_path / "moved"
    moved.mkdir()
    write_cifar10(moved)
    run("train", *tiny_training.flags(moved, epochs=1), "--out", out, "--resume")


def test_weights_record_their_classes(cifar10, tmp_path):
    run("train", *tiny_training.flags(cifar10, epochs=1), "--out", tmp_path / "run")
    content = (tmp_path / "run" / "weights.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    metadata = json.loads(content[8 : 8 + length])["__metadata__"]
    assert json.loads(metadata["class_names"])[-1] == "truck"
    assert metadata["model"] == "resnet18"
    assert json.loads(metadata["preprocessing"])["size"] == [32, 32]


def test_png_images_train_like_the_same_pixels(tmp_path):
    """PNG is lossless. Palettes, grayscale, 16 bits and transparency are converted in the same way as by Pillow."""
    numbers = np.random.default_rng(0)
    for split in ("train", "val"):
        for label in ("a", "b"):
            folder = tmp_path / "png" / split / label
            folder.mkdir(parents=True)
            for i, mode in enumerate(("RGB", "RGBA", "L", "P", "1")):
                image = Image.fromarray(numbers.integers(0, 255, (32, 32, 3)).astype(np.uint8))
                image.convert(mode).save(folder / f"{i}.PNG")
    run("train", *IMAGE_FOLDER, "--data", tmp_path / "png", "--out", tmp_path / "run")
    assert read_json(tmp_path / "run" / "config.json")["train_samples"] == 10


def test_error_names_broken_png(tmp_path):
    for split in ("train", "val"):
        (tmp_path / split / "a").mkdir(parents=True)
        Image.new("RGB", (32, 32)).save(tmp_path / split / "a" / "x.png")
    good = (tmp_path / "train" / "a" / "x.png").read_bytes()
    (tmp_path / "train" / "a" / "x.png").write_bytes(good[:-30])
    message = run("train", *IMAGE_FOLDER, "--data", tmp_path, "--out", tmp_path / "run", expect=1).stderr
    assert "train/a/x.png: not a valid PNG image: " in message


def test_image_size_resizes_all_images(tmp_path):
    """Regression: if the size was taken from the first image, the other images were not resized and raised an error."""
    write_image_folder(tmp_path / "data")
    Image.new("RGB", (40, 60)).save(tmp_path / "data" / "train" / "class9" / "5.jpg")
    flags = ["train", *IMAGE_FOLDER, "--data", tmp_path / "data", "--out", tmp_path / "run"]
    assert "(--image-size resizes all images)" in run(*flags, expect=1).stderr
    run(*flags, "--image-size", "32")
    assert "random resized crop" in read_json(tmp_path / "run" / "config.json")["preprocessing"]["train"]
    assert len(metrics(tmp_path / "run")) == 1
