import base64
import json
import os
import re
import subprocess
import sysconfig
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import matplotlib.image
import numpy as np
import pytest

from tensorion_lab.report.canvas import spread_out, wrap
from tensorion_lab.report.curves import Line, draw_curves
from tensorion_lab.report.results import curve
from tensorion_lab.report.runs import read_run
from tensorion_lab.report.style import COLOURS, HOME_STYLES, Style, assign_styles

PROGRAM = Path(sysconfig.get_path("scripts")) / "tensorion"
OPTIMIZERS = ("sgd", "adamw", "muon", "tensorion")
FIGURES = {"test_accuracy", "test_accuracy_over_time", "test_loss", "train_loss", "optimizer_share"}
QUANTITIES = ("train_loss", "test_loss", "test_accuracy", "seconds", "optimizer_seconds")
SAMPLES = 6000


def report(*arguments, path=None):
    environment = os.environ | ({"PYTHONPATH": str(path)} if path else {})
    return subprocess.run([PROGRAM, "report", *arguments], capture_output=True, text=True, timeout=60, env=environment)


def make_run(folder, optimizer="sgd", seed=0, epochs=5, status="finished", **options):
    """Writes a run as `tensorion train` does, and gives its quantities as arrays over the epochs."""
    rng = np.random.default_rng([seed, *optimizer.encode()])
    decay = np.exp(-np.arange(1, epochs + 1) / 2)
    values = {
        "train_loss": 0.1 + 2 * decay * rng.uniform(0.9, 1.1, epochs),
        "test_loss": 0.3 + decay * rng.uniform(0.9, 1.1, epochs),
        "test_accuracy": 0.9 - 0.5 * decay * rng.uniform(0.9, 1.1, epochs),
        "seconds": rng.uniform(20, 22, epochs),
        "optimizer_seconds": rng.uniform(1, 4, epochs),
    }
    folder.mkdir(parents=True)
    config = {"dataset": "fashion-mnist", "model": "resnet18", "width": 0.25, "optimizer": optimizer}
    config |= {"epochs": epochs, "seed": seed, "train_samples": SAMPLES, "weights": ""} | options
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    with open(folder / "metrics.jsonl", "w") as file:
        for i in range(epochs):
            line = {"run": folder.name, "optimizer": optimizer, "seed": seed, "epoch": i + 1, "lr": 0.1}
            file.write(json.dumps(line | {name: values[name][i] for name in QUANTITIES}) + "\n")
    if status:
        summary = {"status": status} | ({"reason": "the loss is nan"} if status == "diverged" else {})
        (folder / "summary.json").write_text(json.dumps(summary))
    return values


def make_comparison(folder, optimizers=OPTIMIZERS, seeds=(0, 1, 2), **options):
    """A run for each, and the files of the comparison itself."""
    values = {
        name: [make_run(folder / f"{name}-seed{seed}", name, seed, **options) for seed in seeds] for name in optimizers
    }
    lines = [path.read_text() for path in sorted(folder.glob("*/metrics.jsonl"))]
    (folder / "metrics.jsonl").write_text("".join(lines))
    (folder / "summary.json").write_text(json.dumps({"optimizers": [], "runs": []}))
    return values


def rows(table):
    """The cells of a printed table by their labels."""
    lines = table.split("\n\n")[1].splitlines()
    assert lines[0].split()[0] == "optimizer"
    cells = [re.split(r"\s{2,}", re.sub(r"± +", "± ", line)) for line in lines[1:] if not line.startswith("(")]
    return {label: rest for label, *rest in cells}


def spread(values, digits):
    return f"{np.mean(values):.{digits}f} ± {np.std(values, ddof=1):.{digits}f}"


class Page(HTMLParser):
    """The tags, the text, the cells of the tables and the attributes of a page."""

    VOID = ("meta", "img")

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.text, self.attributes, self.cells, self.images = [], [], [], [], [[]], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]
        if tag == "img":
            self.images.append(dict(attrs))
        if tag == "tr":
            self.cells.append([])
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text.append(data)
        if self.open and self.open[-1] in ("td", "th"):
            self.cells[-1].append(data)


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """A report on a comparison, made where neither torch nor the package can be imported."""
    folder = tmp_path_factory.mktemp("runs") / "compared"
    values = make_comparison(folder)
    forbidden = tmp_path_factory.mktemp("forbidden")
    for name in ("torch", "tensorion"):
        (forbidden / f"{name}.py").write_text("raise RuntimeError('imported by a report')")
    result = report(folder, "--dpi", "80", path=forbidden)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return folder, values, result.stdout


def test_table_has_the_means_and_deviations(compared):
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


def test_curves_are_the_means_over_seeds_of_every_epoch(compared):
    folder, values, _ = compared
    means = curve([read_run(folder / f"muon-seed{seed}") for seed in range(3)], lambda epoch: epoch.test_loss)
    losses = np.array([run["test_loss"] for run in values["muon"]])
    times = np.array([run["seconds"].cumsum() for run in values["muon"]])
    assert list(means.epochs) == [1, 2, 3, 4, 5]
    np.testing.assert_allclose([value.mean for value in means.values], losses.mean(0), rtol=1e-14)
    np.testing.assert_allclose([value.std for value in means.values], losses.std(0, ddof=1), rtol=1e-12)
    np.testing.assert_allclose(means.seconds, times.mean(0), rtol=1e-14)


def colours_in(path):
    """How many pixels have each colour."""
    pixels = np.round(255 * matplotlib.image.imread(path)[..., :3]).astype(int)
    names, counts = np.unique(pixels.reshape(-1, 3), axis=0, return_counts=True)
    return {f"#{r:02X}{g:02X}{b:02X}": count for (r, g, b), count in zip(names, counts, strict=True)}


def test_every_figure_shows_every_optimizer_in_its_colour(compared):
    folder, _, _ = compared
    assert {path.stem for path in (folder / "report").glob("*.png")} == FIGURES
    for name in FIGURES:
        height, width, _ = matplotlib.image.imread(folder / "report" / f"{name}.png").shape
        assert 1 < height / 80 < 5 and 5 < width / 80 < 8
        colours = colours_in(folder / "report" / f"{name}.png")
        assert 0.5 < colours["#FFFFFF"] / sum(colours.values()) < 0.98
        for optimizer in OPTIMIZERS:
            assert colours.get(HOME_STYLES[optimizer].colour, 0) > 20, (name, optimizer)


def test_page_is_self_contained(compared):
    folder, _, output = compared
    text = (folder / "report" / "index.html").read_text()
    page = Page(text)
    assert not re.search(r"https?:|//\w|@import|url\(", re.sub(r"base64,[\w+/=]*", "", text))
    assert not {"script", "link", "iframe", "object", "embed"} & set(page.tags)
    assert "href" not in page.attributes
    pictures = {
        base64.b64decode(image["src"].removeprefix("data:image/png;base64,")): image["alt"] for image in page.images
    }
    assert set(pictures) == {path.read_bytes() for path in (folder / "report").glob("*.png")}
    assert all(pictures.values())
    for name, cells in rows(output).items():
        assert [name, *cells] in page.cells
        assert [name, "0, 1, 2"] in page.cells
    assert "Training runs" in page.text
    assert any("12 runs" in data for data in page.text)  # the files of the comparison are no run


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


def test_names_are_text_and_nothing_else(tmp_path):
    name = '<img src="x">&$\\frac$_{'
    make_run(tmp_path / "a", name, model=name, dataset="$x")
    result = report(tmp_path, "--dpi", "40")
    assert result.returncode == 0, result.stderr
    assert list(rows(result.stdout)) == [name]
    page = Page((tmp_path / "report" / "index.html").read_text())
    assert len(page.images) == len(FIGURES)
    assert page.cells.count([name, "0"]) == 1


def test_labels_say_what_differs(tmp_path):
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


def test_repeated_seeds_are_not_one_sample(tmp_path):
    for folder in ("before", "after/x"):
        make_comparison(tmp_path / folder, ["muon"], (0, 1))
    result = report(tmp_path / "before", tmp_path / "after", tmp_path, "--dpi", "40")
    assert {label: cells[0] for label, cells in rows(result.stdout).items()} == {
        "muon (folder after/x)": "2",
        "muon (folder before)": "2",
    }
    assert (tmp_path / "before" / "report" / "index.html").is_file()  # in the first that was named


def test_data_sets_and_models_have_figures_of_their_own(tmp_path):
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


def cut(folder, epochs, half=False, **last):
    """Leaves the first epochs of a run, with other values in the last and maybe half a line after it."""
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    kept = lines[:epochs]
    if last:
        kept[-1] = json.dumps(json.loads(kept[-1]) | last) + "\n"
    (folder / "metrics.jsonl").write_text("".join(kept) + (lines[epochs][:40] if half else ""))


def test_runs_that_diverged_or_go_on(tmp_path):
    sgd = [make_run(tmp_path / f"sgd-{seed}", "sgd", seed, status=None) for seed in range(3)]
    cut(tmp_path / "sgd-0", 3, half=True)
    cut(tmp_path / "sgd-2", 0)
    muon = [make_run(tmp_path / f"muon-{seed}", "muon", seed) for seed in range(2)]
    make_run(tmp_path / "muon-2", "muon", 2, status="diverged")
    cut(tmp_path / "muon-2", 2, train_loss=None, test_loss=1e308, test_accuracy=0.1)
    make_run(tmp_path / "muon-3", "muon", 3, status=None)
    make_run(tmp_path / "adamw-0", "adamw", 0, status="diverged")
    cut(tmp_path / "adamw-0", 0)
    result = report(tmp_path, "--dpi", "40")
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    table = rows(result.stdout)
    # The means are over the runs that finished; before there are any, over the epochs that all have.
    assert table["sgd"][0] == "3 unfinished"
    assert table["sgd"][1] == spread([100 * run["test_accuracy"][2] for run in sgd[:2]], 2)
    assert table["sgd"][4] == spread([run["seconds"][:3].mean() for run in sgd[:2]], 2)
    assert table["muon"][0] == "2 + 1 diverged + 1 unfinished"
    assert table["muon"][1] == spread([100 * run["test_accuracy"][-1] for run in muon], 2)
    assert table["adamw"] == ["1 diverged", *["-"] * 6]
    assert "sgd: unfinished; the values are of epoch 3 of 5." in result.stdout
    assert "muon: 1 of 4 runs diverged; not in the means" in result.stdout
    assert "muon, seed 2: the loss is nan" in result.stdout
    assert {path.stem for path in (tmp_path / "report").glob("*.png")} == FIGURES


def test_nothing_but_a_run_that_diverged(tmp_path):
    make_run(tmp_path / "sgd-0", status="diverged")
    cut(tmp_path / "sgd-0", 3, train_loss=1e300, test_loss=1e308, test_accuracy=None)
    result = report(tmp_path, "--dpi", "40")
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert rows(result.stdout)["sgd"] == ["1 diverged", *["-"] * 5]
    assert {path.stem for path in (tmp_path / "report").glob("*.png")} == FIGURES - {"optimizer_share"}


def test_many_labels_and_one_epoch(tmp_path):
    for i in range(12):
        for seed in (0, 1):
            make_run(tmp_path / f"{i}-{seed}", f"optimizer number {i}", seed, epochs=1)
    assert report(tmp_path, "--dpi", "80").returncode == 0
    colours = colours_in(tmp_path / "report" / "test_loss.png")
    assert all(colours.get(colour, 0) > 20 for colour in COLOURS)


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
        (in_line(2, "}", ""), "sgd-seed0/metrics.jsonl, line 2: broken JSON: Expecting ',' delimiter"),
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
        (in_line(4, '"epoch": 4', '"epoch": 3.5'), "line 4: expected 'epoch' to count epochs, got 3.5"),
        (in_line(1, '"seed": 0', '"seed": 1'), "line 1: 'seed' is 1, but 0 in config.json"),
        (
            edit("config.json", lambda text: text.replace('"model":', '"model"')),
            "sgd-seed0/config.json, line 3: broken JSON: Expecting ':' delimiter",
        ),
        (
            edit("config.json", lambda text: text.replace('"optimizer"', '"optimiser"')),
            "sgd-seed0/config.json: expected the key 'optimizer'",
        ),
        (
            edit("config.json", lambda text: text.replace('"seed": 0', '"seed": [0]')),
            "sgd-seed0/config.json: expected 'seed' to be a whole number, got [0]",
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
def test_bad_runs_are_named(tmp_path, damage, message):
    make_comparison(tmp_path, ["sgd"], (0,))
    damage(tmp_path)
    result = report(tmp_path)
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.startswith("[tensorion report] ")
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "report").exists()


def test_folders_without_runs_are_named(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    for name, message in {
        "none": "no such directory",
        "file": "expected a directory, got a file",
        "empty": "the directory is empty; expected metrics.jsonl and config.json, as `tensorion train`",
        ".": "no runs found; expected metrics.jsonl and config.json, as `tensorion train`",
    }.items():
        result = report(tmp_path / name)
        assert (result.returncode, result.stdout) == (1, "")
        assert result.stderr.startswith(f"[tensorion report] {tmp_path / name}: {message}")


def test_bad_usage_is_named(tmp_path):
    for arguments, message in {
        (): "DIR",
        (tmp_path, "--dpi", "0"): "expected a whole number in [20, 1200], got '0'",
        (tmp_path, "--dpi", "high"): "got 'high'",
        (tmp_path, "--colour"): "--colour",
    }.items():
        result = report(*arguments)
        assert (result.returncode, result.stdout) == (2, "")
        assert message in result.stderr


def test_an_output_that_cannot_be_written_is_named(tmp_path):
    make_run(tmp_path / "run")
    (tmp_path / "file").write_text("")
    result = report(tmp_path / "run", "--out", tmp_path / "file", "--dpi", "40")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == f"[tensorion report] {tmp_path / 'file'}: File exists\n"


def test_without_matplotlib_it_says_how_to_install_it(tmp_path):
    make_run(tmp_path / "run")
    missing = "raise ModuleNotFoundError('No module named matplotlib', name='matplotlib')"
    (tmp_path / "matplotlib.py").write_text(missing)
    result = report(tmp_path / "run", path=tmp_path)
    assert result.returncode == 1
    assert "pip install 'tensorion[report]'" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert report("--help", path=tmp_path).returncode == 0


def test_the_program_knows_the_command():
    result = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True, timeout=60)
    assert re.search(r"^  report +Compare training runs", result.stdout, re.MULTILINE)


@hypothesis.given(st.lists(st.tuples(st.floats(-50, 250), st.sampled_from([12.0, 24.0])), min_size=1, max_size=12))
def test_labels_do_not_overlap(boxes):
    wanted, heights = zip(*boxes, strict=True)
    room = max(sum(heights), 200.0)
    centres = spread_out(wanted, heights, room)
    order = sorted(range(len(boxes)), key=lambda i: centres[i])
    edges = [(centres[i] - heights[i] / 2, centres[i] + heights[i] / 2) for i in order]
    assert edges[0][0] >= -1e-9 and edges[-1][1] <= room + 1e-9
    assert all(low >= high - 1e-9 for (_, high), (low, _) in pairwise(edges))
    # From below in the order of the lines, and where they want to be if there is room.
    assert all(wanted[i] <= wanted[j] for i, j in pairwise(order))
    if len(boxes) == 1 and heights[0] / 2 <= wanted[0] <= room - heights[0] / 2:
        assert centres[0] == wanted[0]


def test_long_labels_are_broken_between_options():
    assert wrap("tensorion") == "tensorion"
    assert wrap("tensorion (unfolding balanced, fallback adamw)") == ("tensorion (unfolding balanced,\nfallback adamw)")
    assert all(len(line) <= 34 for line in wrap("x" * 100).split("\n"))


def test_styles_differ():
    pairs = [(f"label {i}", "tensorion" if i % 2 else "lion") for i in range(20)]
    styles = assign_styles(pairs)
    assert len({(style.colour, style.dashes) for style in styles.values()}) == 20
    assert styles["label 1"] == HOME_STYLES["tensorion"]


@pytest.mark.parametrize(
    ("values", "low", "high", "scale", "cut"),
    [
        # A first epoch far from the others is left out, one near to them is not.
        ([10, 80, 85, 90, 92], 75, 95, "linear", True),
        ([78, 80, 85, 90, 92], 75, 95, "linear", False),
        ([2.0, 1.0, 0.3, 0.1, 0.05], 0.03, 3, "log", False),
        ([99.4, 99.5, 99.8, 100, 100], 99, 100.1, "linear", False),
        ([50], 45, 55, "linear", False),
        ([0, 0], 0, 1, "linear", False),
        ([1, 1e-3, 1e-30], 1e-35, 1e3, "log", False),
    ],
)
def test_limits_show_what_matters(values, low, high, scale, cut):
    line = Line("a", Style("#000000", "o"), range(len(values)), values, [0] * len(values))
    canvas, was_cut = draw_curves([line], title="", subtitle="", x_label="", y_label="", ceiling=100)
    bottom, top = canvas.axes.get_ylim()
    assert was_cut == cut
    assert canvas.axes.get_yscale() == scale
    assert low <= bottom <= min(values[cut:]) and max(values) <= top <= high
    assert sum(bottom <= tick <= top for tick in canvas.axes.get_yticks()) >= 2
