#!/usr/bin/env bash
# clang-format over every C++ file below ROOT: check_format.sh ROOT. Needs version 14, whose output the tree has: other
# versions break lines elsewhere. `deploy/setup.sh --tests` installs it.
set -euo pipefail
cd "$1"
for formatter in clang-format-14 clang-format ''; do
  if "$formatter" --version 2>/dev/null | grep -q 'version 14\.'; then break; fi
done
if [ -z "$formatter" ]; then
  echo "clang-format 14 is missing: deploy/setup.sh --tests installs it" >&2
  exit 1
fi
find . \( -name build -o -name '.?*' \) -prune -o \( -name '*.cc' -o -name '*.h' \) -print0 |
  xargs -0 "$formatter" --dry-run --Werror
