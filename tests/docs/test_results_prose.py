"""The statements of docs/results.md that combine measured numbers are computed again from the files of results/."""

import json
import re
from collections.abc import Callable

import pytest
from test_results import NUMBER, ROOT, is_rounded, measured_numbers, sections

# (section, sentence, numbers). A sentence has {} for each number; the function computes the numbers.
CLAIMS: list[tuple[str, str, Callable[[], list[float]]]] = []


def claim(section: str, sentence: str):
    def add(numbers: Callable[[], list[float]]):
        CLAIMS.append((section, sentence, numbers))
        return numbers

    return add


def load(path: str) -> dict:
    return json.loads((ROOT / "results" / path).read_text())


def accuracy(folder: str, method: str) -> float:
    """Return the mean test accuracy in percent."""
    methods = {entry["optimizer"]: entry for entry in load(f"{folder}/summary.json")["optimizers"]}
    return 100 * methods[method]["test_accuracy"]["mean"]


def differences(folder: str) -> dict[str, tuple[float, float, float]]:
    """Return (mean, low, high) of the paired differences to the reference, in percentage points, by method."""
    methods = load(f"{folder}/summary.json")["differences"]["methods"]
    return {entry["method"]: tuple(100 * entry[key] for key in ("mean", "low", "high")) for entry in methods}


def grid(folder: str) -> dict[str, dict]:
    """Return the search for a learning rate by method. `accuracy` has the accuracies in percent by rate."""
    search = load(f"{folder}/summary.json")["grid"]
    for entry in search["methods"]:
        rates = [*search["lrs"], entry.get("beyond")]
        values = [*entry["accuracies"], entry.get("beyond_accuracy")]
        entry["accuracy"] = {rate: 100 * value for rate, value in zip(rates, values, strict=True) if rate is not None}
    return {entry["method"]: entry for entry in search["methods"]}


def extremes(values) -> list[float]:
    values = list(values)
    return [min(values), max(values)]


UNFOLDINGS = "Unfoldings under one protocol"
TINY = "ResNet-50 on Tiny ImageNet, under the same protocol"
ABLATION = "All unfoldings of a kernel"
TIME = "Accuracy against time"
CIFAR = "The paper's optimizers on CIFAR-10"
TIGHTNESS = "How tight the relaxation is"
LAPLACE = "The Laplacian's smallest eigenvalue"


def binomial_error(folder: str) -> list[float]:
    summary = load(f"{folder}/summary.json")
    return [summary["test_samples"], 100 * summary["optimizers"][0]["binomial_error"]]


@claim(UNFOLDINGS, "The {} test images have a binomial standard error of {} points")
def _():
    return binomial_error("unfoldings")


@claim(UNFOLDINGS, "the validation accuracy is between {} and {} % for all rates from {} to {}, and")
def _():
    methods = grid("unfoldings-separate-rates").values()
    return extremes(value for method in methods for value in method["accuracy"].values()) + extremes(
        rate for method in methods for rate in method["accuracy"]
    )


@claim(UNFOLDINGS, "Balanced and online are ahead of Muon's flattening by {} to {} points in both searches")
def _():
    first, second = differences("unfoldings"), differences("unfoldings-separate-rates")
    return extremes(found[method][0] for found in (first, second) for method in ("balanced", "online"))


@claim(
    UNFOLDINGS, "{1,2} is {} points behind Muon's flattening. It is still ahead of AdamW and SGD, which are {} and {}"
)
def _():
    found = differences("unfoldings")
    return [-found[method][0] for method in ("modes-0-1", "adamw", "sgd")]


@claim(TINY, "The test set has {} images, {} of each class, so its binomial standard error is {} points")
def _():
    samples, error = binomial_error("unfoldings-tiny-imagenet")
    return [samples, samples / 20, error]


@claim(TINY, "Both orthogonalized methods are {} to {} points ahead of AdamW and SGD")
def _():
    methods = {name: accuracy("unfoldings-tiny-imagenet", name) for name in ("muon", "balanced", "adamw", "sgd")}
    return extremes(methods[ours] - methods[other] for ours in ("muon", "balanced") for other in ("adamw", "sgd"))


GOOD_SETS = ("modes-0", "modes-0-2", "modes-0-3", "balanced", "online")


@claim(ABLATION, "that rate, {}, was the best, so it is still at the edge. Its lead over 0.1 is {} to {} points")
def _():
    methods = [method for method in grid("ablation").values() if method["lr"] > 0.1]
    assert {method["method"] for method in methods} == {"modes-0", "modes-0-1", "modes-0-2", "balanced"}
    rate = methods[0]["lr"]
    return [rate, *extremes(method["accuracy"][rate] - method["accuracy"][0.1] for method in methods)]


@claim(ABLATION, "are within {} points of each other, and no interval excludes zero. {2} is {} points behind.")
def _():
    found = differences("ablation")
    assert all(low < 0 < high for name, (_, low, high) in found.items() if name in GOOD_SETS)
    low, high = extremes(accuracy("ablation", name) for name in GOOD_SETS)
    return [high - low, -found["modes-1"][0]]


@claim(ABLATION, "which have 9 or 3 rows or columns, are {} to {} points behind")
def _():
    found = differences("ablation")
    return extremes(-found[name][0] for name in ("modes-0-1", "modes-2", "modes-3"))


@claim(ABLATION, "Three seeds leave intervals of {} to {} points to either side")
def _():
    found = differences("ablation")
    return extremes((high - low) / 2 for name, (_, low, high) in found.items() if name in GOOD_SETS)


@claim(TIME, "SGD and AdamW end at {} %")
def _():
    low, high = extremes(accuracy("wall-clock", name) for name in ("sgd", "adamw"))
    assert round(low) == round(high)
    return [low]


@claim(
    TIME,
    "takes {} times as long as one with SGD, a balanced one {} times, and an online one {} times. That is {} and {}",
)
def _():
    methods = load("wall-clock/summary.json")["optimizers"]
    seconds = {entry["optimizer"]: entry["seconds"]["mean"] for entry in methods}
    to_sgd = [seconds[name] / seconds["sgd"] for name in ("muon", "balanced", "online")]
    return to_sgd + [seconds[name] / seconds["muon"] for name in ("balanced", "online")]


PAIRS = (("tensorion-sgd", "sgd"), ("tensorion-adamw", "adamw"))


@claim(CIFAR, "Both variants of Tensorion are {} to {} points ahead of SGD and AdamW")
def _():
    return extremes(accuracy("cifar10", ours) - accuracy("cifar10", other) for ours, _ in PAIRS for _, other in PAIRS)


@claim(CIFAR, "{} to {} of these points come from the schedule")
def _():
    return extremes(accuracy("cifar10-onecycle", name) - accuracy("cifar10", name) for name in ("sgd", "adamw"))


@claim(CIFAR, "{} to {} points remain")
def _():
    return extremes(
        accuracy("cifar10", ours) - accuracy("cifar10-onecycle", other) for ours, _ in PAIRS for _, other in PAIRS
    )


@claim(CIFAR, "with SGD does not learn at 0.001 ({} %). Tensorion with AdamW is best at {}")
def _():
    methods = grid("cifar10")
    return [methods["tensorion-sgd"]["accuracy"][0.001], methods["tensorion-adamw"]["lr"]]


@claim(CIFAR, "and poor at 0.001 ({} %)")
def _():
    return [grid("cifar10")["tensorion-adamw"]["accuracy"][0.001]]


def tightness(row: str, file: str = "table.txt") -> list[float]:
    """Return the numbers of a row of the first table: mean, min and max, or the mean alone."""
    text = (ROOT / "results" / "tightness" / file).read_text()
    (line,) = [line for line in text.splitlines() if line.startswith(row)]
    return [float(number) for number in NUMBER.findall(line[len(row) :])]


def excess(file: str = "table.txt") -> float:
    """Return by how many percent the nuclear norm of {1,4} exceeds that of {1,3} on average."""
    return 100 * tightness("||M_{1,4}||_* / ||M_{1,3}||_* - 1", file)[0]


@claim(TIGHTNESS, "the relaxation is tight to {} % or better, and to {} % on average")
def _():
    mean, low = tightness("||X||_sigma, lower bound")[:2]
    return [100 * (1 - low), 100 * (1 - mean)]


@claim(TIGHTNESS, "But {1,3} has the largest nuclear norm in only {} % of all measurements")
def _():
    # Every layer has as many measurements. A row ends with "{1,4} 78 %, {1,3} 22 %".
    rows = load("tightness/summary.json")["tables"][1]["rows"]
    shares = [re.search(r"\{1,3\} (\d+) %", row[-1]) for row in rows]
    return [sum(int(share.group(1)) for share in shares if share) / len(rows)]


@claim(TIGHTNESS, "Our mean gap is {} times the paper's")
def _():
    mean, _, _, paper, _ = tightness("relative gap, balanced to online")
    return [mean / paper]


@claim(TIGHTNESS, "||T_K||_2 is {} to {} times ||K||_sigma")
def _():
    return extremes(
        entry["convolution"] / entry["spectral"] for entry in load("tightness/summary.json")["convolutions"]
    )


@claim(TIGHTNESS, "if they are transposed, the ratio falls by {} percentage points")
def _():
    return [excess() - excess("transposed.txt")]


@claim(TIGHTNESS, "make them {} % (images) and {} % (optimizer), which predicts {} % for the last row")
def _():
    whole, transposed = excess(), excess("transposed.txt")
    images, optimizer = (whole - transposed) / 2, (whole + transposed) / 2
    return [images, optimizer, images - optimizer]


def laplace(folder: str, steps: int, method: str) -> dict:
    """Return error, residual and seconds per step of a method at its best rate."""
    budgets = load(f"laplace/{folder}/summary.json")["problems"][0]["budgets"]
    (budget,) = [budget for budget in budgets if budget["steps"] == steps]
    (entry,) = [entry for entry in budget["optimizers"] if entry["optimizer"] == method]
    return next(rate for rate in entry["rates"] if rate["lr"] == entry["best"]["lr"])


PROBLEMS = ("10x32x8", "10x64x8", "50x32x8")
LONG_RUNS = [(problem, 1000) for problem in PROBLEMS] + [(f"{problem}-3000", 3000) for problem in PROBLEMS]


def advantage(run: tuple[str, int], other: str = "muon") -> float:
    """Return the error of another method divided by that of the balanced unfolding."""
    return laplace(*run, other)["error"] / laplace(*run, "tensorion")["error"]


@claim(LAPLACE, "ahead of Muon's flattening by a factor of {} to {}, and")
def _():
    return extremes(map(advantage, LONG_RUNS[:3]))


@claim(LAPLACE, "{} times closer than Muon's flattening for 10x32x8 and {} times closer for 50x32x8")
def _():
    return [advantage(LONG_RUNS[3]), advantage(LONG_RUNS[5])]


@claim(LAPLACE, "For 10x64x8 Muon's flattening is {} times closer")
def _():
    return [1 / advantage(LONG_RUNS[4])]


@claim(
    LAPLACE,
    "smaller residual for 10x32x8 ({} against {}) and 10x64x8 ({} against {}), and the larger one for 50x32x8 "
    "({} against {})",
)
def _():
    return [laplace(*run, method)["residual"] for run in LONG_RUNS[3:] for method in ("muon", "tensorion")]


@claim(
    LAPLACE,
    "Muon's best rate falls from {} to {} or {} as the budget grows; "
    "the best rate of the balanced unfolding stays at {} to {}",
)
def _():
    last = {laplace(*run, "muon")["lr"] for run in LONG_RUNS[3:]}
    (first,) = {laplace(problem, 100, "muon")["lr"] for problem in PROBLEMS}
    return [first, *sorted(last), *extremes(laplace(*run, "tensorion")["lr"] for run in LONG_RUNS)]


@claim(LAPLACE, "a balanced step takes {} to {} times as long as one with Muon's flattening")
def _():
    seconds = {(p, m): laplace(p, 1000, m)["seconds_per_step"] for p in PROBLEMS for m in ("tensorion", "muon")}
    return extremes(seconds[problem, "tensorion"] / seconds[problem, "muon"] for problem in PROBLEMS)


@claim(
    LAPLACE,
    "Muon's flattening is first after 300 steps ({} seconds), and the balanced unfolding after 1000 steps ({} seconds)",
)
def _():
    assert advantage(("10x32x8", 300)) < 1 < advantage(("10x32x8", 1000))
    return [
        300 * laplace("10x32x8", 300, "muon")["seconds_per_step"],
        1000 * laplace("10x32x8", 1000, "tensorion")["seconds_per_step"],
    ]


@claim(LAPLACE, "and is {} to {} times farther away at 1000 and 3000 steps")
def _():
    return extremes(advantage(run, "online") for run in LONG_RUNS)


def spectrum(steps: int, method: str, step: int) -> dict:
    return next(e for e in load(f"laplace-spectrum/{steps}-steps.json")["runs"][method] if e["step"] == step)


@claim(LAPLACE, "almost all at k <= 4 ({} of {} for balanced, {} of {} for Muon)")
def _():
    return [spectrum(300, method, 300)[key] for method in ("tensorion", "muon") for key in ("low", "error")]


@claim(LAPLACE, "its roughness (mean eigenvalue over the largest one) is {}, and that of the gradient {}.")
def _():
    return [spectrum(300, "tensorion", 151)[f"roughness_{key}"] for key in ("change", "gradient")]


@claim(LAPLACE, "close to the gradient's own profile: {} against {}.")
def _():
    return [spectrum(300, "muon", 151)[f"roughness_{key}"] for key in ("change", "gradient")]


@claim(
    LAPLACE,
    "its cosine with the gradient is {} and its roughness {}. Its error at k <= 4 stalls, from {} at step 501 to {}",
)
def _():
    middle = spectrum(1000, "muon", 701)
    return [middle["alignment"], middle["roughness_change"], *(spectrum(1000, "muon", k)["low"] for k in (501, 1000))]


@claim(LAPLACE, "update (cosine {}, roughness {}) keeps moving the low frequencies, whose error falls from {} to {}.")
def _():
    middle = spectrum(1000, "tensorion", 701)
    ends = [spectrum(1000, "tensorion", step)["low"] for step in (501, 1000)]
    return [middle["alignment"], middle["roughness_change"], *ends]


WORDS = {"two": 2, "three": 3, "four": 4, "five": 5}
WRITTEN = rf"{NUMBER.pattern}|(?i:{'|'.join(WORDS)})"


def prose(text: str) -> str:
    """Return a section without code, tables, addresses of links and line breaks. Thousands have no comma."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    text = "\n".join(line for line in text.splitlines() if not line.startswith("|"))
    text = re.sub(r"!\[[^]]*\]\([^)]*\)", "", text)
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"(?<=\d),(?=\d{3}\b)", "", text)
    return re.sub(r"\s+", " ", text)


def find_claim(text: str, sentence: str) -> list[re.Match]:
    pattern = re.escape(sentence).replace(re.escape("{}"), f"({WRITTEN})").replace(r"\ ", " ")
    return list(re.finditer(pattern, text))


@pytest.mark.parametrize(("section", "sentence", "numbers"), CLAIMS, ids=[sentence for _, sentence, _ in CLAIMS])
def test_statement_follows_from_the_files(section, sentence, numbers):
    (match,) = find_claim(prose(sections()[section]), sentence)
    written = [str(WORDS.get(number.lower(), number)) for number in match.groups()]
    wrong = [
        f"{text}, computed: {value:.4g}"
        for text, value in zip(written, numbers(), strict=True)
        if not is_rounded(text, value)
    ]
    assert not wrong


# Settings of a protocol that the files of results do not record.
SETTINGS = {TINY: {"9000"}, TIME: {"79"}, CIFAR: {"6000", "2000"}}


@pytest.mark.parametrize("title", sections())
def test_other_numbers_of_the_prose_are_in_the_files(title):
    text = prose(sections()[title])
    for section, sentence, _ in CLAIMS:
        if section == title:
            text = text.replace(find_claim(text, sentence)[0].group(), "")
    # Numbers of the paper were not measured here.
    text = " ".join(part for part in re.split(r"(?<=[.:;]) ", text) if "paper" not in part.lower())
    measured = measured_numbers(sections()[title])
    numbers = re.findall(r"(?<![\w{,-])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w}])", text)
    missing = [
        number
        for number in numbers
        if number not in SETTINGS.get(title, ()) and not any(is_rounded(number, value) for value in measured)
    ]
    assert not missing


def test_significance():
    """The leads that the page calls significant are those whose interval excludes zero, and no others."""
    (match,) = find_claim(prose(sections()[UNFOLDINGS]), "online and online every 10 steps with the rates of the first")
    assert match
    methods = {"balanced", "online", "online-10"}
    first = {name for name, (_, low, _) in differences("unfoldings").items() if name in methods and low > 0}
    second = {name for name, (_, low, _) in differences("unfoldings-separate-rates").items() if low > 0}
    assert (first, second) == ({"online", "online-10"}, {"balanced"})


def test_a_wrong_number_is_found():
    (match,) = find_claim("The lead is two to 0.8 points.", "lead is {} to {} points")
    assert match.groups() == ("two", "0.8")
    assert not find_claim("The lead is small.", "lead is {} to {} points")
