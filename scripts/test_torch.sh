#!/usr/bin/env bash
# Builds the package with another version of torch in a separate environment, and runs the package's tests there. The
# last line of the output is the summary of pytest. The default index has CUDA builds for Linux, which take about 5 GB
# of disk space but need no GPU.
#
#   scripts/test_torch.sh VERSION [ARGUMENT...]    the version of torch, for example 2.15.0, and arguments for pytest
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:?specify a version of torch: scripts/test_torch.sh 2.15.0}
shift

folder=build-torch-$version
python=$folder/venv/bin/python
mkdir -p "$folder"
if [ ! -e "$folder/ready" ]; then
  "${PYTHON:-python3}" -m venv --clear "$folder/venv"
  grep -v '^torch==' scripts/requirements.txt >"$folder/requirements.txt"
  "$python" -m pip install -qq --no-cache-dir "torch==$version" -r "$folder/requirements.txt"
  touch "$folder/ready"
fi

CI=true "$python" -m pip install --verbose --no-build-isolation --no-deps \
  --config-settings=build-dir="$folder/build" \
  --config-settings=cmake.define.TENSORION_TESTS=ON \
  --config-settings=cmake.define.TENSORION_LAB=OFF . >"$folder/build.log" 2>&1 ||
  { tail -n 40 "$folder/build.log"; echo "torch $version: does not build, see $folder/build.log"; exit 1; }
cmake --build "$folder/build" --target python_test_programs >>"$folder/build.log"

status=0
TENSORION_BUILD_DIR=$folder/build "$python" -m pytest -q -p no:cacheprovider -rfE \
  -o testpaths=python/tests "$@" >"$folder/test.log" 2>&1 || status=$?
grep -E '^(FAILED|ERROR)' "$folder/test.log" || true
echo "torch $version: $(tail -n 1 "$folder/test.log")"
exit $status
