// Writes a tiny Llama and loads it with its KV pool, as a process does. Used by the tests of the
// worker and of the draft node.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "comm/communicator.h"
#include "model/model_runner.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::test {

// `dir` must exist. *communicator must outlive the runner.
inline std::unique_ptr<model::ModelRunner> LoadTinyRunner(const TinyLlama& tiny,
                                                          const std::string& dir,
                                                          comm::Communicator* communicator,
                                                          int threads = 1) {
  WriteTinyLlama(tiny, dir);
  model::ModelRunnerOptions options;
  options.dir = dir;
  options.kv_bytes = 1 << 20;
  options.threads = threads;
  auto runner = model::ModelRunner::Load(options, communicator);
  EXPECT_TRUE(runner.ok()) << runner.status();
  return *std::move(runner);
}

inline std::unique_ptr<model::ModelRunner> LoadTinyRunner(const TinyLlamaOptions& tiny,
                                                          const std::string& dir,
                                                          comm::Communicator* communicator,
                                                          int threads = 1) {
  return LoadTinyRunner(MakeTinyLlama(tiny), dir, communicator, threads);
}

// A pool of this many blocks, or a few more; with windows, pages.
inline std::unique_ptr<model::ModelRunner> LoadWithBlocks(model::ModelRunnerOptions options,
                                                          int64_t blocks,
                                                          comm::Communicator* communicator) {
  options.kv_bytes = 1 << 20;
  const auto runner = model::ModelRunner::Load(options, communicator).value();
  const kernels::KvPool& pool = *runner->kv_pool();
  options.kv_bytes = static_cast<int64_t>(pool.bytes) / pool.shape.blocks * (blocks + 1);
  return model::ModelRunner::Load(options, communicator).value();
}

}  // namespace coppice::test
