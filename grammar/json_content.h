// Strings whose text is itself JSON: "contentMediaType": "application/json" with "contentSchema".
// Not thread-safe.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "grammar/expression.h"
#include "grammar/json_document.h"
#include "grammar/json_rules.h"

namespace coppice::grammar {

// Whether the keywords of content ask for JSON and are served: no encoding, length or pattern is
// given beside them.
bool IsJsonContent(const OrderedJson& schema);

class JsonContents {
 public:
  // rules must outlive this.
  explicit JsonContents(JsonRules* rules) : rules_(*rules) {}

  // The strings with a text of `value` as their text.
  Part StringOf(Part value);
  // Call it once, when all other rules are set. Inside of a content, the content of a string is not
  // looked at.
  void Finish();

 private:
  Part Escaped(const Part& part);

  JsonRules& rules_;
  std::vector<std::pair<int, Part>> open_;     // the rule of the string, and its content
  std::map<const Expression*, Part> escaped_;  // by part
  std::map<int, int> escaped_rule_;            // by rule
  std::vector<std::pair<int, int>> waiting_;   // rule and its escaped one, not yet set
};

}  // namespace coppice::grammar
