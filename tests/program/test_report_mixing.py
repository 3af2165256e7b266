"""Reports keep runs on different data and searches for learning rates apart, and skip files that cannot be read."""

import json

import pytest
from report_runs import make_run, report


def test_runs_on_different_data_are_not_averaged(tmp_path):
    """Regression: runs on two data folders were averaged like two seeds."""
    make_run(tmp_path / "a", seed=0, data="/data/a", data_fingerprint="11111111-22222222")
    make_run(tmp_path / "b", seed=1, data="/data/b", data_fingerprint="33333333-44444444")
    text = report(tmp_path, "--dpi", "40").stdout
    assert "Fashion-MNIST, ResNet-18 (width 0.25), data a (11111111-22222222)" in text
    assert "Fashion-MNIST, ResNet-18 (width 0.25), data b (33333333-44444444)" in text
    assert "±" not in text.replace("±: one", "")


def test_moved_data_is_the_same_data(tmp_path):
    make_run(tmp_path / "a", seed=0, data="/data/a", data_fingerprint="11111111-22222222")
    make_run(tmp_path / "b", seed=1, data="/moved/a", data_fingerprint="11111111-22222222")
    lines = report(tmp_path, "--dpi", "40").stdout.splitlines()
    assert lines[0] == "Fashion-MNIST, ResNet-18 (width 0.25)"
    assert lines[3].split()[:2] == ["sgd", "2"]


def test_runs_of_a_search_are_not_averaged_with_others(tmp_path):
    """Regression: the run of a search with the best rate was counted as a third seed."""
    for seed in (0, 1):
        make_run(tmp_path / "all" / f"sgd-seed{seed}", seed=seed, lr=0.1)
    make_run(tmp_path / "all-grid" / "sgd-lr0.1", seed=1000, lr=0.1, label="sgd-lr0.1", grid=True)
    text = report(tmp_path, "--dpi", "40").stdout
    first, second = text.split("Fashion-MNIST, ResNet-18 (width 0.25): learning rate search")
    assert first.splitlines()[3].split()[:2] == ["sgd", "2"]
    assert second.splitlines()[3].split()[:2] == ["sgd-lr0.1", "1"]


def test_broken_run_does_not_hide_others(tmp_path):
    make_run(tmp_path / "a", seed=0)
    make_run(tmp_path / "b", seed=1)
    (tmp_path / "b" / "metrics.jsonl").write_text('{"epoch": 1\n')
    result = report(tmp_path / "a", tmp_path / "b", "--dpi", "40")
    assert result.returncode == 0
    assert "b/metrics.jsonl, line 1: not valid JSON" in result.stderr
    assert result.stdout.splitlines()[3].split()[:2] == ["sgd", "1"]
    assert "Left out: " in (tmp_path / "a" / "report" / "index.html").read_text()


def test_misspelled_option_suggests_nearest_name(tmp_path):
    result = report(tmp_path, "--titel", "x")
    assert result.returncode == 2
    assert "did you mean --title?" in result.stderr


def evaluation(folder, **changed):
    values = {"weights": "w", "test_samples": 3, "test_accuracy": 2 / 3, "test_loss": 0.5}
    values |= {"class_names": ["a", "b"], "confusion": [[1, 1], [0, 1]]} | changed
    (folder / "evaluation.json").write_text(json.dumps(values))


def broken_steps(folder):
    (folder / "steps.jsonl").write_text('{"step": "many"}\n')
    return "steps.jsonl, line 1: not in the format of steps.jsonl"


def broken_evaluation(folder):
    evaluation(folder, confusion=[[1, 2]])
    return "evaluation.json: expected a confusion matrix of 2 x 2"


def broken_experiment(folder):
    (folder / "summary.json").write_text('{"experiment": "laplace"')
    return "summary.json"


@pytest.mark.parametrize("damage", [broken_steps, broken_evaluation, broken_experiment])
def test_broken_file_does_not_hide_others(damage, tmp_path):
    make_run(tmp_path / "a", seed=0)
    make_run(tmp_path / "b", seed=1)
    evaluation(tmp_path / "a")
    message = damage(tmp_path / "b")
    result = report(tmp_path / "a", tmp_path / "b", "--dpi", "40")
    assert result.returncode == 0, result.stderr
    assert message in result.stderr
    assert "sgd" in result.stdout
    assert "Evaluation of a: accuracy 66.67 %" in result.stdout
    page = (tmp_path / "a" / "report" / "index.html").read_text()
    assert "Left out: " in page


def test_only_broken_files_is_an_error(tmp_path):
    make_run(tmp_path / "b")
    message = broken_steps(tmp_path / "b")
    result = report(tmp_path / "b", "--dpi", "40")
    assert result.returncode == 1
    assert message in result.stderr
    assert not (tmp_path / "b" / "report").exists()
