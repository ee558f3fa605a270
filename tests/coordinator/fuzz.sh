#!/usr/bin/env bash
# fuzz.sh SECONDS [FOLDER]
# Builds the fuzzers of request bodies and of HTTP heads with clang, libFuzzer and the address and undefined-behaviour sanitizers, and
# runs each for so many seconds from its seeds. FOLDER (default: a temporary one) keeps the programs, the inputs they find, and the
# input of a failure. Exit status 1 if one is found. Needs the generated messages: build the preset release before.
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

flags=(-std=c++20 -O1 -g -w -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -I. -include utility)
head_sources=(coordinator/http/http_head.cc coordinator/http/api_error.cc coordinator/api/endpoints.cc)
body_sources=(coordinator/http/api_error.cc base/rng.cc base/deterministic_math.cc base/check.cc base/decoding_stats.cc tokenizer/utf8.cc)
for name in api chat_fields decoding_rules json_fields parameter_fields prompt_fields speculative_fields token_endpoints; do
  body_sources+=("coordinator/api/$name.cc")
done
for source in $(git ls-files 'decoding/*.cc' 'tokenizer/*.cc'); do
  case $source in
    */template_source.cc) ;;  # generated from the families; the fuzzer brings its own template
    tokenizer/utf8.cc) ;;
    *) body_sources+=("$source") ;;
  esac
done
# shellcheck disable=SC2207  # pkg-config prints several arguments
libraries=($(pkg-config --libs absl_statusor absl_strings absl_str_format absl_raw_hash_set absl_flat_hash_map absl_hash absl_cord
  libpcre2-8 libhwy libcrypto protobuf))

build() {
  local name=$1 source=$2
  shift 2
  echo "fuzz: building $name"
  clang++ "${flags[@]}" "$source" "$@" "${libraries[@]}" -pthread -o "$folder/$name"
}
run() {
  local name=$1 seconds=$2 seeds=$3
  mkdir -p "$folder/corpus-$name"
  "$folder/$name" -max_total_time="$seconds" -max_len=4000 -timeout=10 -artifact_prefix="$folder/" "$folder/corpus-$name" "$seeds"
}
build head_fuzz tests/coordinator/http/head_fuzz.cc "${head_sources[@]}"
run head_fuzz "$1" tests/coordinator/http/seeds
build body_fuzz tests/coordinator/api/body_fuzz.cc "${body_sources[@]}"
run body_fuzz "$1" tests/coordinator/api/seeds
