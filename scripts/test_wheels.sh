#!/usr/bin/env bash
# Installs the wheel in dist into new environments, one per version of torch. In each one, runs a short training without
# access to this source tree or a compiler, and builds a C++ project that finds the library in the package. Also builds
# and tests the source distribution with the first version of torch.
#
#   scripts/test_wheels.sh VERSION...    versions of torch that the wheel was built for
set -euo pipefail
cd "$(dirname "$0")/.."
source=$PWD
work=$source/build-wheels
if [ $# -eq 0 ]; then
  echo 'Specify versions of torch: scripts/test_wheels.sh 2.13.0 2.15.0' >&2
  exit 2
fi

check() {
  local name=$1 version=$2 package=$3
  local folder=$work/test-$name-$version
  rm -rf "$folder"
  mkdir -p "$folder/empty"
  "${PYTHON:-python3}" -m venv "$folder/venv"
  "$folder/venv/bin/pip" install -qq --no-cache-dir "torch==$version" "$(grep '^numpy==.*3.11"$' scripts/requirements.txt | tail -n 1)"
  CI=true "$folder/venv/bin/pip" install -qq "$package"
  cp scripts/check_installation.py "$folder/"
  (cd "$folder/empty" && env -i PATH=/nonexistent HOME="$folder/empty" "$folder/venv/bin/python" \
    "$folder/check_installation.py" "$version")
  local prefix
  prefix=$("$folder/venv/bin/python" -c 'import tensorion; print(tensorion.cmake_prefix_path)')
  cp -r examples/cpp "$folder/consumer"
  cmake -S "$folder/consumer" -B "$folder/consumer-build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$prefix" \
    >"$folder/consumer.log" 2>&1
  cmake --build "$folder/consumer-build" >>"$folder/consumer.log" 2>&1 || { tail "$folder/consumer.log"; return 1; }
  (cd "$folder/empty" && "$folder/consumer-build/train")
  rm -rf "$folder"
  echo "torch $version: the $name works"
}

for version; do
  check wheel "$version" dist/tensorion-*.whl
done
check sdist "$1" dist/tensorion-*.tar.gz
