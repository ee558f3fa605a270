// The measurements of coppice-bench. Each prints lines of JSON (json_line.h).
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace coppice::bench {

struct ModelBench {
  std::string dir;
  std::vector<std::string> types;
  std::vector<int> threads;
  std::vector<int> rows;  // sequences that generate together
  int prefill = 512;      // tokens
  int chunk = 256;        // of a prefill pass
  int context = 64;       // of the sequences that generate
  int repetitions = 5;
  std::string kernels;
  std::string states_for;  // ModelRunnerOptions
};
// Loading, prefill and generation, for each type of weights and number of threads.
absl::Status RunModelBench(const ModelBench& bench);

struct ForestBench {
  std::string dir;
  std::vector<std::string> types;
  std::vector<int> threads;
  std::vector<int> nodes;  // of a forest
  int beams = 4;
  std::vector<int> contexts;
  int repetitions = 5;
  std::string kernels;
};
// Passes over forests of one request, in turns with a pass over one row at the same context.
absl::Status RunForestBench(const ForestBench& bench);

struct PrefixBench {
  std::string dir;
  std::vector<std::string> types;
  std::vector<int> threads;
  std::vector<int> requests;  // which generate together
  std::vector<int> common;    // tokens that their contexts have in common
  int own = 64;               // further tokens of each context
  int chunk = 256;            // of a prefill pass
  int repetitions = 5;
  std::string kernels;
};
// Passes with a row of each request, in turns: over a prefix that they share, over as many tokens
// of their own, and over their own further tokens alone.
absl::Status RunPrefixBench(const PrefixBench& bench);

struct KernelsBench {
  std::vector<std::string> types;
  std::vector<int> threads;
  std::vector<int> rows;
  int context = 1000;
  int repetitions = 5;
  std::string kernels;
};
// Each op at the shapes of a decoder of 24 layers, beside its floor.
absl::Status RunKernelsBench(const KernelsBench& bench);

}  // namespace coppice::bench
