// Structural tags: JSON texts that say how an answer is put together from fixed texts, formats, and
// texts that are free but for the tags in them. The notation of XGrammar and vLLM, with additions.
// Calls of tools are bound by them. Pure.
//
// The text is {"format": F}, beside which "type": "structural_tag" may stand, and "whitespace":
// "single" (JSON has a space after : and , and no other white space) or "any". F is one of these:
//
//   {"type": "const_string", "value": TEXT}
//   {"type": "token", "token": NAME}                 the special token with this name
//   {"type": "json_schema", "json_schema": SCHEMA}
//   {"type": "regex", "pattern": TEXT}, {"type": "grammar", "grammar": TEXT}
//   {"type": "any_text", "excludes": MARKS, "not_begins": MARKS}
//   {"type": "sequence", "elements": [F...]}, {"type": "or", "elements": [F...]}
//   {"type": "optional", "content": F}, also "star" and "plus"
//   {"type": "tag", "begin": MARK, "content": F, "end": MARK or MARKS}
//   {"type": "triggered_tags", "triggers": MARKS, "tags": TAGS, "at_least_one": false,
//    "stop_after_first": false}                      any text in which a trigger begins a tag
//   {"type": "tags_with_separator", "tags": TAGS, "separator": MARK, "at_least_one": false,
//    "stop_after_first": false}
//   {"type": "python_arguments", "json_schema": SCHEMA}   a=1, b="x": the members of an object
//
// MARK is a text or a "token" object, MARKS a list of them; TAGS are objects of type "tag", whose
// type may be left out. Any text may have special tokens; as a mark, a text stands for the special
// token of this name too, but only after any text.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "grammar/expression.h"

namespace coppice::grammar {

// InvalidArgument names the place (as a JSON pointer) and what is wrong there. *annotations, if not
// nullptr, gets the places of keywords of schemas that are not known.
absl::StatusOr<Grammar> ReadStructuralTag(absl::string_view text,
                                          std::vector<std::string>* annotations);

}  // namespace coppice::grammar
