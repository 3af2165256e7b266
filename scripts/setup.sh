#!/usr/bin/env bash
# Sees to the system packages that a build needs: installs the missing ones
# with apt where that is allowed, otherwise says which they are.
#
#   scripts/setup.sh [bench|demo|fuzz]    bench, fuzz: those of the benchmarks or of fuzzing as well; demo: the
#                                         demo's data
set -euo pipefail

has_header() {
  printf '#include <cstdio>\n#include <%s>\n' "$1" | "${CXX:-c++}" -std=c++20 -x c++ -fsyntax-only - 2>/dev/null
}
has_fuzzer() {
  echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' |
    clang++ -x c++ -fsanitize=fuzzer,address -o /dev/null -
}
has_cmake() {
  local version
  version=$(cmake --version 2>/dev/null | sed -n 's/^cmake version //p') && [ -n "$version" ] &&
    printf '3.24\n%s\n' "$version" | sort -V -C
}

# A check for each package, so that what came another way than by apt counts.
missing=()
need() {
  local package=$1
  shift
  "$@" >/dev/null 2>&1 || missing+=("$package")
}
need g++ has_header vector
need cmake has_cmake
need ninja-build ninja --version
need python3-venv "${PYTHON:-python3}" -c 'import ensurepip, venv'
need libgtest-dev has_header gtest/gtest.h
need libcli11-dev has_header CLI/CLI.hpp
need nlohmann-json3-dev has_header nlohmann/json.hpp
need libjpeg-dev has_header jpeglib.h
need zlib1g-dev has_header zlib.h
need curl curl --version  # for scripts/get_data.sh
need unzip unzip -v
if [ "${1:-}" = bench ]; then
  need libbenchmark-dev has_header benchmark/benchmark.h
elif [ "${1:-}" = fuzz ]; then
  need clang has_fuzzer
  need llvm llvm-symbolizer --version  # names the lines of a finding
elif [ "${1:-}" = demo ] && [ -z "${TENSORION_DATA:-}" ]; then
  need dataset-fashion-mnist test -e /usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz
fi

if ! "${PYTHON:-python3}" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
  echo "Tensorion needs Python 3.10 or later, got $("${PYTHON:-python3}" --version 2>&1)." >&2
  echo "Name another one: make PYTHON=python3.12" >&2
  exit 1
fi
if [ ${#missing[@]} -eq 0 ]; then
  exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  as_root=(sudo -n)
fi
if command -v apt-get >/dev/null && "${as_root[@]}" true 2>/dev/null; then
  echo "Installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
  exit 0
fi
cat >&2 <<MESSAGE
Tensorion's build needs packages that are not here (and cmake 3.24 or later). On Debian or Ubuntu:

    sudo apt-get install ${missing[*]}

Then run make again. (dataset-fashion-mnist can be had by scripts/get_data.sh fashion-mnist instead; name its folder
in TENSORION_DATA.)
MESSAGE
exit 1
