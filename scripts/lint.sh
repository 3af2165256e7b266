#!/usr/bin/env bash
# Runs clang-format, ruff, clang-tidy (for the library, the program and the operators) and a syntax check of the shell
# scripts. Needs a build.
set -uo pipefail
cd "$(dirname "$0")/.."
bin=$PWD/.venv/bin
status=0

mapfile -t cpp < <(git ls-files --cached --others --exclude-standard '*.cpp' '*.h')
"$bin/clang-format" --dry-run --Werror "${cpp[@]}" || status=1

# Includes must be relative to the root of the repository, so that the build can check the dependencies of modules.
if grep -nE '^#include "[^/"]*"' "${cpp[@]}"; then
  echo 'An #include "..." must name the path from the root of the repository.'
  status=1
fi

"$bin/ruff" check --quiet . || status=1
"$bin/ruff" format --check --quiet . || status=1

while read -r script; do
  bash -n "$script" || status=1
done < <(git ls-files --cached --others --exclude-standard '*.sh' .ci/run)

# Removes the precompiled header from the commands, because clang cannot read gcc's format and parsing its source for
# each file is slow. Removes OpenMP, because the wheel of clang-tidy has no omp.h.
mkdir -p build/lint
"$bin/python" - <<'PYTHON'
import json, re
with open("build/compile_commands.json") as file:
    commands = json.load(file)
for command in commands:
    command["command"] = re.sub(r' -include ("[^"]*cmake_pch.hxx"|\S*cmake_pch.hxx)', "", command["command"])
    command["command"] = command["command"].replace(" -fopenmp ", " -fopenmp-simd ")
with open("build/lint/compile_commands.json", "w") as file:
    json.dump(commands, file)
PYTHON
git ls-files -z --cached --others --exclude-standard 'tensorion/*.cpp' 'lab/*.cpp' 'python/src/*.cpp' |
  xargs -0 -n 1 -P 2 "$bin/clang-tidy" --quiet -p build/lint || status=1

if [ $status -eq 0 ]; then
  echo "lint: clean"
fi
exit $status
