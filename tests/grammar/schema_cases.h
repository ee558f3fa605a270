// Texts that a JSON schema has and texts that it does not have, for the tests of its reader.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "grammar/json_schema.h"
#include "tests/grammar/texts.h"

namespace coppice::grammar {

using Texts = std::vector<std::string>;

struct TextsCase {
  const char* schema;
  Texts accepted, refused;
};

inline void ExpectCases(const std::vector<TextsCase>& cases) {
  for (const TextsCase& c : cases) {
    SCOPED_TRACE(c.schema);
    ExpectTexts(ReadJsonSchema(c.schema), c.accepted, c.refused);
  }
}

}  // namespace coppice::grammar
