#!/usr/bin/env bash
# Installs the package and the frameworks of docs/recipes.md into build-recipes/venv and runs the recipes.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=build-recipes/venv
if [ ! -e build-recipes/ready ] || [ scripts/requirements-recipes.txt -nt build-recipes/ready ]; then
  "${PYTHON:-python3}" -m venv --clear "$venv"
  "$venv/bin/pip" install -qq --no-cache-dir -r scripts/requirements-recipes.txt
  touch build-recipes/ready
fi
CI=true "$venv/bin/pip" install -qq --no-build-isolation --no-deps --config-settings=build-dir=build-recipes/build .
"$venv/bin/python" -m pytest -q -p no:cacheprovider tests/recipes
