#!/usr/bin/env bash
# Installs what is missing, builds, runs every test but the long ones. Arguments: --label NAME runs the tests with that
# label only (`long`: ten times the samples, and tests/mutants); the rest goes to ctest (-R PATTERN, -V, ...).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=release arguments=()
while [ $# -gt 0 ]; do
  case $1 in
    --label)
      [ $# -ge 2 ] || { echo "test: --label needs a name" >&2; exit 2; }
      # The other presets leave the long tests out.
      if [ "$2" = long ]; then preset=release-long; else arguments+=(-L "$2"); fi
      shift 2 ;;
    -h | --help) sed -n '2,3s/^# //p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) arguments+=("$1"); shift ;;
  esac
done

deploy/setup.sh --tests
deploy/build.sh release
# shellcheck source=deploy/environment.sh
. deploy/environment.sh
ctest --preset "$preset" --no-tests=error "${arguments[@]}"
