#include "kernels/cuda/products/product_table.h"

#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/regular_file.h"
#include "base/status.h"

namespace coppice::kernels::cuda {
namespace {

// With another number, older files are measured anew. Increase it with every change of the text,
// and of the kernel of gemm_skinny.cu that changes its speed.
constexpr char kVersion[] = "coppice matrix products 3";
constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kQ8_0, DType::kQ4_0};
constexpr char kLibraryWord[] = "cublaslt", kSkinnyWord[] = "skinny", kRowsWord[] = "rows",
               kBlocksWord[] = "blocks";
constexpr int kMostSplits = 1024;

std::string Head(const TuningPlace& place) {
  return absl::StrCat(kVersion, "\ndevice ", place.device, "\nmultiprocessors ",
                      place.multiprocessors, "\ncublaslt ", place.library, "\nworkspace ",
                      place.workspace, "\n", place.exact ? "exact\n" : "");
}

const char* VariantName(const ProductKey& key) {
  if (key.gated) return key.bias ? "gated+bias" : "gated";
  if (key.accumulate) return key.bias ? "added+bias" : "added";
  return key.bias ? "bias" : "plain";
}

bool ParseVariant(absl::string_view word, ProductKey* key) {
  for (int variant = 0; variant < 6; ++variant) {
    key->bias = variant % 2 == 1;
    key->accumulate = variant / 2 == 1;
    key->gated = variant / 2 == 2;
    if (word == VariantName(*key)) return true;
  }
  return false;
}

bool ParseType(absl::string_view word, DType* type) {
  for (const DType known : kTypes) {
    *type = known;
    if (word == DTypeName(known)) return true;
  }
  return false;
}

bool ParseSize(absl::string_view word, int64_t* size) {
  return absl::SimpleAtoi(word, size) && *size > 0;
}

std::string ChoiceText(const ProductChoice& choice) {
  if (choice.kind == ProductChoice::Kind::kSkinny)
    return absl::StrCat(kSkinnyWord, " ", choice.splits);
  if (choice.kind == ProductChoice::Kind::kRows) return kRowsWord;
  if (choice.kind == ProductChoice::Kind::kBlocks) return kBlocksWord;
  std::string text = kLibraryWord;
  for (const uint64_t word : choice.algorithm) absl::StrAppendFormat(&text, " %016x", word);
  return text;
}

bool ParseChoice(const std::vector<absl::string_view>& words, size_t at, ProductChoice* choice) {
  if (words[at] == kSkinnyWord) {
    choice->kind = ProductChoice::Kind::kSkinny;
    return words.size() == at + 2 && absl::SimpleAtoi(words[at + 1], &choice->splits) &&
           choice->splits > 0 && choice->splits <= kMostSplits;
  }
  if (words[at] == kRowsWord) {
    choice->kind = ProductChoice::Kind::kRows;
    return words.size() == at + 1;
  }
  if (words[at] == kBlocksWord) {
    choice->kind = ProductChoice::Kind::kBlocks;
    return words.size() == at + 1;
  }
  if (words[at] != kLibraryWord || words.size() != at + 1 + choice->algorithm.size()) return false;
  for (size_t i = 0; i < choice->algorithm.size(); ++i) {
    if (!absl::SimpleHexAtoi(words[at + 1 + i], &choice->algorithm[i])) return false;
  }
  return true;
}

bool ParseProduct(absl::string_view line, ProductKey* key, ProductChoice* choice) {
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
  return words.size() >= 8 && ParseSize(words[0], &key->outputs) &&
         ParseSize(words[1], &key->inputs) && ParseSize(words[2], &key->rows) &&
         ParseType(words[3], &key->type) && ParseType(words[4], &key->y_type) &&
         ParseVariant(words[5], key) && absl::SimpleAtod(words[6], &choice->seconds) &&
         std::isfinite(choice->seconds) && choice->seconds > 0 && ParseChoice(words, 7, choice);
}

absl::Status Broken(int line, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("line ", line, ": ", why));
}

}  // namespace

std::string ProductName(const ProductKey& key) {
  return absl::StrCat(key.rows, " rows by ", key.outputs, " x ", key.inputs, " ",
                      DTypeName(key.type), " to ", DTypeName(key.y_type),
                      key.accumulate ? ", added" : "", key.bias ? ", with a bias" : "",
                      key.gated ? ", SwiGLU" : "");
}

std::string ProductTableText(const TuningPlace& place, const ProductTable& table) {
  std::string text = Head(place);
  for (const auto& [key, choice] : table) {
    absl::StrAppend(&text, key.outputs, " ", key.inputs, " ", key.rows, " ", DTypeName(key.type),
                    " ", DTypeName(key.y_type), " ", VariantName(key), " ",
                    absl::StrFormat("%.9g", choice.seconds), " ", ChoiceText(choice), "\n");
  }
  absl::StrAppend(&text, "products ", table.size(), "\n");
  return text;
}

absl::StatusOr<ProductTable> ParseProductTable(const TuningPlace& place, absl::string_view text) {
  const std::string head = Head(place);
  const std::vector<absl::string_view> wanted = absl::StrSplit(head, '\n', absl::SkipEmpty());
  std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  if (lines.back().empty()) lines.pop_back();
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (i == lines.size()) return Broken(static_cast<int>(i + 1), "the file ends");
    if (lines[i] != wanted[i]) {
      return absl::FailedPreconditionError(
          absl::StrCat("it is of another place: \"", lines[i], "\", not \"", wanted[i], "\""));
    }
  }
  ProductTable table;
  for (size_t i = wanted.size(); i + 1 < lines.size(); ++i) {
    ProductKey key;
    ProductChoice choice;
    if (!ParseProduct(lines[i], &key, &choice))
      return Broken(static_cast<int>(i + 1), "it is no product");
    if (!table.emplace(key, choice).second)
      return Broken(static_cast<int>(i + 1), "the product is there twice");
  }
  if (lines.size() == wanted.size() || lines.back() != absl::StrCat("products ", table.size()))
    return Broken(static_cast<int>(lines.size()), "the file is not whole");
  return table;
}

std::string TuningFilePath(const std::string& folder, const TuningPlace& place) {
  std::string name;
  for (const char c : place.device) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (plain || (!name.empty() && name.back() != '-')) name += plain ? c : '-';
  }
  return absl::StrCat(folder, "/products-", name, "-", place.multiprocessors, "-", place.library,
                      place.exact ? "-exact.txt" : ".txt");
}

absl::StatusOr<ProductTable> ReadTuningFile(const std::string& path, const TuningPlace& place) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return absl::NotFoundError(path);
  const absl::StatusOr<std::string> text = ReadRegularFile(path, kMostSettingsBytes);
  if (!text.ok()) return absl::InvalidArgumentError(text.status().message());
  absl::StatusOr<ProductTable> table = ParseProductTable(place, *text);
  if (table.ok()) return table;
  return absl::Status(table.status().code(), absl::StrCat(path, ": ", table.status().message()));
}

absl::Status WriteTuningFile(const std::string& path, const TuningPlace& place,
                             const ProductTable& table) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  const std::string text = ProductTableText(place, table);
  const std::string fresh = absl::StrCat(path, ".", getpid());
  std::FILE* file = std::fopen(fresh.c_str(), "wb");
  if (file == nullptr) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, ": cannot be written: ", std::strerror(errno)));
  }
  bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  written = std::fflush(file) == 0 && fsync(fileno(file)) == 0 && written;
  written = std::fclose(file) == 0 && written;
  if (written && std::rename(fresh.c_str(), path.c_str()) == 0) return absl::OkStatus();
  const std::string why = std::strerror(errno);
  std::remove(fresh.c_str());
  return absl::PermissionDeniedError(absl::StrCat(path, ": cannot be written: ", why));
}

std::string TuningFolder(const std::string& flag) {
  if (flag != "auto") return flag;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return absl::StrCat(cache, "/coppice");
  const char* home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') return absl::StrCat(home, "/.cache/coppice");
  return "";
}

}  // namespace coppice::kernels::cuda
