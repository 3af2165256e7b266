"""Describes the machine and the software of a measurement, for the first line of a table and for the JSON."""

import os
import platform
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

#: Environment variables that make a CPU behave like one with a smaller instruction set.
EMULATION = ("ATEN_CPU_CAPABILITY", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA")


def cpu_name() -> str:
    """Return the model name that the operating system reports, with the family, which the name may leave open."""
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text() if cpuinfo.exists() else ""
    name, family = (re.search(rf"^{key}\s*:\s*(.+)$", text, re.MULTILINE) for key in ("model name", "cpu family"))
    if not name:
        return platform.processor() or platform.machine()
    return name[1].strip() + (f" family {family[1].strip()}" if family else "")


def describe() -> dict[str, Any]:
    """Return the CPU, its instruction set, the threads, and the versions on which the times depend."""
    mkl = re.search(r"Math Kernel Library Version ([\d.]+)", torch.__config__.show())
    try:
        package = version("tensorion")
    except PackageNotFoundError:  # the package is on the path, but not installed
        package = "unknown"
    return {
        "cpu": cpu_name(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "emulated_by": {name: os.environ[name] for name in EMULATION if name in os.environ},
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "tensorion": package,
        "torch": torch.__version__,
        "mkl": mkl[1] if mkl else None,
        "python": platform.python_version(),
        "system": platform.system(),
    }


def headline(machine: dict[str, Any]) -> str:
    """Return one line, such as "AMD EPYC family 25, AVX512, 2 of 2 cores, torch 2.13.0, MKL 2025.3"."""
    instructions = machine["instructions"]
    if machine["emulated_by"]:
        settings = " ".join(f"{key}={value}" for key, value in machine["emulated_by"].items())
        instructions += f" (emulated by {settings})"
    parts = [machine["cpu"], instructions, f"{machine['threads']} of {machine['cores']} cores"]
    parts += [f"torch {machine['torch']}", f"MKL {machine['mkl']}" if machine["mkl"] else "no MKL"]
    return ", ".join(parts)


def slug(machine: dict[str, Any]) -> str:
    """Return a file name for results on this machine, such as "amd-epyc-family-25-avx2-emulated"."""
    words = [machine["cpu"], machine["instructions"], "emulated" if machine["emulated_by"] else ""]
    return re.sub(r"[^a-z0-9]+", "-", " ".join(words).lower()).strip("-")
