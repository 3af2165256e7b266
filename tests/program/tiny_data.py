"""Fixtures with tiny data sets in the formats that the program reads."""

import pytest
from tiny_training import write_cifar10, write_image_folder


@pytest.fixture(scope="session")
def cifar10(tmp_path_factory):
    """A folder with CIFAR-10's binary files."""
    folder = tmp_path_factory.mktemp("cifar10")
    write_cifar10(folder)
    return folder


@pytest.fixture(scope="session")
def image_folder(tmp_path_factory):
    """An image folder with JPEG files."""
    folder = tmp_path_factory.mktemp("images")
    write_image_folder(folder)
    return folder
