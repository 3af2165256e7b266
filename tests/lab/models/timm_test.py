"""Checks that Python's safetensors and timm can read the weights that the program writes.

TENSORION_WRITE_WEIGHTS is the path of the executable built from write_weights.cpp.
"""

import importlib.util
import json
import os
import subprocess

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
safetensors = pytest.importorskip("safetensors", reason="safetensors is not installed")
load_file = pytest.importorskip("safetensors.torch", reason="safetensors is not installed").load_file

CASES = [
    {"name": "resnet18", "stem": "cifar", "width": 0.25, "channels": 1, "images": [2, 1, 28, 28]},
    {"name": "resnet50", "width": 0.25, "depths": [1, 1, 1, 1], "images": [2, 3, 64, 64]},
    {
        "name": "vit_small_patch16_224",
        "width": 0.34,
        "image_size": 32,
        "depths": [2],
        "images": [2, 3, 32, 32],
    },
    {"name": "vit_medium_patch16_gap_256", "width": 0.25, "image_size": 32, "images": [2, 3, 32, 32]},
    {
        "name": "swin_tiny_patch4_window7_224",
        "width": 0.34,
        "image_size": 64,
        "depths": [2, 2, 1, 1],
        "images": [2, 3, 64, 64],
    },
]


@pytest.fixture(params=CASES, ids=lambda case: case["name"])
def written(request, tmp_path):
    """Returns the options, the file of weights, and the file with images and our logits."""
    program = os.environ.get("TENSORION_WRITE_WEIGHTS")
    if not program:
        pytest.skip("TENSORION_WRITE_WEIGHTS is not set; run this test with ctest")
    options = {"classes": 10, **request.param}
    (tmp_path / "options.json").write_text(json.dumps(options))
    files = [tmp_path / name for name in ("options.json", "weights.safetensors", "answers.safetensors")]
    subprocess.run([program, *files], check=True)
    return options, files[1], files[2]


def test_python_reads_our_files(written):
    _, weights, answers = written
    with safetensors.safe_open(weights, framework="pt") as file:
        assert file.metadata() == {"format": "pt"}
    assert all(torch.isfinite(tensor).all() for tensor in load_file(weights).values())
    assert load_file(answers)["logits"].shape == (2, 10)


def test_timm_loads_our_weights(written):
    for package in ("timm", "torchvision"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed (see timm_reference.py)")
    from timm_reference import build

    options, weights, answers = written
    model = build(options).eval()
    model.load_state_dict(load_file(weights), strict=True)
    expected = load_file(answers)
    with torch.no_grad():
        torch.testing.assert_close(model(expected["images"]), expected["logits"], rtol=0.0, atol=1e-4)
