"""How figures look: colours that colour-blind readers tell apart, the same for a label in every figure."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, cycle

import matplotlib.style

TEXT = "#1a1a1a"
QUIET = "#595959"

# M. Okabe and K. Ito, Color Universal Design (2008), without the yellow that white paper swallows.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h")
DASHES = ("-", "--", "-.", ":")


@dataclass(frozen=True)
class Style:
    colour: str
    marker: str
    dashes: str = DASHES[0]


# Of the palette, the four colours that are farthest apart for colour-blind eyes.
HOME_STYLES = {
    "sgd": Style("#000000", "o"),
    "adamw": Style("#56B4E9", "s"),
    "muon": Style("#D55E00", "^"),
    "tensorion": Style("#0072B2", "D"),
}

SETTINGS = {
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 9,
    "text.color": TEXT,
    "text.parse_math": False,  # a label is not a formula
    "axes.edgecolor": QUIET,
    "axes.labelcolor": TEXT,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.7,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelcolor": TEXT,
    "ytick.labelcolor": TEXT,
    "lines.linewidth": 1.8,
    "lines.markersize": 4.5,
}


@contextmanager
def house_style() -> Iterator[None]:
    """Figures made inside look the same whatever matplotlibrc the user has."""
    with matplotlib.style.context(["default", SETTINGS]):
        yield


def assign_styles(labels: Iterable[tuple[str, str]]) -> Mapping[str, Style]:
    """Styles for (label, optimizer) pairs: a known optimizer's first label has the style of its own.

    When the colours are used up they come again with other dashes.
    """
    pairs = list(dict.fromkeys(labels))
    styles: dict[str, Style] = {}
    for label, optimizer in pairs:
        if optimizer in HOME_STYLES and HOME_STYLES[optimizer] not in styles.values():
            styles[label] = HOME_STYLES[optimizer]
    colours, markers = ({getattr(style, name) for style in styles.values()} for name in ("colour", "marker"))
    looks = chain(
        ((colour, DASHES[0]) for colour in COLOURS if colour not in colours),
        cycle((colour, dashes) for dashes in DASHES[1:] for colour in COLOURS),
    )
    rest = chain((marker for marker in MARKERS if marker not in markers), cycle(MARKERS))
    unstyled = [label for label, _ in pairs if label not in styles]
    for label, (colour, dashes), marker in zip(unstyled, looks, rest, strict=False):
        styles[label] = Style(colour, marker, dashes)
    return styles
