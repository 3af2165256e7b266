"""The tables and the page of `tensorion report`."""

import base64
import re

import matplotlib.image
import numpy as np
from program import run
from report_runs import (
    FIGURES,
    OPTIMIZERS,
    QUANTITIES,
    SAMPLES,
    Page,
    cut_short,
    make_comparison,
    make_run,
    report,
    rows,
    spread,
)

from tensorion_lab.report.results import curve
from tensorion_lab.report.runs import read_run


def test_table_has_means_and_deviations(compared):
    folder, values, output = compared
    table = rows(output)
    assert list(table) == list(OPTIMIZERS)
    for name, runs in values.items():
        last = {quantity: [run[quantity][-1] for run in runs] for quantity in QUANTITIES}
        seconds = np.array([run["seconds"].sum() for run in runs])
        share = np.array([run["optimizer_seconds"].sum() for run in runs]) / seconds
        assert table[name] == [
            "3",
            spread(100 * np.array(last["test_accuracy"]), 2),
            spread([100 * run["test_accuracy"].max() for run in runs], 2),
            spread(last["test_loss"], 4),
            spread(seconds / 5, 2),
            spread(100 * share, 1),
            spread(5 * SAMPLES / seconds, 0),
        ]
    assert output.splitlines()[0] == "Fashion-MNIST, ResNet-18 (width 0.25)"
    assert output.splitlines()[-1] == f"report: {folder / 'report' / 'index.html'}"
    body = output.split("\n\n")[1].splitlines()[:-1]
    assert len({line.rindex("±") for line in body[1:]}) == 1


def test_curves_are_means_over_seeds(compared):
    folder, values, _ = compared
    means = curve([read_run(folder / f"muon-seed{seed}") for seed in range(3)], lambda epoch: epoch.test_loss)
    losses = np.array([run["test_loss"] for run in values["muon"]])
    times = np.array([run["seconds"].cumsum() for run in values["muon"]])
    assert list(means.epochs) == [1, 2, 3, 4, 5]
    np.testing.assert_allclose([value.mean for value in means.values], losses.mean(0), rtol=1e-14)
    np.testing.assert_allclose([value.std for value in means.values], losses.std(0, ddof=1), rtol=1e-12)
    np.testing.assert_allclose(means.seconds, times.mean(0), rtol=1e-14)


def test_page_is_self_contained(compared):
    folder, _, output = compared
    text = (folder / "report" / "index.html").read_text()
    page = Page(text)
    assert not re.search(r"https?:|//\w|@import|url\(", re.sub(r"base64,[\w+/=]*", "", text))
    assert not {"script", "link", "iframe", "object", "embed"} & set(page.tags)
    assert "href" not in page.attributes
    embedded = {
        base64.b64decode(image["src"].removeprefix("data:image/png;base64,")): image["alt"] for image in page.images
    }
    assert set(embedded) == {path.read_bytes() for path in (folder / "report").glob("*.png")}
    assert all(embedded.values())
    for name, cells in rows(output).items():
        assert [name, *cells] in page.cells
        assert [name, "0, 1, 2"] in page.cells
    assert "Training runs" in page.text
    assert any("12 runs" in data for data in page.text)  # The files of the comparison do not count as a run.


def test_options(tmp_path, compared):
    folder, _, _ = compared
    result = report(folder, "--out", tmp_path / "a" / "b", "--title", "</title><script>x</script> & co", "--dpi", "40")
    assert result.returncode == 0
    page = Page((tmp_path / "a" / "b" / "index.html").read_text())
    assert page.text.count("</title><script>x</script> & co") == 2
    assert "script" not in page.tags
    for name in FIGURES:
        small, large = (
            matplotlib.image.imread(place / f"{name}.png").shape for place in (tmp_path / "a" / "b", folder / "report")
        )
        assert np.abs(np.array(large[:2]) - 2 * np.array(small[:2])).max() <= 4
    assert {"--out", "--title", "--dpi", "DIR"} <= set(re.findall(r"--\w+|DIR", report("--help").stdout))


def test_names_are_escaped(tmp_path):
    name = '<img src="x">&$\\frac$_{'
    make_run(tmp_path / "a", name, model=name, dataset="$x")
    result = report(tmp_path, "--dpi", "40")
    assert result.returncode == 0, result.stderr
    assert list(rows(result.stdout)) == [name]
    page = Page((tmp_path / "report" / "index.html").read_text())
    assert len(page.images) == len(FIGURES)
    assert page.cells.count([name, "0"]) == 1


def test_labels_list_differing_options(tmp_path):
    for unfolding in ("(0,)", "(0, 2)", "balanced", "online"):
        for seed in (0, 1):
            options = {"unfolding": unfolding, "fallback": "sgd", "lr": 0.02}
            make_run(tmp_path / f"{unfolding}-{seed}", "tensorion", seed, **options)
    make_run(tmp_path / "b", "tensorion", 0, unfolding="online", fallback="adamw", lr=0.02)
    make_run(tmp_path / "a", "adamw", lr=0.001)
    make_run(tmp_path / "z", "lion", lr=0.001)
    table = rows(report(tmp_path, "--dpi", "40").stdout)
    assert [(label, cells[0]) for label, cells in table.items()] == [
        ("adamw", "1"),
        ("tensorion (unfolding balanced, fallback sgd)", "2"),
        ("tensorion (unfolding online, fallback adamw)", "1"),
        ("tensorion (unfolding online, fallback sgd)", "2"),
        ("tensorion (unfolding {0}, fallback sgd)", "2"),
        ("tensorion (unfolding {0,2}, fallback sgd)", "2"),
        ("lion", "1"),
    ]


def test_runs_with_the_same_seed_are_not_averaged(tmp_path):
    for folder in ("before", "after/x"):
        make_comparison(tmp_path / folder, ["muon"], (0, 1))
    result = report(tmp_path / "before", tmp_path / "after", tmp_path, "--dpi", "40")
    assert {label: cells[0] for label, cells in rows(result.stdout).items()} == {
        "muon (folder after/x)": "2",
        "muon (folder before)": "2",
    }
    assert (tmp_path / "before" / "report" / "index.html").is_file()  # The report is in the first folder.


def test_datasets_and_models_have_separate_figures(tmp_path):
    make_comparison(tmp_path / "a", ["sgd"], (0,))
    make_comparison(tmp_path / "b", ["sgd"], (0,), dataset="cifar10", model="vit_small_patch16_224", width=1)
    result = report(tmp_path, "--dpi", "40")
    titles = ["CIFAR-10, vit_small_patch16_224", "Fashion-MNIST, ResNet-18 (width 0.25)"]
    assert [line for line in result.stdout.splitlines() if line in titles] == titles
    assert {path.stem for path in (tmp_path / "report").glob("*.png")} == {
        f"{setup}-{name}"
        for setup in ("cifar-10-vit-small-patch16-224", "fashion-mnist-resnet-18-width-0.25")
        for name in FIGURES
    }


def test_diverged_and_unfinished_runs(tmp_path):
    sgd = [make_run(tmp_path / f"sgd-{seed}", "sgd", seed, status=None) for seed in range(3)]
    cut_short(tmp_path / "sgd-0", 3, half=True)
    cut_short(tmp_path / "sgd-2", 0)
    muon = [make_run(tmp_path / f"muon-{seed}", "muon", seed) for seed in range(2)]
    make_run(tmp_path / "muon-2", "muon", 2, status="diverged")
    cut_short(tmp_path / "muon-2", 2, train_loss=None, test_loss=1e308, test_accuracy=0.1)
    make_run(tmp_path / "muon-3", "muon", 3, status=None)
    make_run(tmp_path / "adamw-0", "adamw", 0, status="diverged")
    cut_short(tmp_path / "adamw-0", 0)
    result = report(tmp_path, "--dpi", "40")
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    table = rows(result.stdout)
    # Means are over finished runs. If no run has finished, they are over the epochs that all runs have.
    assert table["sgd"][0] == "3 unfinished"
    assert table["sgd"][1] == spread([100 * run["test_accuracy"][2] for run in sgd[:2]], 2)
    assert table["sgd"][4] == spread([run["seconds"][:3].mean() for run in sgd[:2]], 2)
    assert table["muon"][0] == "2 + 1 diverged + 1 unfinished"
    assert table["muon"][1] == spread([100 * run["test_accuracy"][-1] for run in muon], 2)
    assert table["adamw"] == ["1 diverged", *["-"] * 6]
    assert "sgd: unfinished; the values are from epoch 3 of 5." in result.stdout
    assert "muon: 1 of 4 runs diverged. The means exclude them" in result.stdout
    assert "muon, seed 2: the loss is nan" in result.stdout
    assert {path.stem for path in (tmp_path / "report").glob("*.png")} == FIGURES


def test_only_a_diverged_run(tmp_path):
    make_run(tmp_path / "sgd-0", status="diverged")
    cut_short(tmp_path / "sgd-0", 3, train_loss=1e300, test_loss=1e308, test_accuracy=None)
    result = report(tmp_path, "--dpi", "40")
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert rows(result.stdout)["sgd"] == ["1 diverged", *["-"] * 5]
    assert {path.stem for path in (tmp_path / "report").glob("*.png")} == FIGURES - {"optimizer_share"}


def test_program_lists_the_command():
    assert re.search(r"^  report +Compare training runs", run("--help").stdout, re.MULTILINE)
