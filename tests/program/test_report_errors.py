"""Errors of `tensorion report`."""

import re

import pytest
from report_runs import make_comparison, make_run, report


def edit(name, change):
    def apply(folder):
        path = folder / "sgd-seed0" / name
        path.write_text(change(path.read_text()))

    return apply


def in_line(number, old, new):
    def change(text):
        lines = text.splitlines(keepends=True)
        assert re.search(old, lines[number - 1])
        lines[number - 1] = re.sub(old, new, lines[number - 1])
        return "".join(lines)

    return edit("metrics.jsonl", change)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (in_line(2, "}", ""), "sgd-seed0/metrics.jsonl, line 2: not valid JSON: Expecting ',' delimiter"),
        (in_line(3, ".*", "7"), "sgd-seed0/metrics.jsonl, line 3: expected a JSON object, got 7"),
        (
            in_line(2, '"test_loss"', '"loss"'),
            "sgd-seed0/metrics.jsonl, line 2: expected the key 'test_loss'",
        ),
        (
            in_line(2, '"test_loss": [^,]*', '"test_loss": "low"'),
            "line 2: expected 'test_loss' to be a number, got \"low\"",
        ),
        (
            in_line(5, '"test_accuracy": [^,]*', '"test_accuracy": 91.5'),
            "line 5: expected 'test_accuracy' to be a fraction in [0, 1], got 91.5",
        ),
        (
            in_line(1, '"seconds": [^,]*', '"seconds": 0'),
            "line 1: expected 'seconds' to be positive, got 0",
        ),
        (in_line(4, '"epoch": 4', '"epoch": 3'), "line 4: epoch 3 follows epoch 3"),
        (in_line(4, '"epoch": 4', '"epoch": 3.5'), "line 4: expected 'epoch' to be a non-negative integer, got 3.5"),
        (in_line(1, '"seed": 0', '"seed": 1'), "line 1: 'seed' is 1, but 0 in config.json"),
        (
            edit("config.json", lambda text: text.replace('"model":', '"model"')),
            "sgd-seed0/config.json, line 3: not valid JSON: Expecting ':' delimiter",
        ),
        (
            edit("config.json", lambda text: text.replace('"optimizer"', '"optimiser"')),
            "sgd-seed0/config.json: expected the key 'optimizer'",
        ),
        (
            edit("config.json", lambda text: text.replace('"seed": 0', '"seed": [0]')),
            "sgd-seed0/config.json: expected 'seed' to be an integer, got [0]",
        ),
        (edit("summary.json", lambda text: "[]"), "sgd-seed0/summary.json: expected a JSON object, got []"),
        (
            lambda folder: (folder / "sgd-seed0" / "config.json").unlink(),
            "sgd-seed0/config.json: No such file or directory",
        ),
        (
            lambda folder: (folder / "sgd-seed0" / "metrics.jsonl").write_bytes(b"\xff"),
            "sgd-seed0/metrics.jsonl: expected UTF-8 text",
        ),
        (edit("metrics.jsonl", lambda text: ""), "no run has finished an epoch"),
    ],
)
def test_errors_name_bad_runs(tmp_path, damage, message):
    make_comparison(tmp_path, ["sgd"], (0,))
    damage(tmp_path)
    result = report(tmp_path)
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.startswith("[tensorion report] ")
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none", "no such directory"),
        ("file", "expected a directory, got a file"),
        ("empty", "the directory is empty; expected metrics.jsonl and config.json of `tensorion train`"),
        (".", "no runs found; expected metrics.jsonl and config.json of `tensorion train`"),
    ],
)
def test_errors_name_folders_without_runs(name, message, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    result = report(tmp_path / name)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith(f"[tensorion report] {tmp_path / name}: {message}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "DIR"),
        ([".", "--dpi", "0"], "expected an integer in [20, 1200], got '0'"),
        ([".", "--dpi", "high"], "got 'high'"),
        ([".", "--colour"], "--colour"),
    ],
)
def test_bad_usage_is_an_error(arguments, message):
    result = report(*arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert message in result.stderr


def test_error_names_output_that_cannot_be_written(tmp_path):
    make_run(tmp_path / "run")
    (tmp_path / "file").write_text("")
    result = report(tmp_path / "run", "--out", tmp_path / "file", "--dpi", "40")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == f"[tensorion report] {tmp_path / 'file'}: File exists\n"


def test_error_without_matplotlib_says_how_to_install_it(tmp_path):
    make_run(tmp_path / "run")
    missing = "raise ModuleNotFoundError('No module named matplotlib', name='matplotlib')"
    (tmp_path / "matplotlib.py").write_text(missing)
    result = report(tmp_path / "run", path=tmp_path)
    assert result.returncode == 1
    assert "pip install 'tensorion[report]'" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert report("--help", path=tmp_path).returncode == 0
