#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "tokenizer/chat_template/filters.h"
#include "tokenizer/chat_template/python_text.h"

namespace coppice::tokenizer::jinja {

Result Iterator(Value::Items items, Budget* budget) {
  COPPICE_RETURN_IF_ERROR(budget->Take(items.size()));
  return Value::MakeIterable(IterableKind::kIterator, std::move(items), "");
}

const Value* GivenArgument(const Arguments& arguments, size_t place, absl::string_view name) {
  const Value* value = arguments.Get(place, name);
  return value == nullptr || value->is_none() ? nullptr : value;
}

namespace {

// What the filters map, select and their kin iterate over: nothing if the input is not true.
absl::StatusOr<Value::Items> ItemsIfTrue(const Value& input, Budget* budget) {
  if (!input.Truth()) return Value::Items();
  return ItemsOf(input, budget);
}

// The names of the attribute and of the test that selectattr and its kin take, and its arguments.
Result Select(bool by_attribute, bool keeps, const Value& input, const Arguments& arguments,
              Budget* budget) {
  const Value::Items& values = arguments.values();
  const size_t at = by_attribute ? 1 : 0;
  if (values.size() < at) return BadValue("selectattr and rejectattr need an attribute");
  COPPICE_ASSIGN_OR_RETURN(const Value::Items items, ItemsIfTrue(input, budget));
  std::string test;
  if (values.size() > at) {
    if (!values[at].is_string() || !IsTest(values[at].string()))
      return BadValue("select: there is no such test");
    test = values[at].string();
  }
  const Arguments rest(
      values.size() > at + 1 ? Value::Items(values.begin() + at + 1, values.end()) : Value::Items(),
      arguments.named());
  Value::Items kept;
  for (const Value& item : items) {
    COPPICE_ASSIGN_OR_RETURN(const Value tested,
                             by_attribute ? AttributePath(item, values[0], budget) : Result(item));
    bool holds = tested.Truth();
    if (!test.empty()) {
      COPPICE_ASSIGN_OR_RETURN(holds, ApplyTest(test, tested, rest, budget));
    }
    if (holds == keeps) kept.push_back(item);
  }
  return Iterator(std::move(kept), budget);
}

}  // namespace

Result FilterBatch(const Value& input, const Arguments& arguments, Budget* budget) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(2, {"linecount", "fill_with"}));
  COPPICE_ASSIGN_OR_RETURN(const int64_t count, arguments.Integer(0, "linecount", 0));
  if (count < 1) return BadValue("batch: linecount must be an integer of at least 1");
  COPPICE_ASSIGN_OR_RETURN(const Value::Items items, ItemsOf(input, budget));
  Value::Items batches, batch;
  const auto finish = [&]() -> absl::Status {
    COPPICE_ASSIGN_OR_RETURN(Value list,
                             CheckedList(std::exchange(batch, {}), /*tuple=*/false, budget));
    batches.push_back(std::move(list));
    return absl::OkStatus();
  };
  for (const Value& item : items) {
    if (static_cast<int64_t>(batch.size()) == count) COPPICE_RETURN_IF_ERROR(finish());
    batch.push_back(item);
  }
  if (!batch.empty()) {
    if (const Value* fill = GivenArgument(arguments, 1, "fill_with"); fill != nullptr) {
      COPPICE_RETURN_IF_ERROR(budget->Take(count - static_cast<int64_t>(batch.size())));
      batch.resize(count, *fill);
    }
    COPPICE_RETURN_IF_ERROR(finish());
  }
  return Iterator(std::move(batches), budget);
}

Result FilterSlice(const Value& input, const Arguments& arguments, Budget* budget) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(2, {"slices", "fill_with"}));
  COPPICE_ASSIGN_OR_RETURN(const int64_t slices, arguments.Integer(0, "slices", 0));
  if (slices < 1) return BadValue("slice: slices must be an integer of at least 1");
  COPPICE_ASSIGN_OR_RETURN(const Value::Items items, ItemsOf(input, budget));
  COPPICE_RETURN_IF_ERROR(budget->Take(slices));
  const Value* fill = GivenArgument(arguments, 1, "fill_with");
  const auto size = static_cast<int64_t>(items.size());
  Value::Items all;
  int64_t at = 0;
  for (int64_t i = 0; i < slices; ++i) {
    const int64_t count = size / slices + (i < size % slices ? 1 : 0);
    Value::Items part(items.begin() + at, items.begin() + at + count);
    at += count;
    if (fill != nullptr && i >= size % slices) part.push_back(*fill);
    COPPICE_ASSIGN_OR_RETURN(Value list, CheckedList(std::move(part), /*tuple=*/false, budget));
    all.push_back(std::move(list));
  }
  return Iterator(std::move(all), budget);
}

Result FilterSum(const Value& input, const Arguments& arguments, Budget* budget) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(2, {"attribute", "start"}));
  const Value* attribute = GivenArgument(arguments, 0, "attribute");
  const Value* start = arguments.Get(1, "start");
  Value sum = start != nullptr ? *start : Value(int64_t{0});
  if (sum.is_string()) return BadValue("sum: texts cannot be added");
  COPPICE_ASSIGN_OR_RETURN(const Value::Items items, ItemsOf(input, budget));
  for (const Value& item : items) {
    COPPICE_ASSIGN_OR_RETURN(const Value value, attribute == nullptr
                                                    ? Result(item)
                                                    : AttributePath(item, *attribute, budget));
    COPPICE_ASSIGN_OR_RETURN(sum, Binary(Operation::kAdd, sum, value, budget));
  }
  return sum;
}

Result FilterSelect(const Value& input, const Arguments& arguments, Budget* budget) {
  return Select(/*by_attribute=*/false, /*keeps=*/true, input, arguments, budget);
}
Result FilterReject(const Value& input, const Arguments& arguments, Budget* budget) {
  return Select(/*by_attribute=*/false, /*keeps=*/false, input, arguments, budget);
}
Result FilterSelectattr(const Value& input, const Arguments& arguments, Budget* budget) {
  return Select(/*by_attribute=*/true, /*keeps=*/true, input, arguments, budget);
}
Result FilterRejectattr(const Value& input, const Arguments& arguments, Budget* budget) {
  return Select(/*by_attribute=*/true, /*keeps=*/false, input, arguments, budget);
}

Result FilterMap(const Value& input, const Arguments& arguments, Budget* budget) {
  COPPICE_ASSIGN_OR_RETURN(const Value::Items items, ItemsIfTrue(input, budget));
  Value::Items mapped;
  if (arguments.values().empty()) {
    COPPICE_RETURN_IF_ERROR(arguments.Allow(0, {"attribute", "default"}));
    const Value* attribute = arguments.Get(0, "attribute");
    if (attribute == nullptr) return BadValue("map needs a filter or an attribute");
    const Value* fallback = GivenArgument(arguments, 1, "default");
    for (const Value& item : items) {
      COPPICE_ASSIGN_OR_RETURN(Value found, AttributePath(item, *attribute, budget, fallback));
      mapped.push_back(std::move(found));
    }
    return Iterator(std::move(mapped), budget);
  }
  const Value& filter = arguments.values()[0];
  // A filter that maps could call itself without end.
  if (!filter.is_string() || !IsFilter(filter.string()) || filter.string() == "map")
    return BadValue("map: there is no such filter");
  const Arguments rest(Value::Items(arguments.values().begin() + 1, arguments.values().end()),
                       arguments.named());
  for (const Value& item : items) {
    COPPICE_ASSIGN_OR_RETURN(Value result, ApplyFilter(filter.string(), item, rest, budget));
    mapped.push_back(std::move(result));
  }
  return Iterator(std::move(mapped), budget);
}

Result FilterJoin(const Value& input, const Arguments& arguments, Budget* budget) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(2, {"d", "attribute"}));
  const Value* given = arguments.Get(0, "d");
  COPPICE_ASSIGN_OR_RETURN(const std::string separator,
                           TextOf(given == nullptr ? Value::String("") : *given, budget));
  const Value* attribute = GivenArgument(arguments, 1, "attribute");
  COPPICE_ASSIGN_OR_RETURN(const Value::Items items, ItemsOf(input, budget));
  std::string text;
  for (size_t i = 0; i < items.size(); ++i) {
    COPPICE_ASSIGN_OR_RETURN(const Value item, attribute == nullptr
                                                   ? Result(items[i])
                                                   : AttributePath(items[i], *attribute, budget));
    COPPICE_ASSIGN_OR_RETURN(const std::string piece, TextOf(item, budget));
    absl::StrAppend(&text, i > 0 ? separator : "", piece);
    if (text.size() > budget->max_text()) break;
  }
  return CheckedText(std::move(text), budget);
}

Result FilterReverse(const Value& input, const Arguments& arguments, Budget* budget) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(0));
  COPPICE_ASSIGN_OR_RETURN(Value::Items items, ItemsOf(input, budget));
  std::reverse(items.begin(), items.end());
  if (input.is_iterator()) return CheckedList(std::move(items), /*tuple=*/false, budget);
  if (!input.is_string()) return Iterator(std::move(items), budget);
  std::string text;
  for (const Value& item : items) text += item.string();
  return CheckedText(std::move(text), budget);
}

Result FilterFirst(const Value& input, const Arguments& arguments, Budget* budget) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(0));
  if (Value::Iterable* iterable = input.iterable(); input.is_iterator()) {
    if (iterable->next < iterable->items.size()) return iterable->items[iterable->next++];
    return Value::Undefined("No first item, sequence was empty.");
  }
  COPPICE_ASSIGN_OR_RETURN(const Value::Items items, ItemsOf(input, budget));
  return items.empty() ? Value::Undefined("No first item, sequence was empty.") : items.front();
}

Result FilterLast(const Value& input, const Arguments& arguments, Budget* budget) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(0));
  if (input.is_iterator()) return BadValue("last: an iterator has no end before it is used");
  COPPICE_ASSIGN_OR_RETURN(const Value::Items items, ItemsOf(input, budget));
  return items.empty() ? Value::Undefined("No last item, sequence was empty.") : items.back();
}

Result FilterLength(const Value& input, const Arguments& arguments, Budget* budget) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(0));
  if (input.is_undefined()) return Value(int64_t{0});
  if (input.is_list() || (input.is_iterable() && !input.is_iterator()))
    return Value(static_cast<int64_t>(input.items().size()));
  if (input.is_dict()) return Value(static_cast<int64_t>(input.entries().size()));
  if (!input.is_string()) return BadValue(absl::StrCat("length: ", input.TypeName(), " has none"));
  COPPICE_RETURN_IF_ERROR(budget->TakeText(input.string().size()));
  return Value(static_cast<int64_t>(CountCharacters(input.string())));
}

Result FilterList(const Value& input, const Arguments& arguments, Budget* budget) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(0));
  COPPICE_ASSIGN_OR_RETURN(Value::Items items, ItemsOf(input, budget));
  return CheckedList(std::move(items), /*tuple=*/false, budget);
}

Result FilterItems(const Value& input, const Arguments& arguments, Budget* budget) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(0));
  if (input.is_undefined()) return Iterator({}, budget);
  if (!input.is_dict()) return BadValue("items: expected a dictionary");
  COPPICE_ASSIGN_OR_RETURN(const Value pairs, CallMethod(input, "items", arguments, budget));
  return Iterator(pairs.items(), budget);
}

}  // namespace coppice::tokenizer::jinja
