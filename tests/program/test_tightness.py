"""`tensorion tightness` with a small model."""

import json
import math

import numpy as np
import pytest
from program import figures, read_json, read_json_lines, run, words
from tiny_training import TINY_TIGHTNESS, stuck_after_an_epoch

import tensorion


def test_tightness(image_folder, tmp_path):
    out = tmp_path / "tightness"
    flags = ["tightness", "--scale", "smoke", "--data", image_folder, *words(TINY_TIGHTNESS), "--out", out]
    result = run(*flags)
    rows = read_json_lines(out / "metrics.jsonl")
    config = read_json(out / "run" / "config.json")
    assert (config["optimizer"], config["fallback"], config["lr"]) == ("tensorion", "sgd", 0.001)
    assert sorted({row["step"] for row in rows}) == [4, 8, 12]  # There are 2 x 6 steps.
    kernels = list(dict.fromkeys(row["layer"] for row in rows))
    assert len(rows) == 3 * len(kernels)
    for row in rows:
        sets = tensorion.unfoldings(row["shape"])
        best = max(range(len(sets)), key=row["nuclear_norms"].__getitem__)
        assert tuple(row["online"]) == sets[best]
        assert tuple(row["balanced"]) == tensorion.balanced_unfolding(row["shape"])
        assert row["online_norm"] == row["nuclear_norms"][best]
        assert row["gap"] == pytest.approx(1 - row["balanced_norm"] / row["online_norm"], abs=1e-12)
        assert row["relaxed_lower"] == pytest.approx(1, abs=1e-4)
        assert row["relaxed_upper"] == pytest.approx(1, abs=1e-4)
        assert 0.2 < row["spectral"] <= 1 + 1e-4

    summary = read_json(out / "summary.json")
    gap = summary["tables"][0]["rows"][0]
    assert gap[1:4] == [f"{function([row['gap'] for row in rows]):.4f}" for function in (np.mean, min, max)]
    assert gap[4] == "mean 0.0039, max 0.0732"
    other = np.mean([row["online"] != row["balanced"] for row in rows])
    assert summary["tables"][0]["rows"][4][1] == f"{other:.4f}"
    assert [row[0] for row in summary["tables"][1]["rows"]] == kernels
    assert {entry["layer"] for entry in summary["convolutions"]} == set(kernels)
    for entry in summary["convolutions"]:
        assert entry["spectral"] <= entry["convolution"] * 1.001
        root = math.sqrt(math.prod(entry["shape"][2:]))
        assert entry["root_times_spectral"] == pytest.approx(root * entry["spectral"])
        # root_times_spectral is not checked, because the real spectral norm gives no upper bound (docs/math.md).
        assert entry["convolution"] <= root * entry["relaxed_upper"] * 1.001
        assert entry["relaxed_lower"] <= entry["relaxed_upper"]
    assert figures(out) == {"spectral_norm.png", "gap.png", "nuclear_norms.png"}
    assert (out / "report" / "index.html").read_text().count("<h2>") == 3

    # The file of weights gives the same table of convolutions.
    shown = run("inspect", out / "run" / "weights.safetensors", "--convolution", 16, "--certify", 1000)
    assert shown.stdout in result.stdout
    shown = run("inspect", out / "run" / "weights.safetensors", "--convolution", 16, "--certify", 1000, "--json")
    # Another number of threads changes the rounding of sums.
    for ours, theirs in zip(json.loads(shown.stdout), summary["convolutions"], strict=True):
        assert ours == {
            key: value if key in ("layer", "shape") else pytest.approx(value, rel=1e-5) for key, value in theirs.items()
        }
    # The experiment has finished, so --resume prints the same table at once.
    assert run(*flags, "--resume").stdout == result.stdout
    assert "already contains results" in run(*flags, expect=1).stderr


def test_the_height_and_the_width_can_be_exchanged(image_folder, tmp_path):
    flags = ["tightness", "--scale", "smoke", "--data", image_folder, *words(TINY_TIGHTNESS)]
    ratios = {}
    for name, more in {"plain": [], "transposed": ["--transpose"], "unflipped": ["--flip", "none"]}.items():
        out = tmp_path / name
        run(*flags, *more, "--out", out)
        rows = [row for row in read_json_lines(out / "metrics.jsonl") if len(row["nuclear_norms"]) == 7]
        expected = np.mean([row["nuclear_norms"][6] / row["nuclear_norms"][5] - 1 for row in rows])
        shown = read_json(out / "summary.json")["tables"][0]["rows"][5]
        assert shown[0] == "||M_{1,4}||_* / ||M_{1,3}||_* - 1"
        assert float(shown[1]) == pytest.approx(expected, abs=5.1e-5)
        ratios[name] = expected
        config = read_json(out / "run" / "config.json")
        assert (config["transpose"], config["flip"]) == (
            bool(more[:1] == ["--transpose"]),
            (more[1:] or ["horizontal"])[0],
        )
    assert len(set(ratios.values())) == 3


def test_tightness_resumes(image_folder, tmp_path):
    flags = ["tightness", "--scale", "smoke", "--data", image_folder, *words(TINY_TIGHTNESS)]
    run(*flags, "--out", tmp_path / "whole")
    out = tmp_path / "stopped"
    flags = [*flags, "--out", out, "--resume"]
    with stuck_after_an_epoch(*flags, folder=out / "run") as program:
        program.process.kill()
    assert {row["step"] for row in read_json_lines(out / "metrics.jsonl")} == {4}  # 8 and 12 are missing.
    run(*flags)
    expected = read_json_lines(tmp_path / "whole" / "metrics.jsonl")
    assert read_json_lines(out / "metrics.jsonl") == expected


def test_bad_options_are_errors(tmp_path):
    assert "--every" in run("tightness", "--every", "0", "--out", tmp_path / "out", expect=2).stderr
    assert not (tmp_path / "out").exists()
