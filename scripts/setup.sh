#!/usr/bin/env bash
# Checks that the system packages for a build are installed. If apt may be used, installs the missing packages and
# checks again. If packages are still missing, lists them and exits with status 1.
#
#   scripts/setup.sh [bench|demo|fuzz]    bench: also packages for the benchmarks; fuzz: also packages for the
#                                         sanitizers and fuzzers; demo: also the data of the demo
set -euo pipefail
purpose=${1:-}

has_header() {
  printf '#include <cstdio>\n#include <%s>\n' "$1" | "${CXX:-c++}" -std=c++20 -x c++ -fsyntax-only - 2>/dev/null
}
# Linking succeeds only if clang's runtime libraries for the sanitizers are installed.
has_sanitizers() {
  echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' |
    clang++ -x c++ -fsanitize=fuzzer,address,undefined -o /dev/null -
}
has_cmake() {
  local version
  version=$(cmake --version 2>/dev/null | sed -n 's/^cmake version //p') && [ -n "$version" ] &&
    printf '3.24\n%s\n' "$version" | sort -V -C
}

# Prints the name of the package with clang's sanitizer runtime, for example libclang-rt-14-dev. It has the
# version of clang++ on the path, or else of the clang that apt would install. The package exists since clang 14, and clang only
# recommends it.
sanitizer_package() {
  local version
  version=$(clang++ -dumpversion 2>/dev/null | cut -d . -f 1 || true)
  if [ -z "$version" ]; then
    version=$(apt-cache depends clang 2>/dev/null | sed -n 's/^ *Depends: clang-\([0-9][0-9]*\)$/\1/p' || true)
  fi
  echo "libclang-rt-${version:-VERSION}-dev"
}

# Each package has a check, so that software that was not installed with apt counts too.
find_missing() {
  missing=()
  need g++ has_header vector
  need cmake has_cmake
  need ninja-build ninja --version
  need python3-venv "${PYTHON:-python3}" -c 'import ensurepip, venv'
  need libgtest-dev has_header gtest/gtest.h
  need libcli11-dev has_header CLI/CLI.hpp
  need nlohmann-json3-dev has_header nlohmann/json.hpp
  need libtomlplusplus-dev has_header toml++/toml.h
  need libjpeg-dev has_header jpeglib.h
  need libpng-dev has_header png.h
  need zlib1g-dev has_header zlib.h
  need curl curl --version  # for scripts/get_data.sh
  need unzip unzip -v
  if [ "$purpose" = bench ]; then
    need libbenchmark-dev has_header benchmark/benchmark.h
  elif [ "$purpose" = fuzz ]; then
    need clang clang++ --version
    need "$(sanitizer_package)" has_sanitizers
    need llvm llvm-symbolizer --version  # prints the source lines of a finding
  elif [ "$purpose" = demo ] && [ -z "${TENSORION_DATA:-}" ]; then
    need dataset-fashion-mnist test -e /usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz
  fi
}
need() {
  local package=$1
  shift
  "$@" >/dev/null 2>&1 || missing+=("$package")
}

if ! "${PYTHON:-python3}" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
  echo "Tensorion needs Python 3.10 or later, got $("${PYTHON:-python3}" --version 2>&1)." >&2
  echo "Choose another Python: make PYTHON=python3.12" >&2
  exit 1
fi
find_missing
if [ ${#missing[@]} -eq 0 ]; then
  exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  as_root=(sudo -n)
fi
if command -v apt-get >/dev/null && "${as_root[@]}" true 2>/dev/null; then
  export DEBIAN_FRONTEND=noninteractive
  "${as_root[@]}" apt-get update -qq || echo "apt-get update failed; continuing with the old package lists." >&2
  find_missing  # The version of clang is known only now.
  echo "Installing ${missing[*]}"
  "${as_root[@]}" apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null || true
  hash -r
  find_missing
  if [ ${#missing[@]} -eq 0 ]; then
    exit 0
  fi
  echo "After the installation, these packages are still missing or too old: ${missing[*]}" >&2
fi
cat >&2 <<MESSAGE
The build of Tensorion needs packages that are not installed (and cmake 3.24 or later). On Debian or Ubuntu, run:

    sudo apt-get install ${missing[*]}

Then run make again. (Instead of installing the package dataset-fashion-mnist, you can download the data with
scripts/get_data.sh fashion-mnist and set TENSORION_DATA to its folder.)
MESSAGE
exit 1
