"""What a report keeps apart: other data, searches for learning rates; and runs that cannot be read."""

from report_runs import make_run, report


def test_other_data_is_no_other_seed(tmp_path):
    """Runs on two folders had been averaged as two seeds."""
    make_run(tmp_path / "a", seed=0, data="/data/a", data_fingerprint="11111111-22222222")
    make_run(tmp_path / "b", seed=1, data="/data/b", data_fingerprint="33333333-44444444")
    text = report(tmp_path, "--dpi", "40").stdout
    assert "Fashion-MNIST, ResNet-18 (width 0.25), data a (11111111-22222222)" in text
    assert "Fashion-MNIST, ResNet-18 (width 0.25), data b (33333333-44444444)" in text
    assert "±" not in text.replace("±: one", "")


def test_data_that_has_moved_is_the_same(tmp_path):
    make_run(tmp_path / "a", seed=0, data="/data/a", data_fingerprint="11111111-22222222")
    make_run(tmp_path / "b", seed=1, data="/moved/a", data_fingerprint="11111111-22222222")
    lines = report(tmp_path, "--dpi", "40").stdout.splitlines()
    assert lines[0] == "Fashion-MNIST, ResNet-18 (width 0.25)"
    assert lines[3].split()[:2] == ["sgd", "2"]


def test_a_search_is_no_other_seed(tmp_path):
    """The run of a search at the best rate had been counted as a third seed."""
    for seed in (0, 1):
        make_run(tmp_path / "all" / f"sgd-seed{seed}", seed=seed, lr=0.1)
    make_run(tmp_path / "all-grid" / "sgd-lr0.1", seed=1000, lr=0.1, label="sgd-lr0.1", grid=True)
    text = report(tmp_path, "--dpi", "40").stdout
    first, second = text.split("Fashion-MNIST, ResNet-18 (width 0.25): search for learning rates")
    assert first.splitlines()[3].split()[:2] == ["sgd", "2"]
    assert second.splitlines()[3].split()[:2] == ["sgd-lr0.1", "1"]


def test_a_broken_run_does_not_hide_the_others(tmp_path):
    make_run(tmp_path / "a", seed=0)
    make_run(tmp_path / "b", seed=1)
    (tmp_path / "b" / "metrics.jsonl").write_text('{"epoch": 1\n')
    result = report(tmp_path / "a", tmp_path / "b", "--dpi", "40")
    assert result.returncode == 0
    assert "b/metrics.jsonl, line 1: broken JSON" in result.stderr
    assert result.stdout.splitlines()[3].split()[:2] == ["sgd", "1"]
    assert "Left out: " in (tmp_path / "a" / "report" / "index.html").read_text()


def test_a_misspelled_option_gets_the_nearest_name(tmp_path):
    result = report(tmp_path, "--titel", "x")
    assert result.returncode == 2
    assert "did you mean --title?" in result.stderr
