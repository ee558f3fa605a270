// Builds GGUF files for tests, independent of the reader.
//   GgufBuilder file;
//   file.Text("general.architecture", "llama").U32("llama.block_count", 2);
//   file.F32Tensor("output_norm.weight", {32}, values);
//   dir.Write("model.gguf", file.Bytes());
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace coppice::test {

class GgufBuilder {
 public:
  // Each replaces a key of that name.
  GgufBuilder& Text(const std::string& key, const std::string& value);
  GgufBuilder& U32(const std::string& key, uint32_t value);
  GgufBuilder& F32(const std::string& key, float value);
  GgufBuilder& Bool(const std::string& key, bool value);
  GgufBuilder& Texts(const std::string& key, const std::vector<std::string>& values);
  GgufBuilder& I32s(const std::string& key, const std::vector<int32_t>& values);
  GgufBuilder& F32s(const std::string& key, const std::vector<float>& values);
  // value: the bytes behind the name, the type included.
  GgufBuilder& Key(const std::string& key, const std::string& value);
  GgufBuilder& Remove(const std::string& key);

  // shape: rows first. type: its number in the format. Replaces a tensor of that name.
  GgufBuilder& Tensor(const std::string& name, const std::vector<int64_t>& shape, uint32_t type,
                      const std::string& bytes);
  GgufBuilder& F32Tensor(const std::string& name, const std::vector<int64_t>& shape,
                         const std::vector<float>& values);
  GgufBuilder& RemoveTensor(const std::string& name);

  std::string Bytes(uint32_t version = 3, uint64_t alignment = 32) const;

 private:
  struct Entry {
    std::vector<int64_t> shape;
    uint32_t type = 0;
    std::string bytes;
  };
  std::vector<std::pair<std::string, std::string>> keys_;
  std::vector<std::pair<std::string, Entry>> tensors_;
};

// The little-endian bytes of a number, of a text (its length first).
std::string GgufNumber(uint64_t value, int bytes);
std::string GgufText(const std::string& value);

}  // namespace coppice::test
