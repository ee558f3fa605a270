#!/usr/bin/env bash
# fuzz.sh SECONDS [FOLDER]
# Builds the fuzzer of the links between nodes with clang, libFuzzer and the address and undefined-behaviour sanitizers, and runs
# it for so many seconds, from the folder seeds. FOLDER (default: a temporary one) keeps the program, the inputs it finds, and the
# input of a failure. Exit status 1 if it finds one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if [ $# -lt 1 ] || ! [[ $1 =~ ^[0-9]+$ ]]; then
  echo "fuzz: expected a number of seconds" >&2
  exit 2
fi
command -v clang++ >/dev/null || { echo "fuzz: clang++ is missing" >&2; exit 1; }
folder=${2:-}
if [ -z "$folder" ]; then
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
fi
mkdir -p "$folder/corpus"

# shellcheck disable=SC2046  # pkg-config prints several arguments
clang++ -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -I. \
  tests/comm/secure_link_fuzz.cc comm/secure_link.cc comm/noise_handshake.cc base/check.cc \
  $(pkg-config --cflags --libs libsodium absl_statusor absl_strings) -o "$folder/secure_link_fuzz"
"$folder/secure_link_fuzz" -max_total_time="$1" -max_len=3000 -timeout=10 -artifact_prefix="$folder/" "$folder/corpus" \
  tests/comm/seeds
