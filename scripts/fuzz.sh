#!/usr/bin/env bash
# Lets each fuzz target search for so many seconds, one after the other, and says what came of it. Fails where
# something was found: the bytes are in build-fuzz/findings, and TARGET_fuzz FILE shows what they do.
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
  # What is found to reach new code is kept, so that the next search goes on from there.
  corpus=build-fuzz/corpus/$target findings=build-fuzz/findings/$target log=build-fuzz/$target.log
  rm -rf "$findings"
  mkdir -p "$corpus" "$findings"
  # No parser may take more memory at once, or longer, whatever a file says.
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
