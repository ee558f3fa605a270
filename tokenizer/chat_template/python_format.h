// Texts with placeholders, as Python fills them in: "%s" % value and "{}".format(value). Called by the
// operators, methods and filters. Pure, except that the budget is used up.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "tokenizer/chat_template/builtins.h"

namespace coppice::tokenizer::jinja {

// text % values: a tuple, a dictionary, or one value.
Result PercentFormat(const std::string& text, const Value& values, Budget* budget);

// text.format(...).
Result BraceFormat(const std::string& text, const Arguments& arguments, Budget* budget);

}  // namespace coppice::tokenizer::jinja
