// Reads the items of a catalogue from a file with one in each line: token ids separated by blanks,
// or JSON objects {"id": "B001", "name": "...", "tokens": [1, 2, 3]}, where "text" may stand for
// "tokens" and "name" may be absent. The first line decides. Items without ids have the number of
// their line. One thread.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "catalogue/catalogue_builder.h"
#include "tokenizer/tokenizer.h"

namespace coppice::catalogue {

// Adds every item to the builder, whose source the path is. Tokens of a text are those of the text
// alone, where special tokens that are written in it become those tokens. progress: told how many
// items were read. Errors name file, line and reason: no JSON, a field that is missing, unknown or
// of another type, a token that ends a text inside of an item, and those of CatalogueBuilder::Add.
absl::Status ReadItems(const std::string& path, const tokenizer::Tokenizer& tokenizer, ItemEnd end,
                       const std::function<void(int64_t items)>& progress,
                       CatalogueBuilder* builder);

}  // namespace coppice::catalogue
