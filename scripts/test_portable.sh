#!/usr/bin/env bash
# Runs the numerical tests, the library's and the Python package's, as if on other CPUs and with other numbers of
# threads, and prints a line for each setting. Fails if any of them fails. Needs a build.
#
#   scripts/test_portable.sh [SETTING...]    all settings, or those of the table that are named
set -uo pipefail
cd "$(dirname "$0")/.."

# ATen chooses its vector instructions by ATEN_CPU_CAPABILITY, MKL by MKL_ENABLE_INSTRUCTIONS, which it heeds on Intel's
# CPUs only; MKL_CBWR=COMPATIBLE makes it take its oldest code on any CPU.
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
# Without the tests that take long and compute little.
python_tests=(python/tests/test_{polar,precision,lmo,norms,optimizer,torture,trajectory}.py
  -k 'not operator and not compile and not ten_thousand and not named')

# Threads beyond the number of cores must not spin while they wait.
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
