#!/usr/bin/env bash
# Runs the numerical tests of the library and the Python package with the instruction sets of other CPUs and with other
# numbers of threads. Prints one line per setting. Fails if a test fails. Needs a build.
#
#   scripts/test_portable.sh [SETTING...]    the names of settings in the table below; default: all
set -uo pipefail
cd "$(dirname "$0")/.."

# ATEN_CPU_CAPABILITY selects the vector instructions of ATen. MKL_ENABLE_INSTRUCTIONS selects those of MKL, but only on
# Intel CPUs. MKL_CBWR=COMPATIBLE makes MKL use its oldest code path on any CPU.
settings=(
  'aten-default    ATEN_CPU_CAPABILITY=default'
  'aten-avx2       ATEN_CPU_CAPABILITY=avx2'
  'mkl-sse4.2      MKL_ENABLE_INSTRUCTIONS=SSE4_2'
  'mkl-avx2        MKL_ENABLE_INSTRUCTIONS=AVX2'
  'mkl-compatible  MKL_CBWR=COMPATIBLE'
  'oldest          ATEN_CPU_CAPABILITY=default MKL_ENABLE_INSTRUCTIONS=SSE4_2 MKL_CBWR=COMPATIBLE'
  'threads-2       TENSORION_TEST_THREADS=2'
  'threads-4       TENSORION_TEST_THREADS=4'
  'threads-8       TENSORION_TEST_THREADS=8'
)
# Tests that are slow or do not compute much are excluded.
python_tests=(python/tests/test_{polar,precision,lmo,norms,optimizer,torture,trajectory}.py
  -k 'not operator and not compile and not ten_thousand and not bad_input')

# If there are more threads than cores, waiting threads must not spin.
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
logs=build/portable
mkdir -p "$logs"
failures=0
printf '%-16s %8s %8s %8s\n' setting failed programs seconds
for setting in "${settings[@]}"; do
  read -r name variables <<<"$setting"
  if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then
    continue
  fi
  log=$logs/$name.log failed=() count=0 start=$SECONDS
  : >"$log"
  # shellcheck disable=SC2086
  run() {
    count=$((count + 1))
    env $variables "${@:2}" >>"$log" 2>&1 || failed+=("$1")
  }
  for test in build/tests/*_test; do
    run "$(basename "$test")" "$test" --gtest_brief=1
  done
  run python .venv/bin/python -m pytest -q "${python_tests[@]}"
  printf '%-16s %8d %8d %8d' "$name" ${#failed[@]} $count $((SECONDS - start))
  if [ ${#failed[@]} -gt 0 ]; then
    failures=1
    printf '   %s (see %s)' "${failed[*]}" "$log"
  fi
  printf '\n'
done
exit $failures
