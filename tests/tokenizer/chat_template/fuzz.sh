#!/usr/bin/env bash
# fuzz.sh SECONDS [FOLDER]
# Builds the chat template fuzzer with clang, libFuzzer and the address and undefined-behaviour sanitizers, and runs it for so many
# seconds. It starts from the seeds, the templates of the fixtures and the built-in families. FOLDER (default: a temporary one)
# keeps the program, the inputs it finds, and the input of a failure. Exit status 1 if it finds one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

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

sources=(tests/tokenizer/chat_template/chat_template_fuzz.cc tokenizer/utf8.cc)
for source in tokenizer/chat_template/*.cc; do
  case $source in
    */chat_prompt.cc | */template_source.cc) ;;  # these need tokenizers
    *) sources+=("$source") ;;
  esac
done
# shellcheck disable=SC2046  # pkg-config prints several arguments
clang++ -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -I. "${sources[@]}" \
  $(pkg-config --libs absl_statusor absl_strings absl_str_format absl_raw_hash_set absl_flat_hash_map absl_hash) \
  -o "$folder/chat_template_fuzz"
"$folder/chat_template_fuzz" -max_total_time="$1" -max_len=6000 -timeout=10 -artifact_prefix="$folder/" "$folder/corpus" \
  tests/tokenizer/chat_template/seeds tests/tokenizer/chat_template/fixtures/templates tokenizer/chat_template/families
