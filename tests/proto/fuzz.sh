#!/usr/bin/env bash
# fuzz.sh SECONDS [FOLDER]
# Builds the fuzzer of conversions between messages and structs with clang, libFuzzer and the address and undefined-behaviour
# sanitizers, and runs it for so many seconds from its seeds. FOLDER (default: a temporary one) keeps the program, the messages' C++
# code, the inputs it finds, and the input of a failure. Exit status 1 if one is found.
set -euo pipefail
# shellcheck source=tests/testing/fuzz.sh
. "$(dirname "${BASH_SOURCE[0]}")/../testing/fuzz.sh"

generated=$folder/generated
mkdir -p "$generated"
protoc --proto_path=. --cpp_out="$generated" proto/*.proto
fuzz_flags+=(-include utility "-I$generated")
sources=(tests/proto/convert_fuzz.cc "$generated"/proto/*.cc proto/*.cc plan/*.cc sampling/*.cc
  base/check.cc base/decoding_stats.cc base/host_threads.cc base/output_format.cc)
while read -r source; do sources+=("$source"); done < <(git ls-files 'decoding/*.cc')
packages=(protobuf absl_statusor absl_strings absl_str_format absl_raw_hash_set absl_flat_hash_map absl_hash absl_cord libhwy)
fuzz_build convert_fuzz "$(pkg-config --libs "${packages[@]}")" "${sources[@]}"
fuzz_run convert_fuzz 4000 tests/proto/seeds
