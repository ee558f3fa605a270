#include "catalogue/catalogue_store.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/nearest_name.h"
#include "base/printable_name.h"
#include "base/status.h"
#include "catalogue/catalogue_format.h"
#include "catalogue/catalogue_query.h"
#include "catalogue/vocabulary_check.h"

namespace coppice::catalogue {
namespace {

constexpr size_t kMostContents = 2;  // of one name: the newest, and that of requests before it
constexpr size_t kMostKnown = 64;

}  // namespace

absl::StatusOr<std::unique_ptr<CatalogueStore>> CatalogueStore::Open(
    const std::vector<std::string>& entries, Model model) {
  auto store = std::unique_ptr<CatalogueStore>(new CatalogueStore(std::move(model)));
  for (const std::string& entry : entries) {
    const size_t equals = entry.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == entry.size())
      return absl::InvalidArgumentError(
          absl::StrCat("catalogues: \"", PrintableName(entry), "\" is not NAME=FILE"));
    const std::string name = entry.substr(0, equals);
    const auto [place, is_new] = store->served_.try_emplace(name);
    if (!is_new)
      return absl::InvalidArgumentError(
          absl::StrCat("catalogues: \"", PrintableName(name), "\" is given twice"));
    place->second.file = entry.substr(equals + 1);
    COPPICE_RETURN_IF_ERROR(store->OpenAgain(&place->second));
  }
  return store;
}

absl::Status CatalogueStore::OpenAgain(Served* served) {
  COPPICE_ASSIGN_OR_RETURN(std::shared_ptr<const Catalogue> opened, Catalogue::Open(served->file));
  if (model_.vocabulary != nullptr)
    COPPICE_RETURN_IF_ERROR(CheckVocabulary(*opened, *model_.vocabulary, model_.name));
  const std::lock_guard<std::mutex> hold(lock_);
  auto& contents = served->contents;
  const auto same = std::find_if(contents.begin(), contents.end(), [&](const auto& content) {
    return content->fingerprint() == opened->fingerprint();
  });
  if (same != contents.end()) {
    if ((*same)->FileChanged()) *same = std::move(opened);
    std::rotate(contents.begin(), same, same + 1);  // what is open stays open
    return absl::OkStatus();
  }
  contents.insert(contents.begin(), std::move(opened));
  if (contents.size() <= kMostContents) return absl::OkStatus();
  known_.remove_if([&](const Known& known) { return known.content == contents.back(); });
  contents.pop_back();
  return absl::OkStatus();
}

std::vector<CatalogueStore::Entry> CatalogueStore::entries() const {
  const std::lock_guard<std::mutex> hold(lock_);
  std::vector<Entry> all;
  for (const auto& [name, served] : served_) all.push_back({name, served.file, served.contents[0]});
  return all;
}

std::shared_ptr<const Catalogue> CatalogueStore::Newest(const std::string& name) const {
  const std::lock_guard<std::mutex> hold(lock_);
  const auto found = served_.find(name);
  return found == served_.end() ? nullptr : found->second.contents[0];
}

std::vector<absl::Status> CatalogueStore::Reload() {
  std::vector<absl::Status> errors;
  for (auto& [_, served] : served_) {
    if (absl::Status status = OpenAgain(&served); !status.ok()) errors.push_back(std::move(status));
  }
  return errors;
}

absl::StatusOr<std::shared_ptr<const Catalogue>> CatalogueStore::Content(const std::string& name,
                                                                         uint64_t fingerprint) {
  const auto found = served_.find(name);
  if (found == served_.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat("catalogue \"", PrintableName(name), "\" is not given to this node"));
  }
  Served& served = found->second;
  for (const bool reopened : {false, true}) {
    if (reopened) COPPICE_RETURN_IF_ERROR(OpenAgain(&served));
    const std::lock_guard<std::mutex> hold(lock_);
    for (const auto& content : served.contents) {
      if (content->fingerprint() == fingerprint) return content;
    }
  }
  const std::lock_guard<std::mutex> hold(lock_);
  return absl::FailedPreconditionError(
      absl::StrCat(served.file, ": catalogue \"", PrintableName(name), "\" has the fingerprint ",
                   FingerprintText(served.contents[0]->fingerprint()),
                   " on this node, the request was made of ", FingerprintText(fingerprint)));
}

std::shared_ptr<const OutputFormat> CatalogueStore::FindKnown(const std::string& query,
                                                              const std::vector<TokenId>& ends) {
  const std::lock_guard<std::mutex> hold(lock_);
  for (auto known = known_.begin(); known != known_.end(); ++known) {
    if (known->query != query || known->ends != ends) continue;
    known_.splice(known_.begin(), known_, known);
    return known_.front().format;
  }
  return nullptr;
}

absl::StatusOr<std::shared_ptr<const OutputFormat>> CatalogueStore::Find(
    const std::string& query, const std::vector<TokenId>& ends) {
  if (auto known = FindKnown(query, ends)) return known;
  COPPICE_ASSIGN_OR_RETURN(CatalogueQuery asked, ParseQuery(query));
  COPPICE_ASSIGN_OR_RETURN(std::shared_ptr<const Catalogue> content,
                           Content(asked.name, asked.fingerprint));
  COPPICE_ASSIGN_OR_RETURN(auto format, MakeCatalogueFormat(content, asked.selection, ends));
  const std::lock_guard<std::mutex> hold(lock_);
  known_.push_front({query, ends, std::move(content), format});
  if (known_.size() > kMostKnown) known_.pop_back();
  return std::shared_ptr<const OutputFormat>(std::move(format));
}

}  // namespace coppice::catalogue
