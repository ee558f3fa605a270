// A tiny Llama as a process holds it: written, loaded, with its KV pool, on one thread. Used by the
// tests of the worker and of the draft node.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "comm/communicator.h"
#include "model/model_host.h"
#include "tests/testing/tiny_llama.h"

namespace coppice {

// dir: a folder that exists. communicator must outlive the host.
inline ModelHost LoadTinyHost(const TinyLlamaOptions& tiny, const std::string& dir,
                              Communicator* communicator) {
  WriteTinyLlama(MakeTinyLlama(tiny), dir);
  ModelHostOptions options;
  options.dir = dir;
  options.kv_bytes = 1 << 20;
  options.threads = 1;
  auto host = LoadModelHost(options, communicator);
  EXPECT_TRUE(host.ok()) << host.status();
  return *std::move(host);
}

}  // namespace coppice
