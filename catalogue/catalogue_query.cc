#include "catalogue/catalogue_query.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace coppice::catalogue {
namespace {

using nlohmann::json;

constexpr char kName[] = "catalogue", kFingerprint[] = "fingerprint", kAllowed[] = "allowed",
               kExcluded[] = "excluded", kPrefix[] = "prefix";

absl::Status NoQuery(absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("catalogue: the query ", why));
}

// Reads a list of integers of at least 0; a member that is missing is an empty one.
template <typename Integer>
absl::Status ReadNumbers(const json& object, const char* name, std::vector<Integer>* numbers) {
  const auto member = object.find(name);
  if (member == object.end()) return absl::OkStatus();
  if (!member->is_array()) return NoQuery(absl::StrCat("has no list \"", name, "\""));
  for (const json& number : *member) {
    if (!number.is_number_unsigned() ||
        number.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<Integer>::max()))
      return NoQuery(absl::StrCat("has another value than a number in \"", name, "\""));
    numbers->push_back(number.get<Integer>());
  }
  return absl::OkStatus();
}

}  // namespace

std::string FingerprintText(uint64_t fingerprint) {
  return absl::StrCat(absl::Hex(fingerprint, absl::kZeroPad16));
}

std::string QueryText(const CatalogueQuery& query) {
  json object = {{kName, query.name}, {kFingerprint, FingerprintText(query.fingerprint)}};
  const Selection& selection = query.selection;
  if (!selection.allowed.empty()) object[kAllowed] = selection.allowed;
  if (!selection.excluded.empty()) object[kExcluded] = selection.excluded;
  if (!selection.prefix.empty()) object[kPrefix] = selection.prefix;
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

absl::StatusOr<CatalogueQuery> ParseQuery(absl::string_view text) {
  const json object = json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return NoQuery("is no JSON object");
  const auto name = object.find(kName), fingerprint = object.find(kFingerprint);
  if (name == object.end() || !name->is_string() || name->get_ref<const std::string&>().empty())
    return NoQuery("has no name");
  CatalogueQuery query;
  query.name = name->get<std::string>();
  if (fingerprint == object.end() || !fingerprint->is_string() ||
      !absl::SimpleHexAtoi(fingerprint->get_ref<const std::string&>(), &query.fingerprint))
    return NoQuery("has no fingerprint");
  for (const absl::Status& status : {ReadNumbers(object, kAllowed, &query.selection.allowed),
                                     ReadNumbers(object, kExcluded, &query.selection.excluded),
                                     ReadNumbers(object, kPrefix, &query.selection.prefix)}) {
    if (!status.ok()) return status;
  }
  return query;
}

}  // namespace coppice::catalogue
