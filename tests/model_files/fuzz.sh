#!/usr/bin/env bash
# fuzz.sh SECONDS [FOLDER]
# Builds the fuzzer of GGUF files with clang, libFuzzer and the address and undefined-behaviour sanitizers, and runs it for so many
# seconds from small files that build/release/bin/gguf_fuzz_test writes. FOLDER (default: a temporary one) keeps the program, the inputs
# it finds, and the input of a failure. Exit status 1 if one is found.
set -euo pipefail
# shellcheck source=tests/testing/fuzz.sh
. "$(dirname "${BASH_SOURCE[0]}")/../testing/fuzz.sh"

mkdir -p "$folder/seeds"
COPPICE_WRITE_SEEDS=$folder/seeds build/release/bin/gguf_fuzz_test >/dev/null
packages=(absl_statusor absl_strings absl_str_format absl_raw_hash_set absl_flat_hash_map absl_hash absl_cord absl_cleanup)
fuzz_build gguf_fuzz "$(pkg-config --libs "${packages[@]}")" tests/model_files/gguf_fuzz.cc model_files/*.cc base/mapped_file.cc \
  base/regular_file.cc base/utf8_check.cc
fuzz_run gguf_fuzz 8000 "$folder/seeds"
