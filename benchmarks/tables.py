"""Prints the tables of docs/performance.md from results of peers.py.

python benchmarks/tables.py results/performance/CPU.json results/performance/OTHER-CPU.json

The step tables come from the first file; each file is a column of the table of ratios.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from baselines import DEFAULT
from step_table import TITLES, base_of


def column_title(machine: dict[str, Any]) -> str:
    name = {"AVX512": "AVX-512"}.get(machine["instructions"], machine["instructions"])
    return f"{name}, emulated" if machine["emulated_by"] else name


def ratio_table(results: list[dict[str, Any]]) -> list[str]:
    """Values that miss their goal are bold."""
    lines = ["| ratio | at most | aim | " + " | ".join(column_title(one["machine"]) for one in results) + " |"]
    lines.append("| --- " * (3 + len(results)) + "|")
    columns = [{ratio["key"]: ratio for ratio in one["ratios"]} for one in results]
    for key, first in columns[0].items():
        texts = []
        for column in columns:
            if key not in column:  # see --extra of peers.py
                texts.append("-")
                continue
            text = f"{column[key]['measured']:.{1 if key == 'online_memory' else 2}f}"
            texts.append(text if column[key]["reached"] else f"**{text}**")
        lines.append(f"| {first['name']} | {first['at_most']:g} | {first['aim']:g} | " + " | ".join(texts) + " |")
    return lines


def step_table(result: dict[str, Any], base: str, network: str = "resnet18", spectrum: str = "trained") -> list[str]:
    """The rows of one unfolding; "online" belongs to the balanced one."""
    lines = ["| method | ms | / plain | / floor | mean q | least q | products, GFLOP | memory |", "| --- " * 8 + "|"]
    for row in result["rows"]:
        if (row["network"], row["spectrum"], base_of(row["unfolding"])) != (network, spectrum, base):
            continue
        name = row["method"] + (", online" if row["unfolding"] == "online" else "")
        name = f"**{name}**" if row["method"] == DEFAULT else name
        ratios = f"{row['relative_to_plain']:.2f} | {row['relative_to_floor']:.1f}"
        qualities = f"{row['quality_mean']:.3f} | {row['quality_least']:.3f}"
        work = f"{row['product_gflop']:.0f} | {row['extra_memory']:.1f}"
        lines.append(f"| {name} | {1e3 * row['seconds']:,.0f} | {ratios} | {qualities} | {work} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", help="written by peers.py --json")
    results = [json.loads(file.read_text()) for file in parser.parse_args().files]
    print("\n".join(ratio_table(results)))
    for base, title in TITLES.items():
        print(f"\n{title}\n\n" + "\n".join(step_table(results[0], base)))


if __name__ == "__main__":
    main()
