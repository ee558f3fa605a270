#!/usr/bin/env bash
# build.sh [PRESET] [TARGET...]: configures and builds one preset (default: release), with progress on the screen.
set -euo pipefail
case ${1:-} in
  -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
esac
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=${1:-release}
shift || true

started=$SECONDS
if [ ! -f "build/$preset/build.ninja" ]; then
  echo "build: configuring preset $preset"
  cmake --preset "$preset"
fi
echo "build: preset $preset, $(nproc) jobs"
NINJA_STATUS='[%f/%t %es] ' cmake --build "build/$preset" --parallel "$(nproc)" ${1:+--target "$@"}
echo "build: done in $((SECONDS - started)) s, programs in build/$preset/bin"
