"""Helpers that run the installed program and read its files."""

import json
import struct
import subprocess
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = Path(sysconfig.get_path("scripts")) / "tensorion"


def run(*arguments, expect=0, program=PROGRAM, **options):
    """Run the program, and check its exit status."""
    command = [program, *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, **options)
    assert result.returncode == expect, result.stderr
    return result


def words(flags):
    """Convert {"--flag": value} to the words of a command line. Flags whose value is None are omitted."""
    return [str(word) for flag, value in flags.items() if value is not None for word in (flag, value)]


def read_json(path):
    return json.loads(path.read_text())


def read_json_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def files(folder):
    return {path.name for path in folder.iterdir()}


def figures(folder):
    """Return the names of the figures in the report on a folder of results."""
    return {path.name for path in (folder / "report").glob("*.png")}


def write_safetensors(path, tensors):
    """Write NumPy arrays to a safetensors file: 8 bytes of header length, a JSON header, and the data."""
    header, data = {}, b""
    for name, array in tensors.items():
        kind = {"float32": "F32", "int32": "I32", "int64": "I64"}[array.dtype.name]
        offsets = [len(data), len(data) + array.nbytes]
        header[name] = {"dtype": kind, "shape": array.shape, "data_offsets": offsets}
        data += array.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path):
    """Read the tensors of a safetensors file as bytes."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    body = content[8 + length :]
    header.pop("__metadata__", None)
    return {name: body[slice(*entry["data_offsets"])] for name, entry in header.items()}
