#include "tests/testing/tiny_quantised.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace coppice::test {
namespace {

bool IsChosen(const std::string& name, const TinyTensor& tensor) {
  return tensor.shape.size() == 2 && tensor.shape[1] % 32 == 0 &&
         absl::StrContains(name, ".layers.") && !absl::EndsWith(name, "gate.weight");
}

// The scale as it is stored.
float Stored(float scale, const std::string& dtype) {
  const std::string file = tiny_llama::Serialize({{"x", {dtype, {1}, {scale}}}});
  const auto byte = [&](size_t from_end) {
    return static_cast<uint32_t>(static_cast<unsigned char>(file[file.size() - from_end]));
  };
  if (dtype == "F32") return scale;
  const auto bits = static_cast<uint16_t>(byte(2) | byte(1) << 8);
  return dtype == "F16" ? tiny_llama::FromHalf(bits) : tiny_llama::FromBf16(bits);
}

// Codes in 32-bit words, the first lowest.
class Words {
 public:
  Words(int64_t codes, int bits) : words_(codes * bits / 32), bits_(bits) {}
  void Put(int64_t word, int64_t place, int code) {
    words_[word] |= static_cast<uint32_t>(code) << (bits_ * place);
  }
  std::string Bytes() const {
    std::string bytes;
    for (const uint32_t word : words_) {
      for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(word >> (8 * i) & 255));
    }
    return bytes;
  }

 private:
  std::vector<uint32_t> words_;
  int bits_;
};

// Codes and zeros with their scales: [rows][columns], [rows][groups].
struct Codes {
  int64_t rows, columns, group, groups;
  std::vector<int> codes, zeros;
  std::vector<float> scales;
};

Codes RoundToCodes(const TinyTensor& tensor, const QuantisedOptions& o, bool symmetric,
                   std::vector<float>* values) {
  Codes f{tensor.shape[0], tensor.shape[1], o.group, 0, {}, {}, {}};
  const int middle = 1 << (o.bits - 1);
  if (o.group < 0) f.group = f.columns;
  f.groups = (f.columns + f.group - 1) / f.group;
  for (int64_t row = 0; row < f.rows; ++row) {
    for (int64_t g = 0; g < f.groups; ++g) {
      const auto begin = tensor.values.begin() + row * f.columns + g * f.group;
      const auto end =
          tensor.values.begin() + row * f.columns + std::min(f.columns, (g + 1) * f.group);
      const float low = std::min(0.0f, *std::min_element(begin, end));
      const float high = std::max(0.0f, *std::max_element(begin, end));
      const float most = std::max(-low, high);
      const float scale = Stored(
          symmetric ? most / static_cast<float>(middle - 1) : (high - low) / 15, o.scale_dtype);
      const int zero = symmetric ? middle : std::clamp<int>(std::lround(-low / scale), 0, 15);
      f.scales.push_back(scale);
      f.zeros.push_back(zero);
      for (auto value = begin; value != end; ++value) {
        const int code = std::clamp<int>(std::lround(*value / scale) + zero, 0, 2 * middle - 1);
        f.codes.push_back(code);
        values->push_back(scale * static_cast<float>(code - zero));
      }
    }
  }
  return f;
}

using TensorMap = std::map<std::string, TinyTensor>;

// Neighbouring outputs of a word of AWQ, from the lowest place on.
constexpr int kAwqOrder[] = {0, 2, 4, 6, 1, 3, 5, 7};

// qweight, qzeros and scales of GPTQ or AWQ: transposed.
void AddTransposed(const std::string& base, const Codes& f, const QuantisedOptions& o,
                   TensorMap* out) {
  const bool awq = o.layout == "awq";
  const int64_t n = 32 / o.bits;  // codes of a word
  Words codes(f.rows * f.columns, o.bits), zeros(f.groups * f.rows, o.bits);
  TinyTensor scales{o.scale_dtype, {f.groups, f.rows}, std::vector<float>(f.groups * f.rows)};
  for (int64_t row = 0; row < f.rows; ++row) {
    const int64_t in_word =
        awq ? std::find(kAwqOrder, kAwqOrder + 8, row % n) - kAwqOrder : row % n;
    for (int64_t i = 0; i < f.columns; ++i) {
      const int code = f.codes[row * f.columns + i];
      if (awq) {
        codes.Put(i * (f.rows / n) + row / n, in_word, code);
      } else {
        codes.Put(i / n * f.rows + row, i % n, code);
      }
    }
    for (int64_t g = 0; g < f.groups; ++g) {
      const int less = awq || o.v2 ? 0 : 1;
      zeros.Put(g * (f.rows / n) + row / n, in_word,
                (f.zeros[row * f.groups + g] - less) & ((1 << o.bits) - 1));
      scales.values[g * f.rows + row] = f.scales[row * f.groups + g];
    }
  }
  (*out)[base + ".qweight"] = {
      "I32",
      awq ? std::vector{f.columns, f.rows / n} : std::vector{f.columns / n, f.rows},
      {},
      codes.Bytes()};
  (*out)[base + ".qzeros"] = {"I32", {f.groups, f.rows / n}, {}, zeros.Bytes()};
  (*out)[base + ".scales"] = scales;
  if (!o.indices) return;
  TinyTensor indices{"I32", {f.columns}, {}};
  for (int64_t i = 0; i < f.columns; ++i)
    indices.bytes += {static_cast<char>(i / f.group), 0, 0, 0};
  (*out)[base + ".g_idx"] = indices;
}

void AddPacked(const std::string& base, const Codes& f, const QuantisedOptions& o, TensorMap* out) {
  const int64_t n = 32 / o.bits;
  Words codes(f.rows * f.columns, o.bits);
  for (int64_t i = 0; i < f.rows * f.columns; ++i) codes.Put(i / n, i % n, f.codes[i]);
  if (!o.symmetric) {  // words of neighbouring outputs
    Words zeros((f.rows + n - 1) / n * n * f.groups, o.bits);
    for (int64_t i = 0; i < f.rows * f.groups; ++i) {
      const int64_t row = i / f.groups;
      zeros.Put(row / n * f.groups + i % f.groups, row % n, f.zeros[i]);
    }
    (*out)[base + ".weight_zero_point"] = {
        "I32", {(f.rows + n - 1) / n, f.groups}, {}, zeros.Bytes()};
  }
  (*out)[base + ".weight_packed"] = {"I32", {f.rows, f.columns / n}, {}, codes.Bytes()};
  (*out)[base + ".weight_scale"] = {o.scale_dtype, {f.rows, f.groups}, f.scales};
  (*out)[base + ".weight_shape"] = {
      "I64", {2}, {static_cast<float>(f.rows), static_cast<float>(f.columns)}};
}

// The values of FP8 E4M3 that are not negative, by their bits.
std::vector<float> Fp8Values() {
  std::vector<float> values;
  for (int bits = 0; bits < 127; ++bits) {
    const int exponent = bits / 8, fraction = bits % 8;
    values.push_back(static_cast<float>(exponent == 0
                                            ? fraction / 8.0 * std::pow(2.0, -6)
                                            : (1 + fraction / 8.0) * std::pow(2.0, exponent - 7)));
  }
  return values;
}

// The code of the value next to `value`, and that value.
std::pair<char, float> Nearest(float value, bool fp8) {
  if (!fp8) {
    const float code = std::nearbyint(value);
    return {static_cast<char>(static_cast<int8_t>(code)), code};
  }
  static const auto* const values = new std::vector<float>(Fp8Values());
  const auto distance = [&](float v) { return std::fabs(v - std::fabs(value)); };
  const auto best = std::min_element(values->begin(), values->end(),
                                     [&](float a, float b) { return distance(a) < distance(b); });
  const auto bits = static_cast<int>(best - values->begin());
  return value < 0 ? std::pair{static_cast<char>(bits | 128), -*best}
                   : std::pair{static_cast<char>(bits), *best};
}

// 8 bits, with a scale for each block of these sides. shape: of the scales.
void AddBytes(const std::string& name, const TinyTensor& tensor, const QuantisedOptions& o,
              int64_t high, int64_t wide, TinyTensor* value, TensorMap* out) {
  const int64_t rows = tensor.shape[0], columns = tensor.shape[1];
  const bool fp8 = o.layout != "int8";
  const int64_t down = (rows + high - 1) / high, across = (columns + wide - 1) / wide;
  TinyTensor codes{fp8 ? "F8_E4M3" : "I8", tensor.shape, {}, std::string(rows * columns, 0)};
  TinyTensor scales{o.scale_dtype, {down, across}, {}};
  for (int64_t block = 0; block < down * across; ++block) {
    std::vector<int64_t> places;
    for (int64_t r = block / across * high; r < std::min(rows, (block / across + 1) * high); ++r) {
      for (int64_t c = block % across * wide; c < std::min(columns, (block % across + 1) * wide);
           ++c)
        places.push_back(r * columns + c);
    }
    float most = 0;
    for (const int64_t at : places) most = std::max(most, std::fabs(tensor.values[at]));
    const float scale = Stored(most / (fp8 ? 448.0f : 127.0f) * 1.01f, o.scale_dtype);
    scales.values.push_back(scale);
    for (const int64_t at : places) {
      const auto [code, number] = Nearest(tensor.values[at] / scale, fp8);
      codes.bytes[at] = code;
      value->values[at] = scale * number;
    }
  }
  if (o.one_scale) scales.shape = {1};
  (*out)[name] = codes;
  (*out)[name + (o.layout == "fp8_blocks" ? "_scale_inv" : "_scale")] = scales;
}

std::string QuantisationConfig(const QuantisedOptions& o) {
  const auto truth = [](bool value) { return value ? "true" : "false"; };
  if (o.layout == "gptq") {
    return absl::StrCat(R"({"quant_method": "gptq", "bits": )", o.bits, R"(, "group_size": )",
                        o.group, R"(, "sym": )", truth(o.symmetric), R"(, "desc_act": )",
                        truth(o.indices), R"(, "checkpoint_format": ")", o.v2 ? "gptq_v2" : "gptq",
                        "\"}");
  }
  if (o.layout == "awq") {
    return absl::StrCat(R"({"quant_method": "awq", "bits": 4, "version": "gemm", "group_size": )",
                        o.group, R"(, "zero_point": true, "modules_to_not_convert": null})");
  }
  if (o.layout == "fp8_blocks")
    return R"({"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [48, 24]})";
  const bool packed = o.layout == "packed", fp8 = o.layout == "fp8";
  const std::string strategy = packed && o.group > 0 ? "group" : o.one_scale ? "tensor" : "channel";
  return absl::StrCat(
      R"({"quant_method": "compressed-tensors", "format": ")",
      packed ? "pack-quantized"
      : fp8  ? "float-quantized"
             : "int-quantized",
      R"(", "kv_cache_scheme": null, "ignore": ["lm_head"], "config_groups": {"group_0": {
      "targets": ["Linear"], "weights": {"num_bits": )",
      packed ? o.bits : 8, R"(, "type": ")", fp8 ? "float" : "int", R"(", "symmetric": )",
      truth(o.symmetric), R"(, "strategy": ")", strategy, R"(", "group_size": )",
      packed && o.group > 0 ? absl::StrCat(o.group) : "null", "}}}}");
}

}  // namespace

TinyQuantised Quantise(const TinyLlama& model, const QuantisedOptions& o) {
  TinyQuantised made{model, model};
  SetConfig(&made.folder, "quantization_config", QuantisationConfig(o));
  for (const auto& [name, tensor] : model.tensors) {
    if (!IsChosen(name, tensor)) continue;
    const std::string base = name.substr(0, name.size() - 7);  // without .weight
    TinyTensor& value = made.values.tensors[name];
    value.dtype = "F32";
    made.folder.tensors.erase(name);
    if (o.layout == "gptq" || o.layout == "awq" || o.layout == "packed") {
      value.values.clear();
      const bool symmetric = o.layout != "awq" && o.symmetric;
      const Codes f = RoundToCodes(tensor, o, symmetric, &value.values);
      if (o.layout == "packed") {
        AddPacked(base, f, o, &made.folder.tensors);
      } else {
        AddTransposed(base, f, o, &made.folder.tensors);
      }
      continue;
    }
    const bool blocks = o.layout == "fp8_blocks";
    AddBytes(name, tensor, o,
             blocks        ? 48
             : o.one_scale ? tensor.shape[0]
                           : 1,
             blocks ? 24 : tensor.shape[1], &value, &made.folder.tensors);
  }
  return made;
}

}  // namespace coppice::test
