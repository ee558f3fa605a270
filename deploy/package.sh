#!/usr/bin/env bash
# package.sh [FOLDER]: builds the programs and packs them as a Debian package, whose path is the last line printed. FOLDER is where it
# goes (default: build/release). The package is for the distribution of this machine, and its dependencies are those of the programs.
set -euo pipefail
from=$PWD
case ${1:-} in
  -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
  -*) echo "package: unknown option '$1' (see --help)" >&2; exit 2 ;;
esac
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=${1:-build/release}
[[ $folder == /* || $# -eq 0 ]] || folder=$from/$folder
[ $# -le 1 ] || { echo "package: unexpected argument '$2' (see --help)" >&2; exit 2; }

deploy/setup.sh --package
deploy/build.sh release coppice-coordinator coppice-worker coppice-draft coppice-loadgen coppice-catalogue
log=build/release/package.log
if ! (cd build/release && cpack -G DEB -B package) >"$log" 2>&1; then
  echo "package: cpack failed:" >&2
  tail -n 20 "$log" >&2
  exit 1
fi
packages=(build/release/package/coppice_*.deb)
mkdir -p "$folder"
mv "${packages[0]}" "$folder/"
rm -rf build/release/package
echo "$(cd "$folder" && pwd)/$(basename "${packages[0]}")"
