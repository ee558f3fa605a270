#include "tests/testing/gguf_builder.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace coppice::test {
namespace {

constexpr int kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7, kText = 8, kList = 9;

std::string Type(int number) { return GgufNumber(number, 4); }

template <typename Items, typename Write>
std::string List(int type, const Items& items, Write write) {
  std::string bytes = Type(kList) + Type(type) + GgufNumber(items.size(), 8);
  for (const auto& item : items) bytes += write(item);
  return bytes;
}

template <typename Entries, typename Entry>
void Put(Entries* entries, const std::string& name, Entry entry) {
  const auto found = std::find_if(entries->begin(), entries->end(),
                                  [&](const auto& known) { return known.first == name; });
  if (found != entries->end()) {
    found->second = std::move(entry);
  } else {
    entries->emplace_back(name, std::move(entry));
  }
}

template <typename Entries>
void Erase(Entries* entries, const std::string& name) {
  std::erase_if(*entries, [&](const auto& known) { return known.first == name; });
}

void Pad(uint64_t alignment, std::string* bytes) {
  while (bytes->size() % alignment != 0) bytes->push_back('\0');
}

}  // namespace

std::string GgufNumber(uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
  return out;
}

std::string GgufText(const std::string& value) { return GgufNumber(value.size(), 8) + value; }

GgufBuilder& GgufBuilder::Key(const std::string& key, const std::string& value) {
  Put(&keys_, key, value);
  return *this;
}

GgufBuilder& GgufBuilder::Text(const std::string& key, const std::string& value) {
  return Key(key, Type(kText) + GgufText(value));
}

GgufBuilder& GgufBuilder::U32(const std::string& key, uint32_t value) {
  return Key(key, Type(kU32) + GgufNumber(value, 4));
}

GgufBuilder& GgufBuilder::F32(const std::string& key, float value) {
  return Key(key, Type(kF32) + GgufNumber(std::bit_cast<uint32_t>(value), 4));
}

GgufBuilder& GgufBuilder::Bool(const std::string& key, bool value) {
  return Key(key, Type(kBool) + GgufNumber(value, 1));
}

GgufBuilder& GgufBuilder::Texts(const std::string& key, const std::vector<std::string>& values) {
  return Key(key, List(kText, values, GgufText));
}

GgufBuilder& GgufBuilder::I32s(const std::string& key, const std::vector<int32_t>& values) {
  return Key(key, List(kI32, values,
                       [](int32_t value) { return GgufNumber(static_cast<uint32_t>(value), 4); }));
}

GgufBuilder& GgufBuilder::F32s(const std::string& key, const std::vector<float>& values) {
  return Key(key, List(kF32, values,
                       [](float value) { return GgufNumber(std::bit_cast<uint32_t>(value), 4); }));
}

GgufBuilder& GgufBuilder::Remove(const std::string& key) {
  Erase(&keys_, key);
  return *this;
}

GgufBuilder& GgufBuilder::Tensor(const std::string& name, const std::vector<int64_t>& shape,
                                 uint32_t type, const std::string& bytes) {
  Put(&tensors_, name, Entry{shape, type, bytes});
  return *this;
}

GgufBuilder& GgufBuilder::F32Tensor(const std::string& name, const std::vector<int64_t>& shape,
                                    const std::vector<float>& values) {
  return Tensor(
      name, shape, /*type=*/0,
      std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
}

GgufBuilder& GgufBuilder::RemoveTensor(const std::string& name) {
  Erase(&tensors_, name);
  return *this;
}

std::string GgufBuilder::Bytes(uint32_t version, uint64_t alignment) const {
  std::string bytes = "GGUF" + GgufNumber(version, 4) + GgufNumber(tensors_.size(), 8) +
                      GgufNumber(keys_.size(), 8);
  for (const auto& [name, value] : keys_) bytes += GgufText(name) + value;
  std::string data;
  for (const auto& [name, tensor] : tensors_) {
    Pad(alignment, &data);
    bytes += GgufText(name) + GgufNumber(tensor.shape.size(), 4);
    for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size)
      bytes += GgufNumber(static_cast<uint64_t>(*size), 8);
    bytes += GgufNumber(tensor.type, 4) + GgufNumber(data.size(), 8);
    data += tensor.bytes;
  }
  Pad(alignment, &data);
  Pad(alignment, &bytes);
  return bytes + data;
}

}  // namespace coppice::test
