import importlib.metadata
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

import tensorion
from tensorion import _library


def test_package_has_install_tree():
    prefix = Path(tensorion.cmake_prefix_path)
    assert (prefix / "lib" / "libtensorion.so").is_file()
    assert (prefix / "lib" / "cmake" / "Tensorion" / "TensorionConfig.cmake").is_file()
    assert (Path(tensorion.__file__).parent / "py.typed").is_file()


def test_installed_headers_include_only_installed_headers():
    include = Path(tensorion.cmake_prefix_path) / "include"
    headers = list(include.glob("tensorion/*.h"))
    assert {"unfolding.h", "optimizer.h"} <= {header.name for header in headers}
    for header in headers:
        for name in re.findall(r'#include "(.*)"', header.read_text()):
            assert (include / name).is_file(), f"{header.name} includes {name}"


def test_version_matches_metadata():
    assert tensorion.__version__ == importlib.metadata.version("tensorion")


def test_all_names_exist():
    assert all(hasattr(tensorion, name) for name in tensorion.__all__)


def test_error_names_library_that_does_not_load(tmp_path):
    broken = tmp_path / "libtensorion_ops.so"
    broken.write_bytes(b"not a library")
    with pytest.raises(ImportError, match=r"libtensorion_ops\.so could not be loaded with torch "):
        _library.load(broken)


def package_for(tmp_path, *versions):
    for version in versions:
        (tmp_path / f"torch-{version}").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("version", "folder"),
    [
        ("2.13.0", "torch-2.13"),
        ("2.15.1+cu130", "torch-2.15"),
        ("2.15.0a0+git123", "torch-2.15"),
        ("2.1.0", "torch-2.1"),
    ],
)
def test_libraries_match_installed_torch(tmp_path, version, folder):
    package = package_for(tmp_path, "2.1", "2.13", "2.15")
    assert _library.choose(package, version) == tmp_path / folder


@pytest.mark.parametrize(
    ("versions", "torch_version", "parts"),
    [
        (["2.9", "2.13", "2.15"], "2.11.0+cpu", ["built for torch 2.9, 2.13 and 2.15, got torch 2.11.0+cpu"]),
        (["2.13"], "2.11.0", ["built for torch 2.13, got", "from source", "2.11", "'torch==2.13.*'"]),
        (["2.9", "2.13"], "2.6.1", ["supports torch 2.7 to 2.15", "pip install 'torch==2.13.*'"]),
        (["2.13"], "2.100.0", ["supports torch 2.7 to 2.15"]),
        (["2.13"], "1.13.0", ["supports torch 2.7 to 2.15"]),
        ([], "2.13.0", ["has no libraries, got torch 2.13.0", "from source"]),
    ],
)
def test_unsupported_torch_raises_with_advice(tmp_path, versions, torch_version, parts):
    with pytest.raises(ImportError) as error:
        _library.choose(package_for(tmp_path, *versions), torch_version)
    for part in parts:
        assert part in str(error.value)


def test_metadata_allows_supported_versions():
    (torch_requirement,) = [r for r in importlib.metadata.requires("tensorion") if re.match(r"torch\b", r)]
    first, last = _library.SUPPORTED
    major, minor = last.split(".")
    assert set(re.findall(r"[<>=]+[0-9.]+", torch_requirement)) == {f">={first}", f"<{major}.{int(minor) + 1}"}


def needed_libraries(path):
    """The DT_NEEDED entries of a 64-bit little-endian ELF file."""
    data = path.read_bytes()
    assert data[:6] == b"\x7fELF\x02\x01"
    (table,), (entry_size, entries) = struct.unpack_from("<Q", data, 40), struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * entry_size) for i in range(entries)]
    (dynamic,) = [section for section in sections if section[1] == 6]  # SHT_DYNAMIC
    strings = sections[dynamic[6]][4]
    tags = [struct.unpack_from("<qQ", data, dynamic[4] + i) for i in range(0, dynamic[5], 16)]
    starts = [strings + value for tag, value in tags if tag == 1]  # DT_NEEDED
    return [data[start : data.index(b"\0", start)].decode() for start in starts]


@pytest.mark.skipif(sys.platform != "linux", reason="reads ELF files")
@pytest.mark.parametrize("name", ["libtensorion.so", "libtensorion_ops.so"])
def test_libraries_do_not_link_device_libraries(name):
    """A build against a CUDA build of torch loads in a CPU build, and the other way around."""
    needed = needed_libraries(Path(tensorion.cmake_prefix_path) / "lib" / name)
    assert {"libtorch_cpu.so", "libc10.so"} <= set(needed)
    assert not [library for library in needed if re.search("cuda|cudart|nvrtc|hip|xpu|libtorch.so", library)]


def test_launcher_does_not_import_torch():
    code = "import sys, tensorion_lab.cli; sys.exit('torch' in sys.modules or 'tensorion' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
