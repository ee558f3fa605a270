// The keywords of JSON schemas: what each is about, and which are not served. Used by json_schema.
#pragma once

#include "absl/strings/string_view.h"
#include "grammar/json_document.h"

namespace coppice::grammar {

// Each of these describes a value completely.
inline constexpr absl::string_view kWholeKeywords[] = {"$ref",  "anyOf", "oneOf",
                                                       "allOf", "enum",  "const"};
bool IsWhole(absl::string_view keyword);

// The type that a served keyword is for; "": not such a keyword.
absl::string_view TypeOfKeyword(absl::string_view keyword);

// Whether a value has a type of "type".
bool HasType(const OrderedJson& value, absl::string_view type);

// Whether the keyword only describes a value, or holds schemas for references.
bool OnlyDescribes(absl::string_view keyword);

// Whether the keyword is one of those that IsUnserved asks about.
bool MayBeUnserved(absl::string_view keyword);

// Whether the keyword of this schema limits the values in a way that is not served.
bool IsUnserved(absl::string_view keyword, const OrderedJson& schema);

}  // namespace coppice::grammar
