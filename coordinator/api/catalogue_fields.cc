#include "coordinator/api/catalogue_fields.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "catalogue/catalogue_query.h"
#include "catalogue/catalogue_store.h"

namespace coppice::coordinator {
namespace {

using nlohmann::json;

constexpr char kField[] = "catalogue";
constexpr size_t kMostPrefix = 256;

// The numbers of the items with these ids. Ids that the catalogue does not have are ignored and
// named, since a client may learn of a new catalogue later than the server.
std::vector<int64_t> ReadItems(const catalogue::Catalogue& catalogue, const char* name,
                               JsonFields* fields, bool* given) {
  std::vector<int64_t> items;
  const json* list = fields->Find({name});
  *given = list != nullptr;
  if (list == nullptr) return items;
  if (!list->is_array() || !AllOf(*list, &json::is_string)) {
    fields->Fail("invalid_type", name, "must be a list of ids");
    return items;
  }
  for (const json& id : *list) {
    const int64_t item = catalogue.FindId(id.get_ref<const std::string&>());
    if (item >= 0) items.push_back(item);
  }
  if (items.size() < list->size())
    fields->IgnoreField(name, "unknown_item", "has ids that the catalogue does not have");
  return items;
}

}  // namespace

void ReadCatalogue(const ApiContext& context, JsonFields* fields, GenerateRequest* request) {
  const json* value = fields->FindValue({kField});
  if (value == nullptr) return;
  if (!value->is_string() && !value->is_object())
    return fields->Fail("invalid_type", kField, "must be the name of a catalogue, or an object");
  const json object = value->is_object() ? *value : json{{"name", *value}};
  JsonFields inner(object, fields->Path(kField), fields->ignored());
  const auto refuse = [&](const char* code, absl::string_view name, absl::string_view what) {
    inner.Fail(code, name, what);
    fields->set_error(*inner.error());
  };
  const std::string name = inner.String({"name"}).value_or("");
  if (inner.error()) return fields->set_error(*inner.error());
  if (context.catalogues == nullptr || context.catalogues->empty())
    return fields->Fail("unsupported_field", kField, "is not served: the server has no catalogue");
  auto catalogue = context.catalogues->Newest(name);
  if (catalogue == nullptr) {
    std::vector<std::string> names;
    for (const auto& entry : context.catalogues->entries()) names.push_back(entry.name);
    return refuse("invalid_value", "name",
                  absl::StrCat("must be one of ", absl::StrJoin(names, ", ")));
  }
  if (catalogue->FileChanged()) {  // its ids are lost
    return fields->set_error({503, "catalogue_changed",
                              absl::StrCat(fields->Path(kField), ": the file of ", name,
                                           " was overwritten in place: rename a new one to its "
                                           "place, then POST /admin/reload"),
                              fields->Path(kField), /*retry_after_s=*/5});
  }
  catalogue::CatalogueQuery query;
  query.name = name;
  query.fingerprint = catalogue->fingerprint();
  bool allows = false, excludes = false;
  query.selection.allowed = ReadItems(*catalogue, "items", &inner, &allows);
  query.selection.excluded = ReadItems(*catalogue, "exclude", &inner, &excludes);
  for (const int64_t id : inner.Integers({"prefix"}, 0, context.vocab_size() - 1, kMostPrefix))
    query.selection.prefix.push_back(static_cast<TokenId>(id));
  inner.IgnoreUnknown();
  if (inner.error()) return fields->set_error(*inner.error());
  if (allows && query.selection.allowed.empty())
    return refuse("invalid_value", "items", "has no id that the catalogue has");
  const int64_t count = catalogue::CountItems(*catalogue, query.selection);
  if (count == 0) {
    const bool prefix = !query.selection.prefix.empty();
    return refuse("invalid_value",
                  prefix   ? "prefix"
                  : allows ? "items"
                           : "exclude",
                  prefix ? "begins none of the items" : "leaves no item");
  }
  std::string text = catalogue::QueryText(query);
  if (text.size() > kMostFormatBytes) {
    return refuse("invalid_value", allows ? "items" : "exclude",
                  absl::StrCat("has too many items: ", text.size(),
                               " bytes of item numbers, at most ", kMostFormatBytes, " are sent"));
  }
  const int longest = catalogue->longest() - static_cast<int>(query.selection.prefix.size()) +
                      (catalogue->end() == catalogue::ItemEnd::kStop ? 1 : 0);
  if (!request->max_tokens_given) {
    request->params.max_tokens = longest;
    request->max_tokens_given = true;
  } else if (request->params.max_tokens < longest) {
    return fields->Fail(
        "invalid_value", "max_tokens",
        absl::StrCat("must be at least ", longest, ", the tokens of the longest item, got ",
                     request->params.max_tokens));
  }
  if (!request->params.stop_strings.empty()) {
    return fields->Fail(kUnsupportedCombination, kField,
                        "cannot be combined with stop: an answer is a whole item");
  }
  request->params.format_spec = {FormatSpec::Kind::kCatalogue, std::move(text)};
  request->format_field = fields->Path(kField);
  request->catalogue.name = name;
  request->catalogue.prefix = std::move(query.selection.prefix);
  request->catalogue.items = count;
  request->catalogue.content = std::move(catalogue);
}

}  // namespace coppice::coordinator
