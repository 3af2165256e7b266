import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tensorion
from tensorion import _library


def test_layout_is_that_of_the_install_tree():
    prefix = Path(tensorion.cmake_prefix_path)
    assert (prefix / "lib" / "libtensorion.so").is_file()
    assert (prefix / "lib" / "cmake" / "Tensorion" / "TensorionConfig.cmake").is_file()
    assert (prefix / "py.typed").is_file()


def test_installed_headers_include_only_installed_headers():
    include = Path(tensorion.cmake_prefix_path) / "include"
    headers = list(include.glob("tensorion/*.h"))
    assert {"unfolding.h", "optimizer.h"} <= {header.name for header in headers}
    for header in headers:
        for name in re.findall(r'#include "(.*)"', header.read_text()):
            assert (include / name).is_file(), f"{header.name} includes {name}"


def test_version_is_the_metadatas():
    assert tensorion.__version__ == importlib.metadata.version("tensorion")


def test_all_names_exist():
    assert all(hasattr(tensorion, name) for name in tensorion.__all__)


def test_a_library_that_does_not_load_is_named(tmp_path):
    broken = tmp_path / "libtensorion_ops.so"
    broken.write_bytes(b"not a library")
    with pytest.raises(ImportError, match=r"libtensorion_ops\.so could not be loaded with torch "):
        _library.load(broken)


def test_the_launcher_does_not_import_torch():
    code = "import sys, tensorion_lab.cli; sys.exit('torch' in sys.modules or 'tensorion' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
