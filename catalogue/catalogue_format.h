// The format of outputs that are items of a catalogue, or of a part of it: which tokens may follow
// each path. The state of a path is its node in the trie. A part is not copied: whether something
// is left below a node is found by counting. One object should serve all requests with the same
// selection, because it keeps the allowed tokens of the states that every request needs.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/output_format.h"
#include "base/types.h"
#include "catalogue/catalogue.h"

namespace coppice::catalogue {

// What a request may get of a catalogue. Numbers are those of items.
struct Selection {
  std::vector<int64_t> allowed;   // empty: all
  std::vector<int64_t> excluded;  // also of those that are allowed
  std::vector<TokenId> prefix;    // of the items; the output is what follows it
};

// The items that a selection leaves. Numbers that are none of the catalogue's do not count.
int64_t CountItems(const Catalogue& catalogue, const Selection& selection);

// ends: ids that end a hypothesis. Items that a stop id follows need one. With items that end by
// themselves they may be empty, and every item is a Complete text of the format.
// InvalidArgument names the catalogue's file and the reason: no item is left, none begins with the
// prefix, or nothing can follow it; an item that is none of the catalogue's; an id that ends a
// hypothesis inside of an item.
absl::StatusOr<std::shared_ptr<const OutputFormat>> MakeCatalogueFormat(
    std::shared_ptr<const Catalogue> catalogue, Selection selection, std::vector<TokenId> ends);

}  // namespace coppice::catalogue
