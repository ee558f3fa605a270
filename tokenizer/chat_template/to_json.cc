#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tokenizer/chat_template/builtins.h"
#include "tokenizer/chat_template/python_text.h"

namespace coppice::tokenizer::jinja {
namespace {

constexpr int64_t kMostIndent = 64;

// Writes a value as json.dumps does. Takes a step for each value and the steps of each text.
class JsonWriter {
 public:
  JsonWriter(std::optional<std::string> indent, std::string comma, std::string colon,
             bool sort_keys, bool ensure_ascii, Budget* budget)
      : indent_(std::move(indent)),
        comma_(std::move(comma)),
        colon_(std::move(colon)),
        sort_keys_(sort_keys),
        ensure_ascii_(ensure_ascii),
        budget_(budget) {}

  absl::Status Write(const Value& value, int level) {
    COPPICE_RETURN_IF_ERROR(budget_->Take(1));
    if (out_.size() > budget_->max_text()) return budget_->TakeText(out_.size());
    if (value.is_string()) return WriteText(value.string());
    if (value.is_list()) return WriteList(value.items(), level);
    if (value.is_dict()) return WriteDict(value.entries(), level);
    if (value.is_none()) {
      out_ += "null";
    } else if (value.is_bool()) {
      out_ += value.integer() != 0 ? "true" : "false";
    } else if (value.is_int()) {
      absl::StrAppend(&out_, value.integer());
    } else if (value.is_float()) {
      const double number = value.number();
      out_ += std::isnan(number)   ? "NaN"
              : std::isinf(number) ? (number < 0 ? "-Infinity" : "Infinity")
                                   : FloatRepr(number);
    } else {
      return BadValue(absl::StrCat("tojson: cannot write ", value.TypeName()));
    }
    return absl::OkStatus();
  }
  std::string Take() { return std::move(out_); }

 private:
  absl::Status WriteText(const std::string& text) {
    COPPICE_RETURN_IF_ERROR(budget_->TakeText(text.size()));
    out_ += JsonQuoted(text, ensure_ascii_);
    return absl::OkStatus();
  }

  void NewLine(int level) {
    if (!indent_) return;
    out_ += '\n';
    for (int i = 0; i < level; ++i) out_ += *indent_;
  }

  absl::Status WriteList(const Value::Items& items, int level) {
    out_ += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += comma_;
      NewLine(level + 1);
      COPPICE_RETURN_IF_ERROR(Write(items[i], level + 1));
    }
    if (!items.empty()) NewLine(level);
    out_ += ']';
    return absl::OkStatus();
  }

  // A key becomes a text.
  absl::Status WriteKey(const Value& key) {
    if (key.is_string()) return WriteText(key.string());
    if (!key.is_number() && !key.is_none())
      return BadValue(absl::StrCat("tojson: ", key.TypeName(), " cannot be a key"));
    out_ += '"';
    COPPICE_RETURN_IF_ERROR(Write(key, 0));
    out_ += '"';
    return absl::OkStatus();
  }

  absl::Status WriteDict(const Value::Entries& entries, int level) {
    Value::Entries sorted = entries;
    const bool texts = std::all_of(sorted.begin(), sorted.end(),
                                   [](const auto& entry) { return entry.first.is_string(); });
    const bool numbers = std::all_of(sorted.begin(), sorted.end(),
                                     [](const auto& entry) { return entry.first.is_number(); });
    if (sort_keys_ && !texts && !numbers) return BadValue("tojson: the keys cannot be sorted");
    if (sort_keys_) {
      std::sort(sorted.begin(), sorted.end(), [texts](const auto& a, const auto& b) {
        return texts ? a.first.string() < b.first.string() : a.first.number() < b.first.number();
      });
    }
    out_ += '{';
    for (size_t i = 0; i < sorted.size(); ++i) {
      if (i > 0) out_ += comma_;
      NewLine(level + 1);
      COPPICE_RETURN_IF_ERROR(WriteKey(sorted[i].first));
      out_ += colon_;
      COPPICE_RETURN_IF_ERROR(Write(sorted[i].second, level + 1));
    }
    if (!sorted.empty()) NewLine(level);
    out_ += '}';
    return absl::OkStatus();
  }

  const std::optional<std::string> indent_;
  const std::string comma_, colon_;
  const bool sort_keys_, ensure_ascii_;
  Budget* const budget_;
  std::string out_;
};

}  // namespace

Result ToJson(const Value& value, const Arguments& arguments, Budget* budget) {
  COPPICE_RETURN_IF_ERROR(
      arguments.Allow(4, {"ensure_ascii", "indent", "separators", "sort_keys"}));
  std::optional<std::string> indent;
  const Value* given = arguments.Get(1, "indent");
  if (given != nullptr && !given->is_none()) {
    if (given->is_string() && given->string().size() <= kMostIndent) {
      indent = given->string();
    } else if (given->is_integer() && given->integer() <= kMostIndent) {
      indent = std::string(std::max<int64_t>(0, given->integer()), ' ');
    } else {
      return BadValue("tojson: indent must be an integer up to 64 or a text of up to 64 bytes");
    }
  }
  std::string comma = indent ? "," : ", ", colon = ": ";
  if (const Value* separators = arguments.Get(2, "separators");
      separators != nullptr && !separators->is_none()) {
    if (!separators->is_list() || separators->items().size() != 2 ||
        !separators->items()[0].is_string() || !separators->items()[1].is_string())
      return BadValue("tojson: separators must be two texts");
    comma = separators->items()[0].string();
    colon = separators->items()[1].string();
  }
  JsonWriter writer(std::move(indent), std::move(comma), std::move(colon),
                    arguments.Truth(3, "sort_keys", false),
                    arguments.Truth(0, "ensure_ascii", false), budget);
  COPPICE_RETURN_IF_ERROR(writer.Write(value, 0));
  return CheckedText(writer.Take(), budget);
}

}  // namespace coppice::tokenizer::jinja
