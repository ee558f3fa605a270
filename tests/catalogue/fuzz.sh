#!/usr/bin/env bash
# fuzz.sh SECONDS [FOLDER]
# Builds the fuzzer of catalogues with clang, libFuzzer and the address and undefined-behaviour sanitizers, and runs it for so many
# seconds from the small files that build/release/bin/catalogue_fuzz_test writes. FOLDER (default: a temporary one) keeps the program,
# the inputs it finds, and the input of a failure. Exit status 1 if one is found.
set -euo pipefail
# shellcheck source=tests/testing/fuzz.sh
. "$(dirname "${BASH_SOURCE[0]}")/../testing/fuzz.sh"

mkdir -p "$folder/seeds"
COPPICE_WRITE_SEEDS=$folder/seeds build/release/bin/catalogue_fuzz_test >/dev/null
packages=(absl_statusor absl_strings absl_str_format absl_raw_hash_set absl_flat_hash_map absl_hash absl_cord absl_cleanup)
fuzz_build catalogue_fuzz "$(pkg-config --libs "${packages[@]}")" tests/catalogue/catalogue_fuzz.cc catalogue/catalogue.cc \
  catalogue/catalogue_builder.cc catalogue/catalogue_format.cc catalogue/content_hash.cc catalogue/file_header.cc \
  catalogue/item_reader.cc catalogue/item_texts.cc catalogue/item_trie.cc catalogue/scratch_file.cc base/output_format.cc \
  base/regular_file.cc tokenizer/detokenizer.cc tokenizer/utf8.cc
fuzz_run catalogue_fuzz 8000 "$folder/seeds"
