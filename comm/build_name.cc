#include "comm/build_name.h"

#include <google/protobuf/descriptor.h>

#include "absl/strings/str_cat.h"
#include "base/program.h"
#include "proto/plan.pb.h"

namespace coppice::comm {
namespace {

// FNV-1a.
uint32_t Hash(const std::string& text) {
  uint32_t hash = 2166136261u;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 16777619u;
  return hash;
}

}  // namespace

std::string BuildName() {
  const std::string messages = proto::PlanMessage::descriptor()->file()->DebugString();
  return absl::StrCat("coppice ", kVersion, ", messages ",
                      absl::Hex(Hash(messages), absl::kZeroPad8));
}

}  // namespace coppice::comm
