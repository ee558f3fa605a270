#include "grammar/json_document.h"

#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "grammar/expression.h"

namespace coppice::grammar {
namespace {

constexpr size_t kMostMembers = 2000;  // members of one object
constexpr size_t kMostCopiedBytes = size_t{4} << 20;

// Reads a text and keeps only its fault.
class SchemaTextCheck : public nlohmann::json_sax<OrderedJson> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return Open(); }
  bool key(string_t& key) override {
    if (!keys_.back().insert(key).second)
      return Fail(absl::StrCat("an object has the key ", CompactJson(key), " twice"));
    return keys_.back().size() <= kMostMembers ||
           Fail(absl::StrCat("an object has more than ", kMostMembers, " members"));
  }
  bool end_object() override { return Close(); }
  bool start_array(size_t) override { return Open(); }
  bool end_array() override { return Close(); }
  bool parse_error(size_t at, const std::string&, const nlohmann::detail::exception& e) override {
    return Fail(absl::StrCat("byte ", at, ": no JSON: ", e.what()));
  }

  const std::string& failure() const { return failure_; }

 private:
  bool Open() {
    keys_.emplace_back();
    return keys_.size() <= kMostNested ||
           Fail(absl::StrCat("it is nested more than ", kMostNested, " deep"));
  }
  bool Close() {
    keys_.pop_back();
    return true;
  }
  bool Fail(std::string failure) {
    failure_ = std::move(failure);
    return false;
  }

  std::vector<absl::flat_hash_set<std::string>> keys_;  // keys of the enclosing objects and arrays
  std::string failure_;
};

// Decodes percent escapes: %41 is A.
std::string WithoutPercents(absl::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const absl::string_view digits = text.substr(i + 1, 2);
    if (text[i] == '%' && digits.size() == 2 &&
        absl::ascii_isxdigit(static_cast<unsigned char>(digits[0])) &&
        absl::ascii_isxdigit(static_cast<unsigned char>(digits[1]))) {
      plain += absl::HexStringToBytes(digits);
      i += 2;
    } else {
      plain.push_back(text[i]);
    }
  }
  return plain;
}

}  // namespace

absl::StatusOr<OrderedJson> ParseSchemaDocument(absl::string_view text) {
  SchemaTextCheck check;
  if (!OrderedJson::sax_parse(text.begin(), text.end(), &check))
    return absl::InvalidArgumentError(absl::StrCat("JSON schema, ", check.failure()));
  OrderedJson document = OrderedJson::parse(text.begin(), text.end(), nullptr, false);
  if (document.is_discarded()) return absl::InvalidArgumentError("JSON schema: no JSON");
  return document;
}

std::string PointerTo(absl::string_view pointer, absl::string_view key) {
  constexpr size_t kMostShown = 64;  // bytes of a key
  // Bytes of the pointer before it, since every rule has a pointer as its name.
  constexpr size_t kMostKept = 1024;
  const absl::string_view before = pointer.substr(0, kMostKept);
  return absl::StrCat(before, "/",
                      absl::StrReplaceAll(key.substr(0, kMostShown), {{"~", "~0"}, {"/", "~1"}}));
}

absl::Status SchemaError(absl::string_view pointer, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("JSON schema, ", pointer, ": ", what));
}

bool Has(const DocumentPlace& place, absl::string_view key) { return place.value->contains(key); }

DocumentPlace At(const DocumentPlace& place, absl::string_view key) {
  return {&place.value->at(key), PointerTo(place.pointer, key)};
}

DocumentPlace At(const DocumentPlace& place, size_t index) {
  return {&(*place.value)[index], PointerTo(place.pointer, absl::StrCat(index))};
}

absl::StatusOr<DocumentPlace> FindReference(const OrderedJson& document,
                                            absl::string_view reference) {
  const std::string plain = WithoutPercents(reference);
  const std::vector<absl::string_view> steps = absl::StrSplit(plain, '/');
  if (steps[0] != "#") {
    return absl::InvalidArgumentError(
        absl::StrCat(CompactJson(std::string(absl::StripAsciiWhitespace(reference))),
                     " is not served: a reference must begin with #/ or be #"));
  }
  DocumentPlace place{&document, "#"};
  for (size_t i = 1; i < steps.size(); ++i) {
    const std::string key = absl::StrReplaceAll(steps[i], {{"~1", "/"}, {"~0", "~"}});
    const OrderedJson* next = nullptr;
    size_t index = 0;
    if (place.value->is_object() && place.value->contains(key)) {
      next = &(*place.value)[key];
    } else if (place.value->is_array() && absl::SimpleAtoi(key, &index) &&
               index < place.value->size()) {
      next = &(*place.value)[index];
    }
    if (next == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("there is nothing at ", CompactJson(std::string(reference))));
    }
    place = {next, PointerTo(place.pointer, key)};
  }
  return place;
}

std::string CompactJson(const OrderedJson& value) {
  return value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

bool HasReference(const OrderedJson& value) {
  return absl::StrContains(CompactJson(value), "\"$ref\"");
}

absl::Status CheckDefinitionCopies(const OrderedJson& schema) {
  size_t bytes = 0, copies = 0;
  for (const char* name : kDefinitions) {
    if (schema.contains(name)) bytes += CompactJson(schema[name]).size();
  }
  if (bytes == 0) return absl::OkStatus();
  for (const OrderedJson& property : schema["properties"]) copies += HasReference(property) ? 1 : 0;
  if (bytes * copies <= kMostCopiedBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("it has definitions of ", bytes, " bytes for each of ", copies,
                   " properties, at most ", kMostCopiedBytes, " bytes in all are copied"));
}

}  // namespace coppice::grammar
