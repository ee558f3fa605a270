// Small checkpoints with seeded random weights of every family that is served, with the fields that
// config.json of a real one has.
//   TempDir dir;
//   WriteTinyLlama(MakeTinyFamily("gemma3", {.layers = 3}), dir.path());
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/testing/tiny_llama.h"

namespace coppice::test {

struct TinyFamilyOptions {
  int layers = 4;
  int vocab = 96;
  std::string dtype = "F32";  // F32, F16 or BF16
  uint64_t seed = 1;
};

// "qwen3", "opt", ...; some are the same family with other parts ("opt_350m").
const std::vector<std::string>& TinyFamilies();

TinyLlama MakeTinyFamily(const std::string& name, const TinyFamilyOptions& options = {});

}  // namespace coppice::test
