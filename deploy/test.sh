#!/usr/bin/env bash
# Installs what is missing, builds, runs every test. Arguments: --label NAME runs the tests with that label only;
# anything else goes to ctest as it is (-R PATTERN, -V, ...).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

arguments=()
while [ $# -gt 0 ]; do
  case $1 in
    --label)
      [ $# -ge 2 ] || { echo "test: --label needs a name" >&2; exit 2; }
      arguments+=(-L "$2"); shift 2 ;;
    -h | --help) sed -n '2,3s/^# //p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) arguments+=("$1"); shift ;;
  esac
done

deploy/setup.sh
deploy/build.sh release
# shellcheck source=deploy/environment.sh
. deploy/environment.sh
ctest --preset release --no-tests=error "${arguments[@]}"
