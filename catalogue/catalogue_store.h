// The catalogues of a process, by name. A file is replaced by renaming a new one to its place:
// `Reload` or a query for the new content switches to it, and what uses the old one keeps it. The
// content before the newest stays open, for requests that were made of it; an older one is freed
// with the last sequence that uses it. Any thread.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/output_format.h"
#include "base/types.h"
#include "catalogue/catalogue.h"
#include "tokenizer/vocabulary.h"

namespace coppice::catalogue {

class CatalogueStore {
 public:
  struct Entry {
    std::string name, file;
    std::shared_ptr<const Catalogue> newest;
  };

  // What the catalogues must be for. Others are refused.
  struct Model {
    std::string name;
    std::shared_ptr<const tokenizer::Vocabulary> vocabulary;  // nullptr: not known
  };

  // entries: NAME=FILE each, names distinct. The error names the entry or the file.
  static absl::StatusOr<std::unique_ptr<CatalogueStore>> Open(
      const std::vector<std::string>& entries, Model model);

  bool empty() const { return served_.empty(); }
  std::vector<Entry> entries() const;  // by name
  // nullptr: none has this name.
  std::shared_ptr<const Catalogue> Newest(const std::string& name) const;
  // Opens all files again. The errors of those that cannot be used, whose old content stays.
  std::vector<absl::Status> Reload();
  // The format that a query asks for (catalogue_query.h). ends: ids that end a hypothesis.
  // FailedPrecondition: this process has no such catalogue, or another content of it.
  absl::StatusOr<std::shared_ptr<const OutputFormat>> Find(const std::string& query,
                                                           const std::vector<TokenId>& ends);

 private:
  struct Served {
    std::string file;
    std::vector<std::shared_ptr<const Catalogue>> contents;  // newest first
  };
  struct Known {
    std::string query;
    std::vector<TokenId> ends;
    std::shared_ptr<const Catalogue> content;
    std::shared_ptr<const OutputFormat> format;
  };

  explicit CatalogueStore(Model model) : model_(std::move(model)) {}
  // Reads the file, which may take a while, without the lock, and makes it the newest content.
  absl::Status OpenAgain(Served* served);
  // nullptr: the query is none of the recent ones.
  std::shared_ptr<const OutputFormat> FindKnown(const std::string& query,
                                                const std::vector<TokenId>& ends);
  absl::StatusOr<std::shared_ptr<const Catalogue>> Content(const std::string& name,
                                                           uint64_t fingerprint);

  const Model model_;
  mutable std::mutex lock_;               // of contents and known_; files are read without it
  std::map<std::string, Served> served_;  // names and files stay
  std::list<Known> known_;                // formats of recent queries, the latest first
};

}  // namespace coppice::catalogue
