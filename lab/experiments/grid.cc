#include "lab/experiments/grid.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "decoding/beam_decoder.h"
#include "decoding/draft_size.h"
#include "decoding/method.h"
#include "decoding/parameter.h"
#include "decoding/topology.h"
#include "lab/experiments/sampling_text.h"

namespace coppice::lab {
namespace {

constexpr sampling::DecodingKind kAllKinds[] = {
    sampling::DecodingKind::kMultinomial, sampling::DecodingKind::kBeamSampling,
    sampling::DecodingKind::kBeamSamplingWithoutReplacement, sampling::DecodingKind::kBeamSearch};

// True if this parameter can be an option of a method: a scalar of drafts and methods, except the
// draft's width and depth, which are lists of the grid.
bool IsOption(const decoding::ParameterRow& row) {
  const bool of_drafts =
      row.read_by == decoding::ReadBy::kOption || row.read_by == decoding::ReadBy::kDrafting;
  return of_drafts && row.scalar() && row.zero_word == nullptr;
}

std::optional<decoding::ParameterValue> ParseValue(decoding::ParameterType type,
                                                   absl::string_view text) {
  int64_t integer = 0;
  double number = 0;
  bool flag = false;
  if (type == decoding::ParameterType::kInteger && absl::SimpleAtoi(text, &integer)) return integer;
  if (type == decoding::ParameterType::kNumber && absl::SimpleAtod(text, &number)) return number;
  if (type == decoding::ParameterType::kFlag && absl::SimpleAtob(text, &flag)) return flag;
  return std::nullopt;
}

struct MethodSpec {
  std::string name;
  std::vector<sampling::DecodingKind> serves;
  std::string options;  // "draft_beams=8 mjsd_threshold=0.1"
  decoding::DecodingParams params;
};

absl::Status SetOption(absl::string_view text, decoding::DecodingParams* params) {
  const std::pair<absl::string_view, absl::string_view> field =
      absl::StrSplit(text, absl::MaxSplits('=', 1));
  const auto refuse = [&field](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("--methods: '", field.second, "' is no value of ", field.first, why));
  };
  if (field.first == "draft_tree") {
    params->draft_tree = std::string(field.second);
    return decoding::ParseTopology(field.second).ok() ? absl::OkStatus() : refuse("");
  }
  std::vector<absl::string_view> names = {"draft_tree"};
  for (const decoding::ParameterRow& row : decoding::Parameters()) {
    if (!IsOption(row)) continue;
    names.push_back(row.name);
    if (field.first != row.name) continue;
    const std::optional<decoding::ParameterValue> value = ParseValue(row.member.type, field.second);
    if (!value) return refuse("");
    const absl::Status status = decoding::SetParameter(row, *value, params);
    return status.ok() ? status : refuse(absl::StrCat(" (", status.message(), ")"));
  }
  return absl::InvalidArgumentError(absl::StrCat("--methods: unknown option '", field.first,
                                                 "', expected one of ",
                                                 absl::StrJoin(names, ", ")));
}

absl::StatusOr<MethodSpec> ParseMethod(absl::string_view text,
                                       const decoding::DecodingParams& base) {
  std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  MethodSpec spec;
  spec.name = std::string(parts[0]);
  spec.params = base;
  spec.params.plain = spec.name == "none";
  spec.params.method = decoding::FindMethod(spec.name);
  parts.erase(parts.begin());
  for (absl::string_view part : parts) COPPICE_RETURN_IF_ERROR(SetOption(part, &spec.params));
  spec.options = absl::StrJoin(parts, " ");
  if (spec.name == "none") {
    spec.serves.assign(std::begin(kAllKinds), std::end(kAllKinds));
    return spec;
  }
  const decoding::MethodRow* row = spec.params.method;
  if (row == nullptr) {
    std::vector<absl::string_view> names = {"all", "none"};
    for (const decoding::MethodRow& known : decoding::Methods()) names.push_back(known.name);
    return absl::InvalidArgumentError(absl::StrCat("--methods: unknown method '", spec.name,
                                                   "', expected ", absl::StrJoin(names, ", ")));
  }
  spec.serves = row->serves;
  return spec;
}

absl::StatusOr<std::vector<MethodSpec>> ParseMethods(const std::vector<std::string>& texts,
                                                     const decoding::DecodingParams& base) {
  std::vector<MethodSpec> specs;
  for (const std::string& text : texts) {
    std::vector<std::string> names = {text};
    if (text == "all") {
      names = {"none"};
      for (const decoding::MethodRow& row : decoding::Methods())
        names.push_back(std::string(row.name));
    }
    for (const std::string& name : names) {
      COPPICE_ASSIGN_OR_RETURN(MethodSpec spec, ParseMethod(name, base));
      specs.push_back(std::move(spec));
    }
  }
  return specs;
}

// One combination. The method's form may change the draft's shape.
Cell MakeCell(const MethodSpec& spec, sampling::DecodingKind kind, int width, int draft_width,
              int depth, const sampling::SamplingParams& sampling) {
  Cell cell;
  cell.params = spec.params;
  cell.params.kind = kind;
  cell.params.sampling = sampling;
  cell.params.beam_width = kind == sampling::DecodingKind::kMultinomial ? 1 : width;
  cell.options = spec.options;
  cell.params.draft_width = draft_width;
  cell.params.draft_depth = depth;
  const decoding::DraftSize size = decoding::DraftSizeOf(cell.params);
  if (!size.drafts) return cell;
  cell.draft_width = size.width > 0 ? size.width : decoding::AutoDraftWidth(cell.params.beam_width);
  cell.draft_depth = size.depth > 0 ? size.depth : depth;
  if (!size.tree) cell.params.draft_width = cell.draft_width;
  return cell;
}

template <typename T>
absl::Status CheckList(absl::string_view flag, const std::vector<T>& values, T least) {
  if (values.empty()) return absl::InvalidArgumentError(absl::StrCat(flag, ": expected a value"));
  for (const T& value : values) {
    if (value < least) {
      return absl::InvalidArgumentError(absl::StrCat(flag, ": ", value, " is below ", least));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GridCells> MakeCells(const Grid& grid, const decoding::DecodingParams& base) {
  COPPICE_RETURN_IF_ERROR(CheckList("--widths", grid.widths, 1));
  COPPICE_RETURN_IF_ERROR(CheckList("--draft_widths", grid.draft_widths, 0));
  COPPICE_RETURN_IF_ERROR(CheckList("--depths", grid.depths, 1));
  COPPICE_ASSIGN_OR_RETURN(const auto specs, ParseMethods(grid.methods, base));
  GridCells out;
  std::set<std::string> seen;
  const auto add = [&](const Cell& cell) {
    const std::string name = CellName(cell);
    if (!seen.insert(name).second) return;
    const absl::Status status = decoding::MakeBeamDecoder(cell.params).status();
    if (status.ok()) {
      out.cells.push_back(cell);
    } else {
      out.skipped.push_back({name, std::string(status.message())});
    }
  };
  for (const std::string& text : grid.samplings) {
    absl::StatusOr<sampling::SamplingParams> sampling = ParseSamplingText(text);
    if (!sampling.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--samplings: ", sampling.status().message()));
    }
    for (const MethodSpec& spec : specs) {
      for (sampling::DecodingKind kind : spec.serves) {
        const auto& wanted = grid.decodings;
        if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), kind) == wanted.end())
          continue;
        for (int width : grid.widths) {
          for (int draft_width : grid.draft_widths) {
            for (int depth : grid.depths) {
              add(MakeCell(spec, kind, width, draft_width, depth, *sampling));
            }
          }
        }
      }
    }
  }
  if (out.cells.empty() && out.skipped.empty()) {
    return absl::InvalidArgumentError("no method serves the decodings asked for");
  }
  return out;
}

}  // namespace coppice::lab
