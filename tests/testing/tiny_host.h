// A tiny Llama as a process holds it: written, loaded, with its KV pool. Used by the tests of the
// worker and of the draft node.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "comm/communicator.h"
#include "model/model_host.h"
#include "tests/testing/tiny_llama.h"

namespace coppice {

// dir: a folder that exists. communicator must outlive the host.
inline ModelHost LoadTinyHost(const TinyLlama& tiny, const std::string& dir,
                              Communicator* communicator, int threads = 1) {
  WriteTinyLlama(tiny, dir);
  ModelHostOptions options;
  options.dir = dir;
  options.kv_bytes = 1 << 20;
  options.threads = threads;
  auto host = LoadModelHost(options, communicator);
  EXPECT_TRUE(host.ok()) << host.status();
  return *std::move(host);
}

inline ModelHost LoadTinyHost(const TinyLlamaOptions& tiny, const std::string& dir,
                              Communicator* communicator, int threads = 1) {
  return LoadTinyHost(MakeTinyLlama(tiny), dir, communicator, threads);
}

}  // namespace coppice
