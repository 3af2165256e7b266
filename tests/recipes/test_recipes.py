"""Run each recipe of docs/recipes.md as a separate program. `make recipes` installs the frameworks."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text()
RECIPES = re.findall(r"^## (.*?)$(?:(?!^## ).)*?^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def test_each_section_has_a_recipe():
    assert [name for name, _ in RECIPES] == re.findall(r"^## (.*)$", TEXT, re.MULTILINE)


@pytest.mark.parametrize(("name", "code"), RECIPES, ids=[name for name, _ in RECIPES])
def test_recipe(tmp_path, name, code):
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    environment |= {"YOLO_OFFLINE": "true", "YOLO_CONFIG_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True)
