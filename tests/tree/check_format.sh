#!/usr/bin/env bash
# clang-format over every C++ file below ROOT: check_format.sh ROOT. Exit 77 (skipped) without clang-format 14, whose
# output .clang-format was written for: other versions break lines elsewhere.
set -euo pipefail
cd "$1"
if ! clang-format --version 2>/dev/null | grep -q 'version 14\.'; then
  echo "skipped: no clang-format 14"
  exit 77
fi
find . \( -name build -o -name '.?*' \) -prune -o \( -name '*.cc' -o -name '*.h' \) -print0 |
  xargs -0 clang-format --dry-run --Werror
