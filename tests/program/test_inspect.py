"""`tensorion inspect`, `--version`, `--help`, and errors of the command line."""

import json
import math
import re
import signal
import subprocess

import numpy as np
import pytest
from program import PROGRAM, run, write_safetensors

import tensorion


def inspect_json(shapes):
    return json.loads(run("inspect", shapes, "--json").stdout)


def test_version_and_help():
    assert run("--version").stdout.startswith(f"tensorion {tensorion.__version__} (torch 2.13")
    assert "inspect" in run("--help").stdout
    assert "--json" in run("inspect", "--help").stdout


def test_json_matches_library():
    shapes = [(64, 3, 7, 7), (512, 512, 3, 3), (1, 197, 384), (10,), (2, 3, 4, 5, 6)]
    report = inspect_json(",".join("x".join(map(str, shape)) for shape in shapes))
    assert [tuple(tensor["shape"]) for tensor in report["tensors"]] == shapes
    total = 0.0
    for shape, tensor in zip(shapes, report["tensors"], strict=True):
        assert tensor["order"] == {3: 2}.get(len(shape), len(shape))  # of 1 x 197 x 384, 2
        assert tensor["update"] == ("fallback" if len(shape) in (1, 3) else "tensorion")
        assert tensor["elements"] == math.prod(shape)
        modes = [tuple(unfolding["modes"]) for unfolding in tensor["unfoldings"]]
        assert modes == tensorion.unfoldings(shape)
        for unfolding in tensor["unfoldings"]:
            rows = math.prod(shape[mode] for mode in unfolding["modes"])
            m, n = sorted((rows, math.prod(shape) // rows))
            assert (unfolding["rows"], unfolding["cols"]) == (rows, math.prod(shape) // rows)
            assert unfolding["gflop"] == pytest.approx(3 * m**2 * n / 1e9)
            is_balanced = tuple(unfolding["modes"]) == tensorion.balanced_unfolding(shape)
            assert unfolding["balanced"] == is_balanced
            total += unfolding["gflop"] * is_balanced
    assert report["balanced_gflop"] == pytest.approx(total)


def test_resnet18():
    tensors = inspect_json("resnet18")["tensors"]
    assert len(tensors) == 21
    # ResNet-18 has 11,689,512 weights, including 9,600 in batch norms and 1,000 in the last bias.
    assert sum(tensor["elements"] for tensor in tensors) == 11_689_512 - 9_600 - 1_000
    shapes = {tensor["name"]: tensor["shape"] for tensor in tensors}
    assert shapes["layer3.0.downsample.0.weight"] == [256, 128, 1, 1]
    assert shapes["layer4.1.conv2.weight"] == [512, 512, 3, 3]


def test_all_model_names_are_accepted():
    shapes = {tensor["name"]: tensor["shape"] for tensor in inspect_json("vit_small_patch16_224")["tensors"]}
    assert shapes["patch_embed.proj.weight"] == [384, 3, 16, 16]


def test_table_lists_all_unfoldings_of_all_shapes():
    lines = run("inspect", "8x4x3x3,5,8x4x3x3").stdout.splitlines()
    assert lines[0].split() == ["shape", "order", "update", "modes", "rows", "cols", "GFLOP"]
    rows = lines[1 : lines.index("")]
    assert len(rows) == 7 + 1
    assert re.split(r"\s{2,}", rows[0]) == ["8x4x3x3", "4", "tensorion", "{0}", "8", "36", "6.91e-06"]
    assert [row.split()[0] for row in rows if row.endswith("balanced")] == ["{0,2}"]
    assert rows[-1].endswith("no unfolding")
    assert len({row.index("{") for row in rows if "{" in row}) == 1
    assert lines[-2].startswith("3 tensors, 581 elements; ")


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ("3x-1", "[tensorion inspect] expected a shape of positive sizes such as 64x3x7x7, a model"),
        ("3x-1", ", got '3x-1'"),
        ("3x0", "got '3x0'"),
        ("3xx4", "got '3xx4'"),
        ("3x4,", "got ''"),
        ("3x4.5", "got '3x4.5'"),
        ("resnet19", "got 'resnet19'"),
        ("99999999999999999999", "got '99999999999999999999'"),
        ("4294967296x4294967296", "fewer than 2^63 elements, got '4294967296x4294967296'"),
        ("x".join("2" * 25), "[tensorion.unfoldings] at most 24 modes"),
    ],
)
def test_bad_shapes_are_errors(shapes, message):
    result = run("inspect", shapes, expect=2)
    assert result.stdout == ""
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_norms_of_a_file(tmp_path):
    random = np.random.default_rng(1)
    kernel = random.standard_normal((4, 3, 2, 2), dtype=np.float32)
    bias = random.standard_normal(5, dtype=np.float32)
    path = tmp_path / "weights.safetensors"
    write_safetensors(path, {"conv": kernel, "bias": bias, "count": np.array([3])})
    found = {tensor["name"]: tensor for tensor in inspect_json(path)["tensors"]}
    assert found.keys() == {"conv", "bias"}
    spectra = []
    for choice in found["conv"]["unfoldings"]:
        rest = [mode for mode in range(4) if mode not in choice["modes"]]
        matrix = kernel.transpose(*choice["modes"], *rest).reshape(choice["rows"], choice["cols"])
        spectra.append(np.linalg.svd(matrix, compute_uv=False))
        assert choice["nuclear_norm"] == pytest.approx(spectra[-1].sum(), rel=1e-5)
        assert choice["spectral_norm"] == pytest.approx(spectra[-1].max(), rel=1e-5)
    assert found["conv"]["dual_norm"] == pytest.approx(max(s.sum() for s in spectra), rel=1e-5)
    assert found["conv"]["relaxed_norm_at_most"] == pytest.approx(min(s.max() for s in spectra), rel=1e-5)
    assert found["bias"]["frobenius_norm"] == pytest.approx(np.linalg.norm(bias), rel=1e-6)
    assert found["bias"]["dual_norm"] == pytest.approx(np.linalg.norm(bias), rel=1e-6)
    table = run("inspect", path).stdout
    assert "nuclear" in table and "conv" in table and "{0,2}" in table


def test_error_names_missing_file(tmp_path):
    assert "missing.safetensors" in run("inspect", tmp_path / "missing.safetensors", expect=1).stderr


def test_error_names_truncated_file(tmp_path):
    short = tmp_path / "short.safetensors"
    short.write_bytes(b"\x01\x02")
    assert "short.safetensors" in run("inspect", short, expect=1).stderr


def test_file_without_floating_point_tensors_is_an_error(tmp_path):
    integers = tmp_path / "integers.safetensors"
    write_safetensors(integers, {"count": np.array([3])})
    assert "expected floating-point tensors, got none" in run("inspect", integers, expect=1).stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Usage: tensorion"),
        (("inspekt",), "inspekt"),
        (("inspect",), "shapes is required"),
        (("inspect", "3x4", "--jsn"), "--jsn"),
    ],
)
def test_bad_usage_is_an_error(arguments, message):
    result = run(*arguments, expect=2)
    assert result.stdout == ""
    assert message in result.stderr


def test_program_ends_if_its_output_is_closed():
    # The launcher is a Python script, and Python ignores SIGPIPE. The program must not inherit that.
    program = subprocess.Popen([PROGRAM, "inspect", "x".join("2" * 13)], stdout=subprocess.PIPE)
    program.stdout.read(1)
    program.stdout.close()
    assert program.wait(timeout=60) == -signal.SIGPIPE
