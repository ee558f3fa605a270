#include "coordinator/api/ordered_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"

namespace coppice::coordinator {
namespace {

using nlohmann::json;

// Follows the keys through the objects, and writes the value under the last key. Takes linear time,
// unlike nlohmann::ordered_json.
class Copier : public nlohmann::json_sax<json> {
 public:
  explicit Copier(const std::vector<std::string>& keys) : keys_(keys) {}
  std::string Take() { return std::move(text_); }

  bool null() override { return Scalar("null"); }
  bool boolean(bool value) override { return Scalar(value ? "true" : "false"); }
  bool number_integer(int64_t value) override { return Scalar(absl::StrCat(value)); }
  bool number_unsigned(uint64_t value) override { return Scalar(absl::StrCat(value)); }
  bool number_float(double, const std::string& written) override { return Scalar(written); }
  bool string(std::string& value) override { return Scalar(json(value).dump()); }
  bool binary(json::binary_t&) override { return false; }
  bool start_object(size_t) override { return Open('{'); }
  bool end_object() override { return Close('}'); }
  bool start_array(size_t) override { return Open('['); }
  bool end_array() override { return Close(']'); }
  bool parse_error(size_t, const std::string&, const json::exception&) override { return false; }

  bool key(std::string& name) override {
    if (copying()) {
      Separate();
      absl::StrAppend(&text_, json(name).dump(), ":");
      after_key_ = true;
    } else {
      found_ = level_ == followed_ + 1 && name == keys_[followed_];
    }
    return true;
  }

 private:
  bool copying() const { return copied_level_ > 0; }

  void Separate() {
    if (!after_key_ && text_.back() != '{' && text_.back() != '[') text_ += ',';
    after_key_ = false;
  }

  // Whether the value that begins here is the wanted one.
  bool BeginsHere() const { return found_ && followed_ + 1 == static_cast<int>(keys_.size()); }

  bool Scalar(const std::string& value) {
    if (copying()) {
      Separate();
      text_ += value;
    } else if (BeginsHere()) {
      text_ = value;
    }
    found_ = false;
    return true;
  }

  bool Open(char bracket) {
    if (copying()) {
      Separate();
    } else if (BeginsHere()) {
      text_.clear();
    } else {
      if (found_) ++followed_;
      found_ = false;
      ++level_;
      return true;
    }
    found_ = false;
    text_ += bracket;
    ++copied_level_;
    return true;
  }

  bool Close(char bracket) {
    if (copying()) {
      text_ += bracket;
      --copied_level_;
      return true;
    }
    --level_;
    if (level_ > 0 && level_ <= followed_) --followed_;
    return true;
  }

  const std::vector<std::string>& keys_;
  std::string text_;
  int level_ = 0;         // open objects and lists that are not copied
  int followed_ = 0;      // keys whose objects are open
  bool found_ = false;    // the next value belongs to key number followed_
  int copied_level_ = 0;  // open objects and lists of the value that is copied
  bool after_key_ = false;
};

// The members of the largest object.
size_t LargestObject(const json& value) {
  size_t most = value.is_object() ? value.size() : 0;
  for (const json& inner : value) {
    if (inner.is_structured()) most = std::max(most, LargestObject(inner));
  }
  return most;
}

}  // namespace

bool FitsInOrder(const json& value) { return LargestObject(value) <= kMostOrderedMembers; }

std::string OrderedText(const std::string& body, const std::vector<std::string>& keys) {
  Copier copier(keys);
  json::sax_parse(body, &copier);
  return copier.Take();
}

}  // namespace coppice::coordinator
