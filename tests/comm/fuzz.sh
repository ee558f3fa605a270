#!/usr/bin/env bash
# fuzz.sh SECONDS [FOLDER]
# Builds the fuzzer of the links between nodes with clang, libFuzzer and the address and undefined-behaviour sanitizers, and runs
# it for so many seconds, from the folder seeds. FOLDER (default: a temporary one) keeps the program, the inputs it finds, and the
# input of a failure. Exit status 1 if it finds one.
set -euo pipefail
# shellcheck source=tests/testing/fuzz.sh
. "$(dirname "${BASH_SOURCE[0]}")/../testing/fuzz.sh"

fuzz_build secure_link_fuzz "$(pkg-config --libs libsodium absl_statusor absl_strings)" \
  tests/comm/secure_link_fuzz.cc comm/secure_link.cc comm/noise_handshake.cc base/check.cc
fuzz_run secure_link_fuzz 3000 tests/comm/seeds
