// Any bytes as a GGUF file: refused in one readable line, or read; then every tensor lies in the
// file, and every text that the file stands for is made or refused. fuzz.sh runs it with libFuzzer;
// a normal test runs samples.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "model_files/gguf_file.h"
#include "model_files/model_files.h"
#include "tests/testing/fuzz_require.h"
#include "tests/testing/temp_dir.h"

namespace coppice::model_files {
namespace {

using test::Require;

void CheckRefusal(const absl::Status& status) {
  Require(status.code() == absl::StatusCode::kInvalidArgument ||
              status.code() == absl::StatusCode::kNotFound,
          "refused as " + status.ToString());
  Require(status.message().size() < 3000, "the message of a refusal is too long");
  for (const char c : status.message()) {
    Require(absl::ascii_isprint(static_cast<unsigned char>(c)),
            "the message of a refusal cannot be printed: " + absl::CHexEscape(status.message()));
  }
}

void FuzzOne(const std::string& bytes) {
  static const test::TempDir* const dir = new test::TempDir;
  const std::string path = dir->File("F.gguf");
  std::ofstream(path, std::ios::binary) << bytes;
  const auto file = GgufFile::Open(path);
  if (!file.ok()) return CheckRefusal(file.status());
  uint64_t sum = 0;
  for (const auto& [name, tensor] : file->tensors()) {
    for (const char byte : file->Bytes(tensor)) sum += static_cast<unsigned char>(byte);
  }
  Require(sum <= 255 * bytes.size(), "tensors have more bytes than the file");
  for (const char* name : {"config.json", "generation_config.json", "tokenizer_config.json",
                           "tokenizer.json", "tokenizer.model"}) {
    const auto text = ReadModelText(path + "/" + name, uint64_t{1} << 24);
    if (!text.ok()) CheckRefusal(text.status());
  }
}

}  // namespace
}  // namespace coppice::model_files

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  coppice::model_files::FuzzOne(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
