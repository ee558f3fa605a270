#!/usr/bin/env bash
# fuzz.sh SECONDS [FOLDER]
# Builds the chat template fuzzer with clang, libFuzzer and the address and undefined-behaviour sanitizers, and runs it for so many
# seconds. It starts from the seeds, the templates of the fixtures and the built-in families. FOLDER (default: a temporary one)
# keeps the program, the inputs it finds, and the input of a failure. Exit status 1 if it finds one.
set -euo pipefail
# shellcheck source=tests/testing/fuzz.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../testing/fuzz.sh"

sources=(tests/tokenizer/chat_template/chat_template_fuzz.cc tokenizer/utf8.cc)
for source in tokenizer/chat_template/*.cc; do
  case $source in
    */chat_prompt.cc | */template_source.cc) ;;  # these need tokenizers
    *) sources+=("$source") ;;
  esac
done
packages=(absl_statusor absl_strings absl_str_format absl_raw_hash_set absl_flat_hash_map absl_hash)
fuzz_build chat_template_fuzz "$(pkg-config --libs "${packages[@]}" libutf8proc)" "${sources[@]}"
fuzz_run chat_template_fuzz 6000 tests/tokenizer/chat_template/seeds tests/tokenizer/chat_template/fixtures/templates \
  tokenizer/chat_template/families
