"""`tensorion laplace` with small problems."""

import math
import re
import signal
import subprocess
import time

import numpy as np
import pytest
from program import PROGRAM, figures, read_json, read_json_lines, run

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
        (budget,) = problem["budgets"]
        assert budget["steps"] == 40
        d, n = problem["dimensions"], problem["points"]
        # The reference is NumPy's eigenvalue of the 1-D matrix. Eigenvalues of a Kronecker sum are sums of eigenvalues.
        matrix = (2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)) * (n + 1) ** 2
        assert problem["eigenvalue"] == pytest.approx(d * np.linalg.eigvalsh(matrix)[0], rel=1e-12)
        assert [entry["optimizer"] for entry in budget["optimizers"]] == optimizers
        for entry in budget["optimizers"]:
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
                if line.split()[1:3] == [entry["optimizer"], f"{best['lr']:g}"] and f"{best['error']:.2e}" in line
            )
            assert line.split()[3] == f"{best['error']:.2e}"
    assert len({row["quotient"] for row in rows if row["step"] == 0}) == 4  # problems x seeds
    assert figures(out) == {
        f"{name}-{problem}-40.png"
        for name in ("error_by_lr", "error_by_step", "residual_by_step")
        for problem in ("3x6x2", "5x4x2")
    }
    assert f"figures in {out}/report" in result.stdout
    page = (out / "report" / "index.html").read_text()
    assert page.count("<h2>") == 2
    assert "already contains results" in run(*LAPLACE, "--out", out, expect=1).stderr


def optimizers_of(out, budget=0):
    """The results of the first problem."""
    return read_json(out / "summary.json")["problems"][0]["budgets"][budget]["optimizers"]


def test_each_budget_has_its_own_schedule(tmp_path):
    """Budgets in one command, or added by --resume, equal separate commands."""
    flags = ["laplace", "--problems", "3x6x2", "--optimizers", "tensorion,adam", "--lrs", "0.01,0.1", "--seeds", "0,1"]
    flags += ["--schedule", "cosine", "--threads", "1"]
    run(*flags, "--steps", "10,25", "--out", tmp_path / "both")
    run(*flags, "--steps", "25", "--out", tmp_path / "long")
    added = tmp_path / "added"
    run(*flags, "--steps", "10", "--out", added)
    first = read_json_lines(added / "metrics.jsonl")
    run(*flags, "--steps", "10,25", "--resume", "--out", added)
    rows = read_json_lines(added / "metrics.jsonl")
    # Their times are equal too, so they were not run again.
    assert [row for row in rows if row["steps"] == 10] == sorted(first, key=lambda row: row["optimizer"])
    assert {row["steps"] for row in rows} == {10, 25}

    def errors(out, budget):
        return [[rate["error"] for rate in entry["rates"]] for entry in optimizers_of(out, budget)]

    assert errors(tmp_path / "both", 1) == errors(tmp_path / "long", 0) == errors(added, 1)
    assert errors(tmp_path / "both", 0) == errors(added, 0) != errors(added, 1)
    for entry in optimizers_of(added, 1):
        best = min(entry["rates"], key=lambda rate: rate["error"])
        last = entry["best"]["points"][-1]
        run_key = (entry["optimizer"], best["lr"], 25)
        times = [row["seconds"] for row in rows if (row["optimizer"], row["lr"], row["step"]) == run_key]
        assert last["seconds"] == min(times)
        assert best["seconds_per_step"] == pytest.approx(min(times) / 25)
    names = {"error_by_budget-3x6x2", "error_by_seconds-3x6x2"}
    names |= {
        f"{name}-3x6x2-{steps}" for name in ("error_by_lr", "error_by_step", "residual_by_step") for steps in (10, 25)
    }
    assert figures(added) == {f"{name}.png" for name in names}


def test_the_grid_is_extended_at_its_edge(tmp_path):
    flags = [*LAPLACE, "--problems", "3x6x2", "--optimizers", "sgd", "--seeds", "0", "--lrs", "1e-6,1e-5"]
    result = run(*flags, "--extend-lrs", "2", "--out", tmp_path / "out")
    (entry,) = optimizers_of(tmp_path / "out")
    assert entry["extended_lrs"] == pytest.approx([1e-4, 1e-3])
    assert [rate["lr"] for rate in entry["rates"]] == pytest.approx([1e-6, 1e-5, 1e-4, 1e-3])
    assert entry["best_is_at_edge"]
    assert "at the edge" in result.stdout


def test_dry_run_estimates_the_time(tmp_path):
    flags = [*LAPLACE, "--problems", "3x6x2,5x4x2", "--optimizers", "sgd,muon", "--lrs", "0.01", "--seeds", "0,1"]
    text = run(*flags, "--dry-run", "--out", tmp_path / "out").stdout
    assert "steps = [40]" in text
    assert re.search(r"^problem +sgd +muon$", text, re.MULTILINE)
    assert re.search(r"^5x4x2 +\d+\.\d\d +\d+\.\d\d$", text, re.MULTILINE)
    assert re.search(
        r"^8 runs, about 0:0\d, not counting learning rates beyond the grid; nothing was run", text, re.MULTILINE
    )
    assert not (tmp_path / "out").exists()


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
    (entry, _) = optimizers_of(out)
    assert [rate["lr"] for rate in entry["rates"]] == [0.01, 0.1]
    message = run(*flags, "--lrs", "0.01", "--resume", "--schedule", "cosine", expect=1).stderr
    assert 'was started with other options: schedule "constant", got "cosine"' in message


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
    errors = [rate["error"] for rate in optimizers_of(out)[0]["rates"]]
    assert [rate["error"] for rate in optimizers_of(tmp_path / "third")[0]["rates"]] == errors


def test_laplace_stops_at_once_and_can_be_resumed(tmp_path):
    """Regression: it waited for the end of a run, and did not print how to resume."""
    command = [PROGRAM, "laplace", "--problems", "3x4x2", "--optimizers", "sgd", "--lrs", "1e-3,1e-2", "--seeds", "0"]
    command += ["--steps", "1000000000", "--threads", "1", "--out", tmp_path / "out"]  # would run for days
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert "2 runs: 1 problems, 1 budgets, 1 optimizers" in process.stderr.readline()
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
    assert re.search(r"^ *40 +sgd +diverged$", result.stdout, re.MULTILINE)
    (entry,) = optimizers_of(out)
    assert entry["best"] is None
    assert entry["rates"][0]["error"] is None
    assert figures(out) == set()


@pytest.mark.parametrize(
    ("flags", "status", "message"),
    [
        (["laplace", "--problems", "3x4"], 2, "the form DIMENSIONSxPOINTSxRANK, such as 10x32x8, got '3x4'"),
        (["laplace", "--optimizers", "lion"], 2, "lion"),
        (["laplace", "--scale", "tiny"], 2, "got 'tiny'"),
        (["laplace", "--lrs", "-1"], 2, "--lrs"),
    ],
)
def test_bad_options_are_errors(flags, status, message, tmp_path):
    assert message in run(*flags, "--out", tmp_path / "out", expect=status).stderr
    assert not (tmp_path / "out" / "metrics.jsonl").exists()
