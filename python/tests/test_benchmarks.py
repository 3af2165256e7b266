"""The arithmetic of the benchmarks: ratios, flops, exponents, and what they print."""

import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import baselines
import machine
import measure
import parts
import ratios
import scaling
import step_table

MACHINE = {"cpu": "AMD EPYC (Zen)", "instructions": "AVX2", "cores": 4, "threads": 2, "torch": "2.13.0", "mkl": None}


def test_profiler_output_is_discarded(capfd):
    # torch's profiler printed lines that begin with USDT into the tables.
    with measure.without_profiler_noise():
        print("first")
        os.write(1, b"USDT: something\n")
        print("second: USDT")
        os.write(2, b"USDT again\nkept\n")
    assert capfd.readouterr() == ("first\nsecond: USDT\n", "kept\n")


def test_output_is_restored_after_an_error(capfd):
    with pytest.raises(ValueError, match="inside"), measure.without_profiler_noise():
        print("before")
        raise ValueError("inside")
    print("after")
    assert capfd.readouterr().out == "before\nafter\n"


def test_paired_ratios_ignore_slow_rounds():
    base = [1.0, 10.0, 2.0, 1.0, 5.0]
    found = measure.paired_ratio([0.5, 5.0, 1.2, 0.4, 2.5], base)
    assert found == measure.Ratio(*map(pytest.approx, (0.5, 0.5, 0.5)))
    assert measure.paired_ratio([3.0], [2.0]) == measure.Ratio(1.5, 1.5, 1.5)


@pytest.mark.parametrize("slope", [1.0, 1.5])
def test_exponent(slope):
    sizes = [3.0, 10.0, 50.0]
    assert scaling.exponent(sizes, [0.2 * size**slope for size in sizes]) == pytest.approx(slope)


@pytest.mark.parametrize(
    ("settings", "name", "words"),
    [
        ({}, "amd-epyc-zen-avx2", ", AVX2, "),
        ({"MKL_CBWR": "AVX2"}, "amd-epyc-zen-avx2-emulated", "emulated by MKL_CBWR"),
    ],
)
def test_results_name_the_cpu(settings, name, words):
    found = {**MACHINE, "emulated_by": settings}
    assert machine.slug(found) == name
    assert words in machine.headline(found)


def test_emulation_is_recorded(monkeypatch):
    for variable in machine.EMULATION:
        monkeypatch.delenv(variable, raising=False)
    assert machine.describe()["emulated_by"] == {}
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "avx2")
    assert machine.describe()["emulated_by"] == {"ATEN_CPU_CAPABILITY": "avx2"}


def test_a_table_of_one_small_layer(capsys):
    network, judge = "swin_tiny_patch_embedding", step_table.Judge()
    rows = step_table.run(network, "power_law", baselines.methods(quick=True), 1, judge)
    assert {row.unfolding for row in rows} == {"balanced", "online", "flattened"}
    by_method = {(row.unfolding, row.method): row for row in rows}
    plain = by_method["balanced", baselines.PLAIN]
    # 96 x 48: five times two products of m x m with m x n, and one of m x m with m x m.
    assert plain.product_gflop == pytest.approx(1e-9 * 5 * (2 * 2 * 48**2 * 96 + 2 * 48**3))
    assert plain.relative_to_plain == 1
    default = by_method["balanced", baselines.DEFAULT]
    assert default.quality_least > 0.97 > plain.quality_least
    assert default.relative_to_plain == pytest.approx(default.seconds / plain.seconds)
    step_table.print_rows(rows)
    shown = capsys.readouterr().out
    assert shown.index("Balanced unfoldings") < shown.index(", online") < shown.index("Flattened kernels")


def test_ratios_come_from_the_rows_of_the_default():
    row = step_table.Row(
        network="resnet18",
        spectrum="trained",
        unfolding="balanced",
        method=baselines.DEFAULT,
        seconds=1.0,
        quality_mean=0.98,
        quality_least=0.97,
        relative_to_plain=0.27,
        relative_to_floor=3.5,
        product_gflop=1.0,
        extra_memory=5.0,
    )
    rows = [replace(row, method=baselines.PLAIN, relative_to_plain=1.0), row]
    rows += [replace(row, unfolding="online", extra_memory=8.5), replace(row, spectrum="gaussian")]
    found = {one.key: one for one in ratios.from_rows(rows)}
    assert {key: (one.measured, one.reached) for key, one in found.items()} == {
        "balanced": (0.27, True),
        "floor": (3.5, False),
        "online_memory": (8.5, True),
    }


@pytest.mark.parametrize("patch", sorted(parts.PATCHES.glob("*.patch")), ids=lambda patch: patch.stem)
def test_patches_that_remove_a_part_apply(patch, tmp_path):
    # Each patch changes one or two files of the library, which may have changed since the patch was written.
    for line in patch.read_text().splitlines():
        if line.startswith("+++ b/"):
            file = tmp_path / line.removeprefix("+++ b/")
            file.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(parts.ROOT / file.relative_to(tmp_path), file)
    parts.apply(patch, tmp_path)
