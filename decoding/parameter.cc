#include "decoding/parameter.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace coppice::decoding {
namespace {

absl::Status Refuse(const ParameterRow& row, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(row.name, ": ", what));
}

template <typename Number>
absl::Status CheckRange(const ParameterRow& row, Number value) {
  const ParameterRange& range = row.range;
  if (range.Has(static_cast<double>(value))) return absl::OkStatus();
  const std::string interval = absl::StrCat("in [", static_cast<Number>(range.low), ", ",
                                            static_cast<Number>(range.high), "]");
  return Refuse(row,
                absl::StrCat(value, range.or_zero ? " is neither 0 nor " : " is not ", interval));
}

}  // namespace

absl::string_view ParameterTypeName(ParameterType type) {
  switch (type) {
    case ParameterType::kInteger:
      return "integer";
    case ParameterType::kNumber:
      return "number";
    case ParameterType::kFlag:
      return "boolean";
    case ParameterType::kSeed:
      return "integer of 64 bits";
    case ParameterType::kStructured:
      break;
  }
  return "structure";
}

bool ParameterRange::Has(double value) const {
  if (or_zero && value == 0) return true;
  return value >= low && value <= high && !(open_low && value == low);
}

const ParameterRow* FindParameter(absl::string_view name) {
  for (const ParameterRow& row : Parameters()) {
    if (name == row.name) return &row;
  }
  return nullptr;
}

absl::Status SetParameter(const ParameterRow& row, ParameterValue value, DecodingParams* params) {
  const auto type = static_cast<ParameterType>(value.index());
  if (type != row.member.type) {
    return Refuse(row, absl::StrCat("is of type ", ParameterTypeName(type), ", want ",
                                    ParameterTypeName(row.member.type)));
  }
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    COPPICE_RETURN_IF_ERROR(CheckRange(row, *integer));
  } else if (const auto* number = std::get_if<double>(&value)) {
    COPPICE_RETURN_IF_ERROR(CheckRange(row, *number));
  }
  row.member.put(value, params);
  return absl::OkStatus();
}

absl::Status CheckParameters(const DecodingParams& params) {
  DecodingParams checked;
  for (const ParameterRow& row : Parameters()) {
    if (row.scalar()) COPPICE_RETURN_IF_ERROR(SetParameter(row, row.member.get(params), &checked));
  }
  return absl::OkStatus();
}

bool IsDefault(const ParameterRow& row, const DecodingParams& params) {
  static const DecodingParams* const defaults = new DecodingParams();
  return row.member.get(params) == row.member.get(*defaults);
}

absl::string_view NoEndOfFormat(const DecodingParams& params) {
  if (!params.stop_ids.empty()) return "";
  return "needs a token that ends a text: the model has none, give stop_token_ids";
}

bool IsNeutral(const ParameterRow& row, const DecodingParams& params) {
  const ParameterValue value = row.member.get(params);
  return IsDefault(row, params) || value == ParameterValue(0.0) ||
         value == ParameterValue(int64_t{0});
}

}  // namespace coppice::decoding
