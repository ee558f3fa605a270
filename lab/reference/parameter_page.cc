#include "lab/reference/parameter_page.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "coordinator/api/api.h"
#include "coordinator/api/parameter_fields.h"
#include "decoding/method.h"
#include "decoding/parameter.h"

namespace coppice::reference {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kLineWidth = 120;

constexpr char kHead[] =
    R"(# Parameters of a request

The fields of `POST /v1/completions` that decide its tokens, one entry for every row of `decoding/parameter_table.cc`.
`GET /v1/models` lists the same under `capabilities.parameters`, with the limits of the running server; the limits below
are the defaults of its flags. Fields that say what to decode and how to answer (`prompt`, `best_of`, `stream`,
`timeout`) are in [api.md](api.md) 2. A value that is out of range, of the wrong type or without effect is refused with
a 400 whose `error.param` is the field. Section numbers such as 5.3 are those of [algorithms.md](algorithms.md).

`coppice-reference > docs/parameters.md` writes this page; a test fails when it is stale.
)";

std::string Quoted(absl::string_view name) { return absl::StrCat("`", name, "`"); }

std::string Title(decoding::ParameterGroup group) {
  switch (group) {
    case decoding::ParameterGroup::kDecoding:
      return "Decoding and beams";
    case decoding::ParameterGroup::kLength:
      return "Length and end";
    case decoding::ParameterGroup::kSampling:
      return "Sampling parameters";
    case decoding::ParameterGroup::kDraft:
      break;
  }
  return "Drafts and methods";
}

// 1, not 1.0.
std::string Number(const Json& value) {
  return value.is_number() ? absl::StrCat(value.get<double>()) : value.dump();
}

std::string HighEnd(const decoding::ParameterRow& row, const Json& maximum) {
  const std::string number = maximum.is_null() ? "" : Number(maximum);
  switch (row.limit) {
    case decoding::ParameterLimit::kNone:
      return number;
    case decoding::ParameterLimit::kMaxBeamWidth:
      return absl::StrCat(number, " (`--max_beam_width`)");
    case decoding::ParameterLimit::kMaxDraftWidth:
      return absl::StrCat(number, " (`--max_draft_width`)");
    case decoding::ParameterLimit::kMaxDraftDepth:
      return absl::StrCat(number, " (`--max_draft_depth`)");
    case decoding::ParameterLimit::kVocabulary:
      return "the size of the vocabulary";
    case decoding::ParameterLimit::kBeamWidth:
      return "the beam width";
  }
  return number;
}

std::string Values(const decoding::ParameterRow& row, const Json& json) {
  if (row.own_syntax != nullptr) return row.own_syntax;
  if (row.member.type == decoding::ParameterType::kFlag) return "`true` or `false`";
  const std::string type =
      absl::StrCat(decoding::ParameterTypeName(row.member.type) == "integer" ? "an" : "a", " ",
                   decoding::ParameterTypeName(row.member.type));
  const std::string low = Number(json["minimum"]), high = HighEnd(row, json["maximum"]);
  std::string range =
      json["exclusive_minimum"] ? absl::StrCat("above ", low) : absl::StrCat("from ", low);
  absl::StrAppend(&range, high.empty() ? " upwards" : absl::StrCat(" to ", high));
  if (row.zero_word != nullptr) absl::StrAppend(&range, ", or `\"", row.zero_word, "\"`");
  if (row.range.or_zero) absl::StrAppend(&range, ", or 0");
  return absl::StrCat(type, " ", range);
}

std::string Default(const decoding::ParameterRow& row, const Json& json) {
  if (row.own_default != nullptr) return row.own_default;
  return Quoted(Number(json["default"]));
}

std::string Readers(const decoding::ParameterRow& row) {
  switch (row.read_by) {
    case decoding::ReadBy::kEvery:
      return "every decoding";
    case decoding::ReadBy::kSampling:
      return "every decoding but `beam_search`, which takes only neutral values";
    case decoding::ReadBy::kRows:
      return "every decoding, with `sampling_scope` `row` or `row_raw`";
    case decoding::ReadBy::kBeams:
      return "the beam decodings";
    case decoding::ReadBy::kDrafting:
      return "every method that drafts";
    case decoding::ReadBy::kOption:
      break;
  }
  std::vector<std::string> names;
  for (const decoding::MethodRow& method : decoding::Methods()) {
    if (method.reads(row.field())) names.push_back(Quoted(method.name));
  }
  return absl::StrJoin(names, ", ");
}

// Wraps to lines of at most kLineWidth and indents those after the first.
std::string Wrapped(const std::string& text) {
  std::string out;
  size_t column = 0;
  for (absl::string_view word : absl::StrSplit(text, ' ')) {
    if (column > 0 && column + 1 + word.size() > kLineWidth) {
      out += "\n ";
      column = 1;
    }
    absl::StrAppend(&out, column == 0 ? "" : " ", word);
    column += word.size() + (column == 0 ? 0 : 1);
  }
  return out + "\n";
}

std::string Paragraph(const decoding::ParameterRow& row, const Json& json) {
  std::vector<std::string> aliases;
  for (size_t i = 1; i < row.fields.size(); ++i) aliases.push_back(Quoted(row.fields[i]));
  const std::string path =
      *row.object == 0 ? row.field() : absl::StrCat(row.object, ".", row.field());
  return Wrapped(absl::StrCat("- **", Quoted(path), "**", aliases.empty() ? "" : ", also ",
                              absl::StrJoin(aliases, ", "), ": ", Values(row, json), "; default ",
                              Default(row, json), ". ", row.text, " Read by ", Readers(row), "."));
}

}  // namespace

std::string ParameterPage() {
  std::string page = kHead;
  const Json rows = coordinator::ParametersJson(coordinator::ApiLimits());
  for (const decoding::ParameterGroup group :
       {decoding::ParameterGroup::kDecoding, decoding::ParameterGroup::kLength,
        decoding::ParameterGroup::kSampling, decoding::ParameterGroup::kDraft}) {
    absl::StrAppend(&page, "\n## ", Title(group), "\n\n");
    for (size_t i = 0; i < rows.size(); ++i) {
      const decoding::ParameterRow& row = decoding::Parameters()[i];
      if (row.group == group) page += Paragraph(row, rows[i]);
    }
  }
  return page;
}

}  // namespace coppice::reference
