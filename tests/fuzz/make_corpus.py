"""Write the initial inputs of the fuzz targets to corpus/TARGET/: small files, some valid and some damaged.

Run this script by hand when a format changes. It needs NumPy, Pillow and torch. Files that fuzzing found are in the
same folders and are not changed.
"""

import gzip
import io
import json
import struct
import zlib
from pathlib import Path

import numpy as np
import torch
from PIL import Image

CORPUS = Path(__file__).parent / "corpus"


def write(target, name, content):
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)


def idx(sizes, values):
    return bytes([0, 0, 8, len(sizes)]) + b"".join(struct.pack(">I", size) for size in sizes) + bytes(values)


def make_idx():
    labels = idx([5], range(5))
    images = idx([2, 3, 4], range(24))
    for name, content in (("labels", labels), ("images", images)):
        write("idx", name, content)
        write("idx", name + ".gz", gzip.compress(content, mtime=0))
    write("idx", "truncated", images[:-3])
    write("idx", "longer", images + b"x")
    write("idx", "huge", idx([2**32 - 1] * 3, b"abc"))
    write("idx", "empty_and_huge", idx([0, 2**32 - 1, 2**32 - 1], b""))
    write("idx", "truncated.gz", gzip.compress(images, mtime=0)[:-6])


def make_cifar():
    def records(label_bytes, count):
        return b"".join(bytes([label]) * label_bytes + bytes(i % 7 for i in range(3072)) for label in range(count))

    write("cifar", "cifar10", b"\0" + records(1, 2))
    write("cifar", "cifar100", b"\1" + records(2, 1))
    write("cifar", "label", b"\0\x0a" + bytes(3072))
    write("cifar", "truncated", b"\1" + records(2, 1)[:-1])
    write("cifar", "names", b"\2" + b"".join(b"class%d\r\n" % i for i in range(100)))
    write("cifar", "too_few_names", b"\2apple\n\nbear")


def jpeg(mode, size, **options):
    rows, cols = np.mgrid[: size[1], : size[0]]
    channels = {"L": 1, "RGB": 3, "CMYK": 4}[mode]
    pixels = np.stack([(rows * 9 + cols * (5 + c)) % 256 for c in range(channels)], -1).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels.squeeze(-1) if channels == 1 else pixels, mode).save(stream, "JPEG", **options)
    return stream.getvalue()


def make_jpeg():
    colour = jpeg("RGB", (20, 17), quality=50)
    write("jpeg", "colour", colour)
    write("jpeg", "gray", jpeg("L", (9, 8), quality=30))
    write("jpeg", "cmyk", jpeg("CMYK", (8, 8), quality=30))
    write("jpeg", "progressive", jpeg("RGB", (16, 16), quality=30, progressive=True))
    write("jpeg", "restarts", jpeg("RGB", (32, 8), quality=30, restart_marker_blocks=1))
    write("jpeg", "truncated", colour[:-40])
    frame = colour.find(b"\xff\xc0")
    write("jpeg", "huge", colour[: frame + 5] + b"\x2d\x00\x2d\x00" + colour[frame + 9 :])


def image(channels, size=(9, 8)):
    """Return the pixels that tests/lab/data/png_test.cpp computes, too."""
    rows, cols = np.mgrid[: size[1], : size[0]]
    return np.stack([(rows * 9 + cols * (5 + c)) % 256 for c in range(channels)], -1).astype(np.uint8)


def png(pixels, kind, *, bits=8, interlaced=False, chunks=(), size=None):
    """Return a PNG file. `kind` is the color type of the format.

    Pillow can write neither 16 bits per channel nor interlaced images.
    """

    def chunk(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    def rows(part):
        deep = (part.astype(np.uint16) * 256 + 200).astype(">u2") if bits == 16 else part
        lines = [np.packbits(row.ravel()) if bits == 1 else row for row in deep]
        return b"".join(b"\0" + line.tobytes() for line in lines)

    passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    parts = [pixels[y::dy, x::dx] for y, x, dy, dx in passes] if interlaced else [pixels]
    data = b"".join(rows(part) for part in parts if part.size)
    width, height = size or (pixels.shape[1], pixels.shape[0])
    header = struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, int(interlaced))
    body = [chunk(b"IHDR", header), *(chunk(*each) for each in chunks), chunk(b"IDAT", zlib.compress(data, 9))]
    return b"\x89PNG\r\n\x1a\n" + b"".join(body) + chunk(b"IEND", b"")


def make_png():
    colour = png(image(3), 2)
    write("png", "colour", colour)
    write("png", "gray", png(image(1), 0))
    write("png", "bilevel", png(image(1) % 2, 0, bits=1))
    write("png", "palette", png(image(1) % 4, 3, chunks=[(b"PLTE", bytes(range(0, 120, 10)))]))
    write("png", "transparent_gray", png(image(2), 4))
    write("png", "transparent", png(image(4), 6))
    write("png", "deep", png(image(3), 2, bits=16))
    write("png", "interlaced", png(image(3), 2, interlaced=True))
    write("png", "truncated", colour[:-30])
    write("png", "huge", png(image(3), 2, size=(2**31 - 1, 2**31 - 1)))
    write("png", "beyond_its_palette", png(image(1), 3, chunks=[(b"PLTE", bytes(6))]))
    write("png", "wrong_checksum", colour[:-20] + b"x" + colour[-19:])


def safetensors(tensors, metadata=None, **changes):
    """Return a safetensors file. `tensors` maps a name to (dtype, shape, bytes)."""
    header, data = {}, b""
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, shape, content) in tensors.items():
        offsets = [len(data), len(data) + len(content)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets, **changes}
        data += content
    text = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text)) + text + data


def make_safetensors():
    dtypes = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
    all_dtypes = {dtype.lower(): (dtype, [2], bytes([0, 1] * size)) for dtype, size in dtypes.items()}
    small = {"w": ("F32", [2, 3], bytes(range(24))), "scalar": ("I8", [], b"\7"), "none": ("F16", [0, 5], b"")}
    good = safetensors(small, {"format": "pt"})
    write("safetensors", "dtypes", safetensors(all_dtypes))
    write("safetensors", "small", good)
    write("safetensors", "no_tensors", safetensors({}))
    write("safetensors", "truncated", good[:-1])
    write("safetensors", "header_of_2^60_bytes", struct.pack("<Q", 2**60) + good[8:])
    write("safetensors", "tensor_of_2^60_bytes", safetensors(small, shape=[2**58]))
    write("safetensors", "empty_and_huge", safetensors({"w": ("F32", [0, 2**40, 2**40], b"")}))
    write("safetensors", "hole", safetensors(small, data_offsets=[1, 25]))
    write("safetensors", "bool_of_2", safetensors({"b": ("BOOL", [1], b"\2")}))
    write("safetensors", "number_beyond_double", struct.pack("<Q", 11) + b'{"a":1e999}')
    write("safetensors", "nested", struct.pack("<Q", 64) + b"[" * 64)


def sealed(file):
    """Replace the zeros of the checksum by the checksum of all bytes."""
    zeros = b'"tensorion_crc32":"00000000"'
    return file.replace(zeros, zeros.replace(b"00000000", b"%08x" % zlib.crc32(file)), 1)


def make_checkpoint():
    generator = torch.Generator().manual_seed(1)
    torch.rand(3, generator=generator)
    state = {"epoch": 1, "batch": 2, "loss_sum": 0.5, "samples": 8, "seconds": 1.5, "optimizer_seconds": 0.5}
    epoch = {"epoch": 1, "lr": 0.1, "train_loss": 2.0, "test_loss": None, "test_accuracy": 0.5}
    epoch |= {"seconds": 1.0, "optimizer_seconds": 0.25}
    state |= {"skipped_steps": 0, "history": [epoch]}

    def checkpoint(state, **changes):
        kernel, bias = ("F32", [2, 2, 2, 2], bytes(64)), ("F32", [2], bytes(8))
        tensors = {
            "model.conv.weight": kernel,
            "model.conv.bias": bias,
            "optimizer.conv.weight.momentum_buffer": kernel,
            "optimizer.conv.bias.step": ("F32", [], bytes(4)),
            "optimizer.conv.bias.exp_avg": bias,
            "optimizer.conv.bias.exp_avg_sq": bias,
            "generator": ("U8", [5056], generator.get_state().numpy().tobytes()),
        } | changes
        metadata = {"format": "tensorion-checkpoint-2", "tensorion_crc32": "00000000"}
        metadata["state"] = state if isinstance(state, str) else json.dumps(state)
        return sealed(safetensors({name: entry for name, entry in tensors.items() if entry}, metadata))

    write("checkpoint", "whole", checkpoint(state))
    write("checkpoint", "truncated", checkpoint(state)[:-9])
    write("checkpoint", "flipped_bit", checkpoint(state).replace(b'"epoch', b'"dpoch', 1))
    write("checkpoint", "no_state", checkpoint("{}"))
    write("checkpoint", "number_out_of_range", checkpoint(state | {"epoch": 1e300}))
    write("checkpoint", "negative", checkpoint(state | {"epoch": -1, "batch": -5}))
    write("checkpoint", "other_shape", checkpoint(state, **{"model.conv.bias": ("F32", [1], bytes(4))}))
    write("checkpoint", "no_generator", checkpoint(state, generator=None))
    # torch accepts this state and would read beyond the table of the generator.
    beyond = bytearray(generator.get_state().numpy().tobytes())
    beyond[8:12], beyond[16:24] = struct.pack("<i", 600), struct.pack("<Q", 600)
    write("checkpoint", "generator_beyond_its_table", checkpoint(state, generator=("U8", [5056], bytes(beyond))))


def make_flags():
    values = {
        "balanced": "balanced",
        "online": "online",
        "modes": "0,2",
        "by_method": "tensorion=1,0",
        "notation": "(0, 2)",
        "one": "(1,)",
        "negative": "-1",
        "huge": "99999999999999999999",
        "empty_mode": "0,,1",
        "other_method": "adam=online",
        "long": "(" + "0, " * 3000 + "1)",
    }
    for name, value in values.items():
        write("flags", name, value.encode())


def make_lmo():
    values = np.random.default_rng(0).standard_normal(64).astype(np.float32).tobytes()

    def case(task, dtype, shape, modes, values, wild=False):
        head = [task, dtype, len(shape), *shape, len(modes), *(mode + 1 for mode in modes), 0 if wild else 1]
        return bytes(head) + values

    for task in (1, 9, 17, 25, 49, 4, 5, 13, 21):
        write("lmo", f"task{task}", case(task, 0, [4, 3, 2, 2], [0, 2], values))
    for dtype in (1, 2, 3, 4):
        write("lmo", f"dtype{dtype}", case(9, dtype, [3, 4, 2], [1], values))
    write("lmo", "transposed", case(64 + 1, 0, [4, 3, 2], [0, 2], values))
    write("lmo", "nan", case(5, 0, [2, 2, 2], [0], struct.pack("<3f", 1, float("nan"), 2), wild=True))
    write("lmo", "infinite", case(9, 0, [2, 2, 2], [0], struct.pack("<2f", float("inf"), 2), wild=True))
    write("lmo", "denormal", case(9, 0, [2, 3, 2], [0], struct.pack("<3I", 1, 7, 0x80000003)))
    write("lmo", "largest", case(9, 0, [2, 3, 2], [0], struct.pack("<2f", 3.4e38, -3e38)))
    # Rounding ruled out every unfolding.
    write("lmo", "rank_one", case(9, 0, [2, 2, 2], [0], struct.pack("<2f", 0, 2)))
    # The squares of these numbers underflow, and so did the bound that rules out unfoldings.
    small = struct.pack("<4d", 1e-245, 1e-245, 1e-245, 1e-294) + struct.pack("<3d", 1e-245, 1e-245, 1e-299)
    write("lmo", "small_doubles", case(9, 1, [3, 3, 4], [0], small))
    write("lmo", "near_largest_double", case(9, 1, [2, 2, 2], [0], struct.pack("<3d", 3e303, -1e304, 2e303)))
    write("lmo", "empty", case(9, 0, [2, 0, 2], [0], b""))
    # The sizes are 2^62, 2^40 and 1. The first two modes form the rows.
    sizes = b"\0" + struct.pack(">q", 2**62) + b"\0" + struct.pack(">q", 2**40) + b"\1\1"
    write("lmo", "shape", b"\0\3" + sizes + b"\2\1\0\1\1")


if __name__ == "__main__":
    for make in (make_idx, make_cifar, make_jpeg, make_png, make_safetensors, make_checkpoint, make_flags, make_lmo):
        make()
