#!/usr/bin/env bash
# Runs the fuzz targets one after the other for the given number of seconds each, and prints a table of the results.
# Fails if there is a finding. Findings are in build-fuzz/findings, and `TARGET_fuzz FILE` reproduces one.
#
#   scripts/fuzz.sh SECONDS [TARGET...]
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=$1
shift
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  targets=(idx cifar jpeg png safetensors checkpoint flags lmo)
fi
export OMP_NUM_THREADS=1
status=0
printf '%-12s %12s %10s %9s\n' target executions coverage findings
for target in "${targets[@]}"; do
  # Inputs that reach new code are kept in the corpus, so the next run continues from there.
  corpus=build-fuzz/corpus/$target findings=build-fuzz/findings/$target log=build-fuzz/$target.log
  rm -rf "$findings"
  mkdir -p "$corpus" "$findings"
  # No parser may use more memory or time than this, whatever its input.
  limits=(-rss_limit_mb=2048 -malloc_limit_mb=1024 -timeout=10)
  failed=0
  build-fuzz/tests/fuzz/"${target}_fuzz" "${limits[@]}" -max_total_time="$seconds" -print_final_stats=1 \
    -artifact_prefix="$findings/" "$corpus" tests/fuzz/corpus/"$target" >"$log" 2>&1 || failed=1
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  coverage=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
  found=$(find "$findings" -type f | wc -l)
  printf '%-12s %12s %10s %9s\n' "$target" "${executions:--}" "${coverage:--}" "$found"
  if [ $failed -ne 0 ]; then
    status=1
    grep -m 3 -E 'finding:|runtime error:|ERROR:|what\(\):' "$log" || tail -n 20 "$log"
  fi
done
exit $status
