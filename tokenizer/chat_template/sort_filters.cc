// The filters that compare items: they sort, group and find the largest.
#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "tokenizer/chat_template/filters.h"
#include "tokenizer/chat_template/python_text.h"

namespace coppice::tokenizer::jinja {
namespace {

// The value that an item is sorted by: of the attribute, if there is one. Unless case counts, texts
// are in small letters.
Result SortKey(const Value& item, const Value* attribute, bool with_case, Budget* budget) {
  Value key = item;
  if (attribute != nullptr) {
    COPPICE_ASSIGN_OR_RETURN(key, AttributePath(item, *attribute, budget));
  }
  if (with_case || !key.is_string()) return key;
  COPPICE_RETURN_IF_ERROR(budget->TakeText(key.string().size()));
  return Value::String(Lower(key.string()));
}

// A key for each of several attributes, "a,b".
Result SortKeys(const Value& item, const Value* attributes, bool with_case, Budget* budget) {
  if (attributes == nullptr || !attributes->is_string() ||
      attributes->string().find(',') == std::string::npos)
    return SortKey(item, attributes, with_case, budget);
  Value::Items keys;
  for (const absl::string_view name : absl::StrSplit(attributes->string(), ',')) {
    const Value attribute = Value::String(std::string(name));
    COPPICE_ASSIGN_OR_RETURN(Value key, SortKey(item, &attribute, with_case, budget));
    keys.push_back(std::move(key));
  }
  return CheckedList(std::move(keys), /*tuple=*/false, budget);
}

struct Keyed {
  Value key, item;
};

// Merge sort, stable in both directions. An order that fails ends it. equal_need_no_order: keys that
// are equal are not put in order, so that they may be of any kind.
absl::Status SortStably(std::vector<Keyed>* all, bool reverse, bool equal_need_no_order,
                        Budget* budget) {
  std::vector<Keyed> merged(all->size());
  for (size_t width = 1; width < all->size(); width *= 2) {
    for (size_t begin = 0; begin < all->size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, all->size());
      const size_t end = std::min(begin + 2 * width, all->size());
      size_t left = begin, right = middle;
      for (size_t at = begin; at < end; ++at) {
        bool take_right = left == middle;
        if (left < middle && right < end) {
          COPPICE_RETURN_IF_ERROR(budget->Take(1));
          const Value &a = (*all)[right].key, &b = (*all)[left].key;
          bool same = false;
          if (equal_need_no_order) {
            COPPICE_ASSIGN_OR_RETURN(same, Compare(Operation::kEqual, a, b, budget));
          }
          if (!same) {
            const Operation before = reverse ? Operation::kGreater : Operation::kLess;
            COPPICE_ASSIGN_OR_RETURN(take_right, Compare(before, a, b, budget));
          }
        }
        merged[at] = std::move((*all)[take_right ? right++ : left++]);
      }
    }
    std::swap(*all, merged);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Keyed>> SortedByKey(const Value::Items& items, const Value* attributes,
                                               bool with_case, bool reverse, bool any_equal,
                                               Budget* budget) {
  std::vector<Keyed> all;
  for (const Value& item : items) {
    COPPICE_ASSIGN_OR_RETURN(Value key, SortKeys(item, attributes, with_case, budget));
    all.push_back({std::move(key), item});
  }
  COPPICE_RETURN_IF_ERROR(SortStably(&all, reverse, any_equal, budget));
  return all;
}

Result Extreme(const Value& input, bool largest, const Arguments& arguments, Budget* budget) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(2, {"case_sensitive", "attribute"}));
  const bool with_case = arguments.Truth(0, "case_sensitive", false);
  const Value* attribute = GivenArgument(arguments, 1, "attribute");
  COPPICE_ASSIGN_OR_RETURN(const Value::Items items, ItemsOf(input, budget));
  if (items.empty()) return Value::Undefined("No aggregated item, sequence was empty.");
  Value best = items[0];
  COPPICE_ASSIGN_OR_RETURN(Value best_key, SortKey(best, attribute, with_case, budget));
  for (size_t i = 1; i < items.size(); ++i) {
    COPPICE_ASSIGN_OR_RETURN(Value key, SortKey(items[i], attribute, with_case, budget));
    COPPICE_ASSIGN_OR_RETURN(
        const bool better,
        Compare(largest ? Operation::kGreater : Operation::kLess, key, best_key, budget));
    if (!better) continue;
    best = items[i];
    best_key = std::move(key);
  }
  return best;
}

}  // namespace

Result FilterDictsort(const Value& input, const Arguments& arguments, Budget* budget) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(3, {"case_sensitive", "by", "reverse"}));
  COPPICE_ASSIGN_OR_RETURN(const std::string* by, arguments.Text(1, "by"));
  if (by != nullptr && *by != "key" && *by != "value")
    return BadValue("dictsort: by must be key or value");
  if (!input.is_dict()) return BadValue(absl::StrCat("dictsort: got ", input.TypeName()));
  const Value place(int64_t{by != nullptr && *by == "value"});
  COPPICE_ASSIGN_OR_RETURN(const Value pairs,
                           CallMethod(input, "items", Arguments({}, {}), budget));
  COPPICE_ASSIGN_OR_RETURN(
      std::vector<Keyed> sorted,
      SortedByKey(pairs.items(), &place, arguments.Truth(0, "case_sensitive", false),
                  arguments.Truth(2, "reverse", false), /*any_equal=*/false, budget));
  Value::Items items;
  for (Keyed& entry : sorted) items.push_back(std::move(entry.item));
  return CheckedList(std::move(items), /*tuple=*/false, budget);
}

Result FilterSort(const Value& input, const Arguments& arguments, Budget* budget) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(3, {"reverse", "case_sensitive", "attribute"}));
  COPPICE_ASSIGN_OR_RETURN(const Value::Items items, ItemsOf(input, budget));
  COPPICE_ASSIGN_OR_RETURN(
      std::vector<Keyed> sorted,
      SortedByKey(items, GivenArgument(arguments, 2, "attribute"),
                  arguments.Truth(1, "case_sensitive", false), arguments.Truth(0, "reverse", false),
                  /*any_equal=*/true, budget));
  Value::Items found;
  for (Keyed& entry : sorted) found.push_back(std::move(entry.item));
  return CheckedList(std::move(found), /*tuple=*/false, budget);
}

Result FilterGroupby(const Value& input, const Arguments& arguments, Budget* budget) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(3, {"attribute", "default", "case_sensitive"}));
  const Value* attribute = arguments.Get(0, "attribute");
  if (attribute == nullptr) return BadValue("groupby needs an attribute");
  const Value* fallback = GivenArgument(arguments, 1, "default");
  const bool with_case = arguments.Truth(2, "case_sensitive", false);
  COPPICE_ASSIGN_OR_RETURN(const Value::Items items, ItemsOf(input, budget));
  std::vector<Keyed> all;
  for (const Value& item : items) {
    COPPICE_ASSIGN_OR_RETURN(const Value plain, AttributePath(item, *attribute, budget, fallback));
    COPPICE_ASSIGN_OR_RETURN(Value key, SortKey(plain, nullptr, with_case, budget));
    all.push_back({std::move(key), item});
  }
  COPPICE_RETURN_IF_ERROR(
      SortStably(&all, /*reverse=*/false, /*equal_need_no_order=*/false, budget));
  Value::Items groups;
  for (size_t at = 0; at < all.size();) {
    Value::Items group;
    const Value key = all[at].key;
    for (; at < all.size(); ++at) {
      COPPICE_ASSIGN_OR_RETURN(const bool same, Equals(all[at].key, key, budget));
      if (!same) break;
      group.push_back(std::move(all[at].item));
    }
    COPPICE_ASSIGN_OR_RETURN(const Value plain,
                             AttributePath(group[0], *attribute, budget, fallback));
    COPPICE_ASSIGN_OR_RETURN(Value list, CheckedList(std::move(group), /*tuple=*/false, budget));
    groups.push_back(Value::MakeGroup(plain, std::move(list)));
  }
  return CheckedList(std::move(groups), /*tuple=*/false, budget);
}

Result FilterUnique(const Value& input, const Arguments& arguments, Budget* budget) {
  COPPICE_RETURN_IF_ERROR(arguments.Allow(2, {"case_sensitive", "attribute"}));
  const bool with_case = arguments.Truth(0, "case_sensitive", false);
  COPPICE_ASSIGN_OR_RETURN(const Value::Items items, ItemsOf(input, budget));
  Value::Items kept, keys;
  for (const Value& item : items) {
    COPPICE_ASSIGN_OR_RETURN(
        Value key, SortKey(item, GivenArgument(arguments, 1, "attribute"), with_case, budget));
    if (key.is_dict() || (key.is_list() && !key.is_tuple()))
      return BadValue("unique: lists and dictionaries cannot be told apart");
    COPPICE_ASSIGN_OR_RETURN(const size_t found, FindItem(keys, key, budget));
    if (found < keys.size()) continue;
    keys.push_back(std::move(key));
    kept.push_back(item);
  }
  return Iterator(std::move(kept), budget);
}

Result FilterMax(const Value& input, const Arguments& arguments, Budget* budget) {
  return Extreme(input, /*largest=*/true, arguments, budget);
}
Result FilterMin(const Value& input, const Arguments& arguments, Budget* budget) {
  return Extreme(input, /*largest=*/false, arguments, budget);
}

}  // namespace coppice::tokenizer::jinja
