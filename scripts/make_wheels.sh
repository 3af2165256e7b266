#!/usr/bin/env bash
# Builds dist/tensorion-*.whl, one wheel with libraries for several versions of torch, and dist/tensorion-*.tar.gz, the
# source distribution. Only the torch packages themselves are downloaded, not the CUDA libraries that they depend on.
# auditwheel sets the platform tag of the oldest Linux that the wheel runs on. The wheel does not contain torch's
# libraries.
#
#   scripts/make_wheels.sh VERSION...    versions of torch, such as 2.13.0 2.15.0
set -euo pipefail
cd "$(dirname "$0")/.."
if [ $# -eq 0 ]; then
  echo 'Specify versions of torch: scripts/make_wheels.sh 2.13.0 2.15.0' >&2
  exit 2
fi

work=build-wheels
rm -rf "$work/parts" "$work/merged" dist
mkdir -p "$work/parts" "$work/merged"
tools=$work/tools
[ -x "$tools/bin/auditwheel" ] || {
  "${PYTHON:-python3}" -m venv --clear "$tools"
  "$tools/bin/pip" install -qq -r scripts/requirements-wheels.txt
}

for version; do
  echo "torch $version"
  venv=$work/venv-$version
  if [ ! -e "$venv/ready" ]; then
    "${PYTHON:-python3}" -m venv --clear "$venv"
    "$venv/bin/pip" install -qq --no-cache-dir --no-deps "torch==$version"
    "$venv/bin/pip" install -qq "$(grep '^scikit-build-core==' scripts/requirements.txt)"
    touch "$venv/ready"
  fi
  CI=true "$venv/bin/pip" wheel --no-build-isolation --no-deps --wheel-dir "$work/parts/$version" \
    --config-settings=build-dir="$work/build-$version" --verbose . >"$work/build-$version.log" 2>&1 ||
    { tail -n 40 "$work/build-$version.log"; exit 1; }
  # The wheels differ only in the folder torch-2.N.
  "$tools/bin/python" -m zipfile -e "$work/parts/$version"/*.whl "$work/merged"
done

"$tools/bin/wheel" pack --dest-dir "$work/parts" "$work/merged"
# torch ships a copy of gcc's OpenMP runtime. A second copy in one process would start its own threads.
PATH=$PWD/$tools/bin:$PATH "$tools/bin/auditwheel" repair --wheel-dir dist \
  --exclude libtorch.so --exclude libtorch_cpu.so --exclude libc10.so --exclude libgomp.so.1 \
  --exclude libtensorion.so "$work/parts"/*.whl
(cd "$PWD" && "$tools/bin/python" -c 'from scikit_build_core.build import build_sdist; build_sdist("dist")' >/dev/null)
ls -l dist
