import importlib.metadata
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
    headers = {path.name for path in (prefix / "include" / "tensorion").iterdir()}
    root = Path(__file__).parents[2]
    assert headers == {path.name for path in (root / "tensorion").glob("*.h")}
    assert (prefix / "py.typed").is_file()


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
