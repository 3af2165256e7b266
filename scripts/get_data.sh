#!/usr/bin/env bash
# Downloads a data set, verifies it, and puts it into a folder for `tensorion --data DIR`.
set -euo pipefail

sources=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/data_sources.txt
names=$(awk '!/^#/ && NF && !seen[$1]++ { print $1 }' "$sources" | paste -sd ' ')

usage() {
  cat <<END
usage: scripts/get_data.sh NAME [DIR]

  NAME  one of: $names
  DIR   the parent folder of NAME; default: \$TENSORION_DATA, else data

Checksums are verified. To resume an interrupted download, run the same command
again. With TENSORION_DATA_URL=URL, files are downloaded from URL/<file> instead
of the URLs of their publishers.
END
}

fail() {
  echo "get_data.sh: $*" >&2
  exit 1
}

case ${1:-} in
  -h | --help) usage; exit ;;
esac
if (($# < 1 || $# > 2)); then
  usage >&2
  exit 2
fi
name=$1
root=${2:-${TENSORION_DATA:-data}}
entries=$(awk -v name="$name" '$1 == name { print $2, $3 }' "$sources")
[[ -n $entries ]] || fail "the data set must be one of: $names; got $name"

target=$root/$name
if [[ -e $target ]]; then
  echo "$target already exists."
  exit
fi

tools=(curl tar awk sha256sum md5sum)
if [[ $entries == *.zip ]]; then tools+=(unzip); fi
for tool in "${tools[@]}"; do
  command -v "$tool" > /dev/null || fail "the program $tool is required but not installed"
done

partial=$root/.$name.partial # A working folder. The complete data set is renamed at the end.
if [[ ! -d $root ]]; then made_root=yes; fi

leave_nothing() {
  rm -rf "$partial"
  if [[ -n ${made_root:-} ]]; then rmdir "$root" 2> /dev/null || true; fi
}

# matches FILE ALGORITHM:CHECKSUM
matches() {
  local sum
  sum=$("${2%%:*}sum" < "$1")
  [[ ${sum%% *} == "${2#*:}" ]]
}

# fetch URL FILE CHECKSUM: resumes the download of FILE, or restarts it if that fails.
fetch() {
  local options=(--fail --location --connect-timeout 30 --output "$2") status=0
  if [[ -t 2 ]]; then options+=(--progress-bar); else options+=(--silent --show-error); fi
  if [[ -s $2 ]]; then
    curl "${options[@]}" --continue-at - "$1" || status=$?
    # 22, 33 and 36: the server cannot resume the download.
    if ((status != 0 && status != 22 && status != 33 && status != 36)); then return 1; fi
    if matches "$2" "$3"; then return 0; fi
    rm "$2"
  fi
  curl "${options[@]}" "$1"
}

rm -rf "$partial/content"
mkdir -p "$partial/content"
while read -r checksum url; do
  file=$partial/${url##*/}
  if [[ -n ${TENSORION_DATA_URL:-} ]]; then url=${TENSORION_DATA_URL%/}/${url##*/}; fi
  if [[ ! -e $file ]] || ! matches "$file" "$checksum"; then
    echo "Downloading $url"
    if ! fetch "$url" "$file" "$checksum"; then
      if [[ -n $(find "$partial" -type f -size +0) ]]; then
        fail "the download of $url was interrupted; run the same command again to resume it"
      fi
      leave_nothing
      fail "could not download $url"
    fi
    if ! matches "$file" "$checksum"; then
      leave_nothing
      fail "$url is not the expected file: its checksum is not $checksum; the download was deleted"
    fi
  fi
  case $file in
    *.tar.gz | *.tgz) tar -xzf "$file" --no-same-owner -C "$partial/content" ;;
    *.zip) unzip -q "$file" -d "$partial/content" ;;
    *) ln "$file" "$partial/content/" ;;
  esac
done <<< "$entries"

# If an archive contains a single folder, that folder becomes the data set.
content=$partial/content
inside=("$content"/*)
if [[ ${#inside[@]} == 1 && -d ${inside[0]} ]]; then content=${inside[0]}; fi
mv -T "$content" "$target"
rm -rf "$partial"
echo "$name is in $target. Use it with: --data $root"
