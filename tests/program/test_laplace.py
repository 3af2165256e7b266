"""`tensorion laplace` with small problems."""

import math
import re
import signal
import subprocess
import time

import numpy as np
import pytest
from program import PROGRAM, pictures, read_json, read_json_lines, run

LAPLACE = ["laplace", "--scale", "smoke", "--steps", "40", "--threads", "1"]


def test_laplace(tmp_path):
    out = tmp_path / "laplace"
    optimizers = ["tensorion", "muon", "sgd"]
    lrs = [1e-3, 1e-2]
    result = run(
        *(*LAPLACE, "--problems", "3x6x2,5x4x2", "--optimizers", ",".join(optimizers), "--lrs", "1e-3,1e-2"),
        *("--seeds", "0,1", "--out", out),
    )
    rows = read_json_lines(out / "metrics.jsonl")
    assert {row["problem"] for row in rows} == {"3x6x2", "5x4x2"}
    for problem in read_json(out / "summary.json")["problems"]:
        d, n = problem["dimensions"], problem["points"]
        # The reference is NumPy's eigenvalue of the 1-D matrix. Eigenvalues of a Kronecker sum are sums of eigenvalues.
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
            # All runs start from the same tensor trains, and their quotients decrease.
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
    assert "already contains results" in run(*LAPLACE, "--out", out, expect=1).stderr


def test_laplace_resumes_with_more_runs(tmp_path):
    out = tmp_path / "laplace"
    flags = [*LAPLACE, "--optimizers", "sgd,muon", "--out", out]
    run(*flags, "--lrs", "0.01")
    first = read_json_lines(out / "metrics.jsonl")
    run(*flags, "--lrs", "0.01,0.1", "--resume")
    both = read_json_lines(out / "metrics.jsonl")
    # The old runs are unchanged, including their times, and there are new ones.
    assert [row for row in both if row["lr"] == 0.01] == sorted(first, key=lambda row: row["optimizer"])
    assert {row["lr"] for row in both} == {0.01, 0.1}
    problem = read_json(out / "summary.json")["problems"][0]
    assert [rate["lr"] for rate in problem["optimizers"][0]["rates"]] == [0.01, 0.1]
    message = run(*flags, "--lrs", "0.01", "--resume", "--schedule", "cosine", expect=1).stderr
    assert 'was begun with other options: schedule "constant", got "cosine"' in message


def test_laplace_resumes_without_flags(tmp_path):
    out = tmp_path / "laplace"
    run(*LAPLACE, "--optimizers", "sgd", "--lrs", "0.01", "--momentum", "0.8", "--out", out)
    config = read_json(out / "config.json")
    run("laplace", "--resume", out, "--optimizers", "sgd,muon")  # The command line overrides the file.
    assert read_json(out / "config.json") == config | {"optimizers": ["sgd", "muon"]}
    assert {row["optimizer"] for row in read_json_lines(out / "metrics.jsonl")} == {"sgd", "muon"}
    # Repeat the run from its recorded config, and from the output of --print-config.
    run("laplace", "--config", out / "config.json", "--out", tmp_path / "again")
    assert read_json(tmp_path / "again" / "config.json") == read_json(out / "config.json")
    printed = run("laplace", "--config", out / "config.json", "--print-config").stdout
    (tmp_path / "config.toml").write_text(printed)
    run("laplace", "--config", tmp_path / "config.toml", "--out", tmp_path / "third")
    assert read_json(tmp_path / "third" / "config.json") == read_json(out / "config.json")
    errors = [rate["error"] for rate in read_json(out / "summary.json")["problems"][0]["optimizers"][0]["rates"]]
    again = read_json(tmp_path / "third" / "summary.json")["problems"][0]["optimizers"][0]["rates"]
    assert [rate["error"] for rate in again] == errors


def test_laplace_stops_at_once_and_can_be_resumed(tmp_path):
    """Regression: it waited for the end of a run, and did not print how to resume."""
    command = [PROGRAM, "laplace", "--problems", "3x4x2", "--optimizers", "sgd", "--lrs", "1e-3,1e-2", "--seeds", "0"]
    command += ["--steps", "1000000000", "--threads", "1", "--out", tmp_path / "out"]  # would run for days
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert "2 runs of 1000000000 steps" in process.stderr.readline()
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        try:
            _, message = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 128 + signal.SIGINT
    assert "saving the progress before stopping" in message
    assert message.endswith("stopped in run 1 of 2\nTo continue, run the same command with --resume.\n")


def test_laplace_if_all_runs_diverge(tmp_path):
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
        (["laplace", "--problems", "3x4"], 2, "dimensions x points x rank, such as 10x32x8, got '3x4'"),
        (["laplace", "--optimizers", "lion"], 2, "lion"),
        (["laplace", "--scale", "tiny"], 2, "got 'tiny'"),
        (["laplace", "--lrs", "-1"], 2, "--lrs"),
    ],
)
def test_bad_options_are_errors(flags, status, message, tmp_path):
    assert message in run(*flags, "--out", tmp_path / "out", expect=status).stderr
    assert not (tmp_path / "out" / "metrics.jsonl").exists()
