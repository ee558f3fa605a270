// The filters of chat templates, one function each, for the table in filters.cc. Those that make or
// take apart lists are in list_filters.cc and sort_filters.cc, those of texts in text_filters.cc. Thread-compatible.
#pragma once

#include "tokenizer/chat_template/builtins.h"

namespace coppice::tokenizer::jinja {

// input, its arguments, the budget.
using Filter = Result(const Value&, const Arguments&, Budget*);

Filter FilterBatch, FilterDictsort, FilterFirst, FilterGroupby, FilterItems, FilterJoin, FilterLast,
    FilterLength, FilterList, FilterMap, FilterMax, FilterMin, FilterReject, FilterRejectattr,
    FilterReverse, FilterSelect, FilterSelectattr, FilterSlice, FilterSort, FilterSum, FilterUnique;
Filter FilterCapitalize, FilterCenter, FilterFormat, FilterIndent, FilterLower, FilterReplace,
    FilterString, FilterTitle, FilterTrim, FilterTruncate, FilterUpper, FilterWordcount;

// The items as Python's generators give them.
Result Iterator(Value::Items items, Budget* budget);
// nullptr also if the argument is none.
const Value* GivenArgument(const Arguments& arguments, size_t place, absl::string_view name);

}  // namespace coppice::tokenizer::jinja
