"""The commands that rerun the paper's experiments, at toy sizes, through the real program."""

import json
import math
import re
import shlex
import subprocess
import sysconfig
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = Path(sysconfig.get_path("scripts")) / "tensorion"
DOCUMENT = ROOT / "docs" / "experiments.md"


def run(*arguments, expect=0):
    command = [PROGRAM, *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == expect, result.stderr
    return result


def read_json(path):
    return json.loads(path.read_text())


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def pictures(folder):
    return {path.name for path in (folder / "report").glob("*.png")}


LAPLACE = ["laplace", "--scale", "smoke", "--steps", "40", "--threads", "1"]


def test_laplace(tmp_path):
    out = tmp_path / "laplace"
    optimizers = ["tensorion", "muon", "sgd"]
    lrs = [1e-3, 1e-2]
    result = run(
        *(*LAPLACE, "--problems", "3x6x2,5x4x2", "--optimizers", ",".join(optimizers), "--lrs", "1e-3,1e-2"),
        *("--seeds", "0,1", "--out", out),
    )
    rows = lines(out / "metrics.jsonl")
    assert {row["problem"] for row in rows} == {"3x6x2", "5x4x2"}
    for problem in read_json(out / "summary.json")["problems"]:
        d, n = problem["dimensions"], problem["points"]
        # By numpy, from the one-dimensional matrix: the eigenvalue of a Kronecker sum is a sum.
        matrix = (2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)) * (n + 1) ** 2
        assert problem["eigenvalue"] == pytest.approx(d * np.linalg.eigvalsh(matrix)[0], rel=1e-12)
        assert [entry["optimizer"] for entry in problem["optimizers"]] == optimizers
        for entry in problem["optimizers"]:
            own = [
                row for row in rows if (row["problem"], row["optimizer"]) == (problem["problem"], entry["optimizer"])
            ]
            assert [rate["lr"] for rate in entry["rates"]] == lrs
            for rate in entry["rates"]:
                last = [row for row in own if row["lr"] == rate["lr"] and row["step"] == 40]
                assert [row["seed"] for row in last] == [0, 1]
                assert rate["error"] == pytest.approx(math.sqrt(last[0]["error"] * last[1]["error"]))
                for row in last:
                    expected = abs(row["quotient"] / problem["eigenvalue"] - 1)
                    assert row["error"] == pytest.approx(expected, abs=1e-12)
            best = min(entry["rates"], key=lambda rate: rate["error"])
            assert entry["best"]["lr"] == best["lr"]
            # The same trains for all, and going down.
            assert entry["best"]["points"][-1]["error"] < entry["best"]["points"][0]["error"]
            line = next(
                line
                for line in result.stdout.splitlines()[1:]
                if line.split()[:2] == [entry["optimizer"], f"{best['lr']:g}"] and f"{best['error']:.2e}" in line
            )
            assert line.split()[2] == f"{best['error']:.2e}"
    assert len({row["quotient"] for row in rows if row["step"] == 0}) == 4  # problems x seeds
    assert pictures(out) == {
        f"{name}-{problem}.png"
        for name in ("error_by_lr", "error_by_step", "residual_by_step")
        for problem in ("3x6x2", "5x4x2")
    }
    assert f"figures in {out}/report" in result.stdout
    page = (out / "report" / "index.html").read_text()
    assert page.count("<h2>") == 2
    assert "already has results" in run(*LAPLACE, "--out", out, expect=1).stderr


def test_laplace_where_all_diverges(tmp_path):
    out = tmp_path / "laplace"
    result = run(*LAPLACE, "--optimizers", "sgd", "--lrs", "1e300", "--out", out)
    assert re.search(r"^sgd +diverged$", result.stdout, re.MULTILINE)
    (problem,) = read_json(out / "summary.json")["problems"]
    assert problem["optimizers"][0]["best"] is None
    assert problem["optimizers"][0]["rates"][0]["error"] is None
    assert pictures(out) == set()


@pytest.mark.parametrize(
    ("flags", "status", "message"),
    [
        (["laplace", "--problems", "3x4"], 1, "dimensions x points x rank, such as 10x32x8, got '3x4'"),
        (["laplace", "--optimizers", "lion"], 2, "lion"),
        (["laplace", "--scale", "tiny"], 2, "tiny not in {paper,small,smoke}"),
        (["laplace", "--lrs", "-1"], 2, "--lrs"),
    ],
)
def test_wrong_options_are_named(flags, status, message, tmp_path):
    assert message in run(*flags, "--out", tmp_path / "out", expect=status).stderr
    assert not (tmp_path / "out" / "metrics.jsonl").exists()


def documented_commands():
    text = DOCUMENT.read_text().replace("\\\n", "")
    return [line for line in text.splitlines() if line.startswith("tensorion ")]


# What replaces the flags of a documented command, so that it takes a second or two.
TINY = {
    "laplace": {"--problems": "3x4x2", "--steps": "10", "--lrs": "0.01", "--seeds": "0", "--threads": "1"},
}


@pytest.mark.parametrize("command", documented_commands())
def test_documented_commands_run(command, tmp_path):
    _, name, *flags = shlex.split(command)
    replaced = {"--scale": "smoke", "--out": tmp_path / "out", **TINY[name]}
    kept = [flag for i, flag in enumerate(flags) if {flag, flags[i - 1]}.isdisjoint(replaced)]
    run(name, *kept, *(word for flag in replaced.items() for word in flag))


@pytest.mark.parametrize("command", sorted(TINY))
def test_every_flag_is_documented(command):
    flags = set(re.findall(r"--[a-z][a-z-]*", run(command, "--help").stdout)) - {"--help"}
    text = DOCUMENT.read_text() + (ROOT / "docs" / "training.md").read_text()
    assert {flag for flag in flags if f"`{flag}" not in text} == set()
