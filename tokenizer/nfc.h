// Unicode normalization form C (UAX 15): characters composed where a composed form exists. Called
// by the normalizer; tables from tests/tokenizer/make_nfc_tables.py. Pure function.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace coppice::tokenizer {

// text: valid UTF-8.
std::string ToNfc(absl::string_view text);

}  // namespace coppice::tokenizer
