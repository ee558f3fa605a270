#include "model/quantisation.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace coppice::model {
namespace {

constexpr int64_t kMostGroup = 1 << 20;
constexpr int64_t kGroupUnit = 32;  // a block of Q4_0 and Q5_0

absl::Status NotServed(const JsonFile& json, const std::string& field, const std::string& found,
                       const std::string& served) {
  return json.Error(field, absl::StrCat(absl::Utf8SafeCEscape(found.substr(0, 100)),
                                        " is not served yet (", served, ")"));
}

absl::Status ExpectText(const JsonFile& json, const std::string& field, const std::string& value,
                        const std::string& served) {
  COPPICE_ASSIGN_OR_RETURN(const std::string found, json.StringOr(field, value));
  if (absl::AsciiStrToLower(found) == value) return absl::OkStatus();
  return NotServed(json, field, found, served);
}

// The field is absent, or an object without fields.
absl::Status ExpectNone(const JsonFile& json, const std::string& field) {
  if (!json.Has(field)) return absl::OkStatus();
  COPPICE_ASSIGN_OR_RETURN(const JsonFile object, json.Object(field));
  if (object.names().empty()) return absl::OkStatus();
  return json.Error(field, "is not served yet, expected none");
}

absl::StatusOr<int> ReadBits(const JsonFile& json, const std::string& field,
                             const std::vector<int>& served) {
  COPPICE_ASSIGN_OR_RETURN(const int64_t bits, json.Int(field, 1, 64));
  if (std::find(served.begin(), served.end(), bits) != served.end()) return static_cast<int>(bits);
  return json.Error(field, absl::StrCat(bits, " bits are not served yet (",
                                        absl::StrJoin(served, ", "), " are)"));
}

// -1: all inputs of a row.
absl::StatusOr<int64_t> ReadGroup(const JsonFile& json) {
  COPPICE_ASSIGN_OR_RETURN(const int64_t group, json.Int("group_size", -1, kMostGroup));
  if (group == -1) return 0;
  if (group > 0 && group % kGroupUnit == 0) return group;
  return json.Error("group_size",
                    absl::StrCat(group, ", expected -1 or a multiple of ", kGroupUnit));
}

absl::StatusOr<Quantisation> ReadGptq(const JsonFile& json) {
  COPPICE_RETURN_IF_ERROR(ExpectNone(json, "dynamic"));
  Quantisation out;
  COPPICE_ASSIGN_OR_RETURN(out.bits, ReadBits(json, "bits", {4, 8}));
  out.layout = QuantLayout::kGptq;
  COPPICE_ASSIGN_OR_RETURN(out.group, ReadGroup(json));
  COPPICE_ASSIGN_OR_RETURN(const bool symmetric, json.BoolOr("sym", true));
  out.has_zeros = !symmetric;
  if (out.has_zeros && out.bits == 8)
    return json.Error("sym", "false is not served yet with 8 bits, expected true");
  COPPICE_ASSIGN_OR_RETURN(out.needs_indices, json.BoolOr("desc_act", false));
  COPPICE_ASSIGN_OR_RETURN(const std::string format, json.StringOr("checkpoint_format", "gptq"));
  if (format != "gptq" && format != "gptq_v2")
    return NotServed(json, "checkpoint_format", format, "gptq, gptq_v2 are");
  out.added_to_zeros = format == "gptq" ? 1 : 0;
  return out;
}

absl::StatusOr<Quantisation> ReadAwq(const JsonFile& json) {
  COPPICE_RETURN_IF_ERROR(ReadBits(json, json.Has("w_bit") ? "w_bit" : "bits", {4}).status());
  COPPICE_RETURN_IF_ERROR(ExpectText(json, "version", "gemm", "gemm is"));
  Quantisation out;
  out.layout = QuantLayout::kAwq;
  COPPICE_ASSIGN_OR_RETURN(out.group, ReadGroup(json));
  COPPICE_ASSIGN_OR_RETURN(out.has_zeros, json.BoolOr("zero_point", true));
  if (!out.has_zeros) return json.Error("zero_point", "false is not served yet, expected true");
  return out;
}

// The sides of the blocks of FP8, if there are blocks.
absl::Status ReadBlocks(const JsonFile& json, const std::string& field, Quantisation* out) {
  COPPICE_ASSIGN_OR_RETURN(const std::vector<int64_t> sides, json.IntsOr(field, 1, kMostGroup));
  if (sides.empty()) return absl::OkStatus();
  if (sides.size() != 2) return json.Error(field, "expected the rows and columns of a block");
  out->block_rows = sides[0];
  out->block_columns = sides[1];
  return absl::OkStatus();
}

absl::StatusOr<Quantisation> ReadFp8(const JsonFile& json) {
  COPPICE_RETURN_IF_ERROR(ExpectText(json, "fmt", "e4m3", "e4m3 is"));
  Quantisation out;
  out.layout = QuantLayout::kFp8;
  COPPICE_RETURN_IF_ERROR(ReadBlocks(json, "weight_block_size", &out));
  return out;
}

// Bits, type and scales of the weights of the only group of compressed-tensors.
struct Scheme {
  QuantLayout layout;
  const char* format;
  const char* type;
  std::vector<int> bits;
  std::vector<std::string> strategies;
};
const std::vector<Scheme>& Schemes() {
  static const auto* const schemes = new std::vector<Scheme>{
      {QuantLayout::kPacked, "pack-quantized", "int", {4, 8}, {"group", "channel"}},
      {QuantLayout::kInt8, "int-quantized", "int", {8}, {"channel", "tensor"}},
      {QuantLayout::kFp8, "float-quantized", "float", {8}, {"channel", "tensor", "block"}},
  };
  return *schemes;
}

absl::StatusOr<Quantisation> ReadWeights(const JsonFile& json, const Scheme& scheme) {
  COPPICE_RETURN_IF_ERROR(ExpectText(json, "type", scheme.type, absl::StrCat(scheme.type, " is")));
  COPPICE_ASSIGN_OR_RETURN(const int bits, ReadBits(json, "num_bits", scheme.bits));
  COPPICE_ASSIGN_OR_RETURN(const bool symmetric, json.BoolOr("symmetric", true));
  COPPICE_ASSIGN_OR_RETURN(const std::string strategy, json.String("strategy"));
  Quantisation out;
  out.layout = scheme.layout;
  out.bits = bits;
  out.has_zeros = !symmetric;
  if (out.has_zeros && (scheme.layout != QuantLayout::kPacked || bits != 4)) {
    return json.Error("symmetric",
                      absl::StrCat("false is not served yet with ", bits, " bits, expected true"));
  }
  const auto& known = scheme.strategies;
  if (std::find(known.begin(), known.end(), strategy) == known.end())
    return NotServed(json, "strategy", strategy, absl::StrJoin(known, ", ") + " are");
  if (strategy == "group") {
    COPPICE_ASSIGN_OR_RETURN(out.group, ReadGroup(json));
  } else if (strategy == "block") {
    COPPICE_RETURN_IF_ERROR(ReadBlocks(json, "block_structure", &out));
    if (out.block_rows == 0) return json.Error("block_structure", "missing, expected two sizes");
  }
  return out;
}

// What says that values are of another form, or that matrices are not those of the network.
absl::Status CheckOtherParts(const JsonFile& json) {
  for (const char* const field : {"transform_config", "kv_cache_scheme"})
    COPPICE_RETURN_IF_ERROR(ExpectNone(json, field));
  if (!json.Has("sparsity_config")) return absl::OkStatus();
  COPPICE_ASSIGN_OR_RETURN(const JsonFile sparsity, json.Object("sparsity_config"));
  return ExpectText(sparsity, "format", "dense", "dense is");
}

absl::StatusOr<Quantisation> ReadCompressedTensors(const JsonFile& json) {
  COPPICE_RETURN_IF_ERROR(CheckOtherParts(json));
  COPPICE_ASSIGN_OR_RETURN(const std::string format, json.String("format"));
  COPPICE_ASSIGN_OR_RETURN(const JsonFile groups, json.Object("config_groups"));
  const std::vector<std::string> names = groups.names();
  if (names.size() != 1) {
    return json.Error("config_groups", absl::StrCat(names.size(), " groups, expected one"));
  }
  COPPICE_ASSIGN_OR_RETURN(const JsonFile group, groups.Object(names[0]));
  COPPICE_ASSIGN_OR_RETURN(const JsonFile weights, group.Object("weights"));
  for (const Scheme& scheme : Schemes()) {
    if (format == scheme.format) return ReadWeights(weights, scheme);
  }
  return NotServed(json, "format", format, "pack-quantized, int-quantized, float-quantized are");
}

}  // namespace

absl::StatusOr<Quantisation> ReadQuantisation(const JsonFile& config) {
  if (!config.Has("quantization_config")) return Quantisation{};
  COPPICE_ASSIGN_OR_RETURN(const JsonFile json, config.Object("quantization_config"));
  COPPICE_ASSIGN_OR_RETURN(const std::string method, json.String("quant_method"));
  if (method == "gptq") return ReadGptq(json);
  if (method == "awq") return ReadAwq(json);
  if (method == "compressed-tensors") return ReadCompressedTensors(json);
  if (method == "fp8") return ReadFp8(json);
  return NotServed(json, "quant_method", method, "gptq, awq, compressed-tensors, fp8 are");
}

}  // namespace coppice::model
