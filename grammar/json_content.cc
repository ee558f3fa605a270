#include "grammar/json_content.h"

#include <memory>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"

namespace coppice::grammar {
namespace {

// The byte as it stands in a JSON string; "": as itself.
absl::string_view EscapeOf(int byte) {
  switch (byte) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\t':
      return "\\t";
    default:
      return "";
  }
}

Part EscapedBytes(const Expression& bytes) {
  auto plain = std::make_shared<Expression>();
  plain->kind = Expression::Kind::kByte;
  std::vector<Part> choices;
  for (const auto& [first, last] : bytes.bytes) {
    for (int byte = first; byte <= last; ++byte) {
      const auto b = static_cast<uint8_t>(byte);
      if (const absl::string_view escape = EscapeOf(byte); !escape.empty()) {
        choices.push_back(Literal(escape));
      } else if (!plain->bytes.empty() && plain->bytes.back().second + 1 == byte) {
        plain->bytes.back().second = b;
      } else {
        plain->bytes.emplace_back(b, b);
      }
    }
  }
  if (!plain->bytes.empty()) choices.push_back(std::move(plain));
  return Choice(std::move(choices));
}

}  // namespace

bool IsJsonContent(const OrderedJson& schema) {
  for (const char* keyword : {"contentEncoding", "pattern", "format", "minLength", "maxLength"}) {
    if (schema.contains(keyword)) return false;
  }
  return schema.contains("contentMediaType") && schema["contentMediaType"] == "application/json";
}

Part JsonContents::StringOf(Part value) {
  const int rule = rules_.Add("content");
  open_.emplace_back(rule, std::move(value));
  return Rule(rule);
}

Part JsonContents::Escaped(const Part& part) {
  if (const auto known = escaped_.find(part.get()); known != escaped_.end()) return known->second;
  Part result;
  if (part->kind == Expression::Kind::kByte) {
    result = EscapedBytes(*part);
  } else if (part->kind == Expression::Kind::kRule) {
    const auto [known, added] = escaped_rule_.try_emplace(part->rule, 0);
    if (added) {
      known->second = rules_.Add("content");
      waiting_.emplace_back(part->rule, known->second);
    }
    return Rule(known->second);
  } else {
    auto copy = std::make_shared<Expression>(*part);
    for (Part& inner : copy->parts) inner = Escaped(inner);
    result = std::move(copy);
  }
  return escaped_[part.get()] = result;
}

void JsonContents::Finish() {
  const Part any = open_.empty() ? nullptr : rules_.StringOf(0, Expression::kNoMost);
  absl::flat_hash_set<int> contents;
  for (const auto& [rule, value] : open_) contents.insert(rule);
  std::vector<std::pair<int, Part>> strings;
  for (const auto& [rule, value] : open_) {
    strings.emplace_back(rule, Sequence({Literal("\""), Escaped(value), Literal("\"")}));
    while (!waiting_.empty()) {
      const auto [from, to] = waiting_.back();
      waiting_.pop_back();
      const Part part = contents.contains(from) ? any : rules_.part(from);
      rules_.Set(to, Escaped(part));
    }
  }
  for (auto& [rule, part] : strings) rules_.Set(rule, std::move(part));
}

}  // namespace coppice::grammar
