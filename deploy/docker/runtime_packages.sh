#!/usr/bin/env bash
# runtime_packages.sh PROGRAM...: prints the packages of this distribution that own the libraries which the programs need, one on a
# line. The image's second stage installs them, so there is no list of them to keep. Fails if a library is missing or nobody's.
set -euo pipefail
[ $# -gt 0 ] || { echo "runtime_packages: expected programs" >&2; exit 2; }

libraries=$(for program in "$@"; do ldd "$program"; done)
if grep 'not found' <<<"$libraries" >&2; then
  echo "runtime_packages: a library is missing" >&2
  exit 1
fi
awk '$2 == "=>" && $3 ~ /^\// {print $3}' <<<"$libraries" | sort -u | while read -r library; do
  # The package may list a library below /usr/lib while the loader finds it through the link /lib, or under the name of its version.
  for path in "$library" "/usr$library" "$(realpath "$library")"; do
    if owner=$(dpkg-query -S "$path" 2>/dev/null); then
      echo "${owner%%:*}"
      continue 2
    fi
  done
  echo "runtime_packages: $library belongs to no package" >&2
  exit 1
done | sort -u
