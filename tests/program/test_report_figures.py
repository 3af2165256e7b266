"""The figures of `tensorion report`: colors, labels and axis limits."""

from itertools import pairwise

import hypothesis
import hypothesis.strategies as st
import matplotlib.image
import pytest
from report_runs import FIGURES, OPTIMIZERS, colours_in, make_run, report

from tensorion_lab.report.canvas import spread_out, wrap
from tensorion_lab.report.curves import Line, draw_curves
from tensorion_lab.report.style import COLOURS, HOME_STYLES, Style, assign_styles


@pytest.mark.parametrize("name", sorted(FIGURES))
def test_all_figures_show_all_optimizers_in_their_colors(name, compared):
    folder, _, _ = compared
    path = folder / "report" / f"{name}.png"
    height, width, _ = matplotlib.image.imread(path).shape
    assert 1 < height / 80 < 5 and 5 < width / 80 < 8
    colours = colours_in(path)
    assert 0.5 < colours["#FFFFFF"] / sum(colours.values()) < 0.98
    missing = {optimizer for optimizer in OPTIMIZERS if colours.get(HOME_STYLES[optimizer].colour, 0) <= 20}
    assert missing == set()


def test_there_are_no_other_figures(compared):
    folder, _, _ = compared
    assert {path.stem for path in (folder / "report").glob("*.png")} == FIGURES


def test_many_labels_and_one_epoch(tmp_path):
    for i in range(12):
        for seed in (0, 1):
            make_run(tmp_path / f"{i}-{seed}", f"optimizer number {i}", seed, epochs=1)
    assert report(tmp_path, "--dpi", "80").returncode == 0
    colours = colours_in(tmp_path / "report" / "test_loss.png")
    assert all(colours.get(colour, 0) > 20 for colour in COLOURS)


@hypothesis.given(st.lists(st.tuples(st.floats(-50, 250), st.sampled_from([12.0, 24.0])), min_size=1, max_size=12))
def test_labels_do_not_overlap(boxes):
    wanted, heights = zip(*boxes, strict=True)
    room = max(sum(heights), 200.0)
    centres = spread_out(wanted, heights, room)
    order = sorted(range(len(boxes)), key=lambda i: centres[i])
    edges = [(centres[i] - heights[i] / 2, centres[i] + heights[i] / 2) for i in order]
    assert edges[0][0] >= -1e-9 and edges[-1][1] <= room + 1e-9
    assert all(low >= high - 1e-9 for (_, high), (low, _) in pairwise(edges))
    # Labels have the order of the lines. A label is at its line if there is room.
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
        # The limits exclude a first epoch that is far from the others, and include one that is near.
        ([10, 80, 85, 90, 92], 75, 95, "linear", True),
        ([78, 80, 85, 90, 92], 75, 95, "linear", False),
        ([2.0, 1.0, 0.3, 0.1, 0.05], 0.03, 3, "log", False),
        ([99.4, 99.5, 99.8, 100, 100], 99, 100.1, "linear", False),
        ([50], 45, 55, "linear", False),
        ([0, 0], 0, 1, "linear", False),
        ([1, 1e-3, 1e-30], 1e-35, 1e3, "log", False),
    ],
)
def test_axis_limits(values, low, high, scale, cut):
    line = Line("a", Style("#000000", "o"), range(len(values)), values, [0] * len(values))
    canvas, was_cut = draw_curves([line], title="", subtitle="", x_label="", y_label="", ceiling=100)
    bottom, top = canvas.axes.get_ylim()
    assert was_cut == cut
    assert canvas.axes.get_yscale() == scale
    assert low <= bottom <= min(values[cut:]) and max(values) <= top <= high
    assert sum(bottom <= tick <= top for tick in canvas.axes.get_yticks()) >= 2
