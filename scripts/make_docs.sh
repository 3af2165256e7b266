#!/usr/bin/env bash
# Builds the documentation into build-docs/site. Warnings, such as broken links, are errors.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=build-docs/venv
if [ ! -e build-docs/ready ] || [ scripts/requirements-docs.txt -nt build-docs/ready ]; then
  "${PYTHON:-python3}" -m venv --clear "$venv"
  "$venv/bin/pip" install -qq -r scripts/requirements-docs.txt
  touch build-docs/ready
fi

for page in docs/*.md; do
  grep -q ": $(basename "$page")\$" mkdocs.yml || { echo "$page is not in the nav of mkdocs.yml" >&2; exit 1; }
done

# Copies the pages of docs/, README.md as the first page, and their images. Links to other files of the tree become
# links to the repository.
pages=build-docs/pages
rm -rf "$pages"
cp -r docs "$pages"
cp mkdocs/*.md "$pages/"
cp CHANGELOG.md "$pages/changelog.md"
cp README.md "$pages/index.md"
for image in $(grep -ohE '\]\((\.\./)?results/[^)]+\.(png|svg)' README.md docs/*.md | sed -E 's#^\]\((\.\./)?##' | sort -u); do
  mkdir -p "$pages/$(dirname "$image")"
  cp "$image" "$pages/$image"
done
sed -E -i 's#\]\((\.\./)?(results/[^)]+\.(png|svg))#](./\2#g' "$pages"/*.md
url=$(sed -n 's/^Repository = "\(.*\)"$/\1/p' pyproject.toml)
sed -E -i "s#\]\(docs/([a-z_/]+\.(md|png))#](\1#g; s#\]\((examples|results|tests|benchmarks|CONTRIBUTING\.md|LICENSE|SECURITY\.md|CITATION\.cff)#]($url/blob/main/\1#g" \
  "$pages/index.md"
sed -E -i "s#\]\(\.\./#]($url/blob/main/#g" "$pages"/*.md
NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true "$venv/bin/mkdocs" build --strict --quiet
echo "The documentation is in build-docs/site/index.html."
