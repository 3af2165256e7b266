"""The style of figures. Each label has the same colour in every figure; the colours suit colour-blind readers."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, cycle

import matplotlib.style

TEXT = "#1a1a1a"
QUIET = "#595959"

# M. Okabe and K. Ito, Color Universal Design (2008), without the yellow, which is hard to see on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h")
DASHES = ("-", "--", "-.", ":")


@dataclass(frozen=True)
class Style:
    colour: str
    marker: str
    dashes: str = DASHES[0]


# The four colours of the palette that colour-blind readers can distinguish best.
HOME_STYLES = {
    "sgd": Style("#000000", "o"),
    "adamw": Style("#56B4E9", "s"),
    "muon": Style("#D55E00", "^"),
    "tensorion": Style("#0072B2", "D"),
}

SETTINGS = {
    "font.family": "DejaVu Sans",  # included in matplotlib
    "font.size": 9,
    "text.color": TEXT,
    "text.parse_math": False,  # labels may contain dollar signs
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
    """A context in which figures do not depend on the user's matplotlibrc."""
    with matplotlib.style.context(["default", SETTINGS]):
        yield


def assign_styles(labels: Iterable[tuple[str, str]]) -> Mapping[str, Style]:
    """Assigns styles to (label, optimizer) pairs.

    The first label of an optimizer in HOME_STYLES gets that style. The other labels get the remaining colours, which
    are then repeated with different dashes.
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
