#include "model_files/model_files.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/regular_file.h"
#include "base/status.h"
#include "model_files/gguf_config.h"
#include "model_files/gguf_file.h"
#include "model_files/gguf_tokenizer.h"
#include "nlohmann/json.hpp"

namespace coppice::model_files {
namespace {

// A path FILE.gguf/NAME in its parts. model: "" if the path is not of this kind.
struct PathInFile {
  std::string model, name;
};

PathInFile Split(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos || !IsModelFile(path.substr(0, slash))) return {};
  return {path.substr(0, slash), path.substr(slash + 1)};
}

absl::StatusOr<std::string> Dumped(const absl::StatusOr<nlohmann::json>& json) {
  COPPICE_RETURN_IF_ERROR(json.status());
  return json->dump(1);
}

absl::StatusOr<std::string> MakeText(const PathInFile& path) {
  COPPICE_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(path.model));
  if (path.name == "config.json") return Dumped(GgufConfig(file));
  if (path.name == "generation_config.json") return Dumped(GgufGenerationConfig(file));
  if (path.name == "tokenizer_config.json") return Dumped(GgufTokenizerConfig(file));
  COPPICE_ASSIGN_OR_RETURN(const std::string tokenizer, GgufTokenizerName(file));
  if (path.name == tokenizer) return GgufTokenizer(file);
  return absl::NotFoundError(absl::StrCat(path.model, ": has no ", path.name));
}

}  // namespace

bool IsModelFile(const std::string& model) {
  std::error_code error;
  return std::filesystem::is_regular_file(model, error);
}

bool ModelTextExists(const std::string& path) {
  const PathInFile in_file = Split(path);
  if (in_file.model.empty()) {
    std::error_code error;
    return std::filesystem::exists(path, error);
  }
  if (in_file.name == "config.json" || in_file.name == "generation_config.json" ||
      in_file.name == "tokenizer_config.json")
    return true;
  const auto file = GgufFile::Open(in_file.model);
  const auto tokenizer = file.ok() ? GgufTokenizerName(*file) : file.status();
  // Of a file that cannot be read, ReadModelText says why.
  return in_file.name == (tokenizer.ok() ? *tokenizer : "tokenizer.json");
}

absl::StatusOr<std::string> ReadModelText(const std::string& path, uint64_t most_bytes) {
  const PathInFile in_file = Split(path);
  if (in_file.model.empty()) return ReadRegularFile(path, most_bytes);
  COPPICE_ASSIGN_OR_RETURN(std::string text, MakeText(in_file));
  if (text.size() <= most_bytes) return text;
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": ", text.size(), " bytes, expected at most ", most_bytes));
}

std::string ModelName(const std::string& model) {
  std::filesystem::path name = std::filesystem::path(model).lexically_normal();
  if (!name.has_filename()) name = name.parent_path();  // "folder/"
  return (name.extension() == ".gguf" ? name.stem() : name.filename()).string();
}

}  // namespace coppice::model_files
