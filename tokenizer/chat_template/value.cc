#include "tokenizer/chat_template/value.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "tokenizer/chat_template/python_text.h"
#include "tokenizer/chat_template/syntax.h"

namespace coppice::tokenizer::jinja {
namespace {

int DeepestOf(const Value::Items& items) {
  int deepest = 0;
  for (const Value& item : items) deepest = std::max(deepest, item.depth());
  return deepest;
}

bool AppendJoinedReprs(const Value::Items& items, std::string* out) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out->append(", ");
    if (!AppendRepr(items[i], out)) return false;
  }
  return true;
}

}  // namespace

Value Value::Undefined(std::string what) {
  Value value;
  value.data_ = Missing{std::make_shared<const std::string>(std::move(what))};
  return value;
}

Value Value::String(std::string text) {
  Value value;
  value.data_ = std::make_shared<const std::string>(std::move(text));
  return value;
}

Value Value::Markup(std::string text) {
  Value value = String(std::move(text));
  value.markup_ = true;
  return value;
}

Value Value::MakeList(Items items, bool tuple) {
  auto list = std::make_shared<List>();
  list->depth = 1 + DeepestOf(items);
  list->items = std::move(items);
  list->tuple = tuple;
  Value value;
  value.data_ = std::shared_ptr<const List>(std::move(list));
  return value;
}

Value Value::MakeGroup(Value grouper, Value group) {
  auto list = std::make_shared<List>();
  list->items = {std::move(grouper), std::move(group)};
  list->depth = 1 + DeepestOf(list->items);
  list->tuple = list->group = true;
  Value value;
  value.data_ = std::shared_ptr<const List>(std::move(list));
  return value;
}

Value Value::MakeIterable(IterableKind kind, Items items, std::string repr) {
  auto iterable = std::make_shared<Iterable>();
  iterable->kind = kind;
  iterable->depth = 1 + DeepestOf(items);
  iterable->items = std::move(items);
  iterable->repr = std::move(repr);
  Value value;
  value.data_ = std::move(iterable);
  return value;
}

Value Value::MakeDict(Entries entries) {
  auto dict = std::make_shared<Dict>();
  for (const auto& entry : entries)
    dict->depth = std::max({dict->depth, 1 + entry.first.depth(), 1 + entry.second.depth()});
  dict->entries = std::move(entries);
  Value value;
  value.data_ = std::shared_ptr<const Dict>(std::move(dict));
  return value;
}

Value Value::Namespace(std::shared_ptr<Entries> entries) {
  Value value;
  value.data_ = std::move(entries);
  return value;
}

Value Value::Macro(const Statement* macro, std::shared_ptr<void> scope) {
  Value value;
  value.data_ = std::make_shared<const Closure>(Closure{macro, std::move(scope)});
  return value;
}

Value Value::Function(const char* name) {
  Value value;
  value.data_ = Function_{name};
  return value;
}

Value Value::MakeLoop(std::shared_ptr<Loop> loop) {
  loop->depth = 1 + DeepestOf(loop->items);
  Value value;
  value.data_ = std::move(loop);
  return value;
}

Value Value::MakeMethod(Value self, std::string name) {
  Value value;
  value.data_ = std::make_shared<const Method>(Method{std::move(self), std::move(name)});
  return value;
}

Value Value::FromJson(const nlohmann::ordered_json& json) {
  switch (json.type()) {
    case nlohmann::ordered_json::value_t::boolean:
      return Value(json.get<bool>());
    case nlohmann::ordered_json::value_t::number_integer:
      return Value(json.get<int64_t>());
    case nlohmann::ordered_json::value_t::number_unsigned:
      if (json.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return Value(json.get<double>());
      return Value(json.get<int64_t>());
    case nlohmann::ordered_json::value_t::number_float:
      return Value(json.get<double>());
    case nlohmann::ordered_json::value_t::string:
      return String(json.get<std::string>());
    case nlohmann::ordered_json::value_t::array: {
      Items items;
      for (const auto& entry : json) items.push_back(FromJson(entry));
      return MakeList(std::move(items));
    }
    case nlohmann::ordered_json::value_t::object: {
      Entries entries;
      for (const auto& item : json.items())
        entries.emplace_back(String(item.key()), FromJson(item.value()));
      return MakeDict(std::move(entries));
    }
    default:
      return Value(nullptr);
  }
}

bool Value::is_callable() const {
  return is_undefined() || macro() || function() || method() || (loop() && loop()->recursive);
}

bool Value::is_iterator() const {
  return is_iterable() && iterable()->kind == IterableKind::kIterator;
}

bool Value::is_range() const { return is_iterable() && iterable()->kind == IterableKind::kRange; }

const Value::Items& Value::items() const {
  if (const Iterable* found = iterable()) return found->items;
  return std::get<std::shared_ptr<const List>>(data_)->items;
}

bool Value::is_tuple() const {
  return is_list() && std::get<std::shared_ptr<const List>>(data_)->tuple;
}

bool Value::is_group() const {
  return is_list() && std::get<std::shared_ptr<const List>>(data_)->group;
}

const Value::Entries& Value::entries() const {
  if (is_namespace()) return *std::get<std::shared_ptr<Entries>>(data_);
  return std::get<std::shared_ptr<const Dict>>(data_)->entries;
}

Value::Iterable* Value::iterable() const {
  const auto* found = std::get_if<std::shared_ptr<Iterable>>(&data_);
  return found == nullptr ? nullptr : found->get();
}

const Value::Closure* Value::macro() const {
  const auto* found = std::get_if<std::shared_ptr<const Closure>>(&data_);
  return found == nullptr ? nullptr : found->get();
}

const char* Value::function() const {
  const auto* found = std::get_if<Function_>(&data_);
  return found == nullptr ? nullptr : found->name;
}

Value::Loop* Value::loop() const {
  const auto* found = std::get_if<std::shared_ptr<Loop>>(&data_);
  return found == nullptr ? nullptr : found->get();
}

const Value::Method* Value::method() const {
  const auto* found = std::get_if<std::shared_ptr<const Method>>(&data_);
  return found == nullptr ? nullptr : found->get();
}

std::string Value::why_undefined() const {
  const auto* missing = std::get_if<Missing>(&data_);
  if (missing == nullptr) return "";
  return missing->what == nullptr ? "the value is undefined" : *missing->what;
}

int Value::depth() const {
  if (is_list()) return std::get<std::shared_ptr<const List>>(data_)->depth;
  if (is_dict()) return std::get<std::shared_ptr<const Dict>>(data_)->depth;
  if (is_iterable()) return iterable()->depth;
  if (loop() != nullptr) return loop()->depth;
  if (method() != nullptr) return 1 + method()->self.depth();
  return is_namespace() ? 1 : 0;
}

const Value* Value::Find(absl::string_view key) const {
  if (!is_dict() && !is_namespace()) return nullptr;
  for (const auto& entry : entries()) {
    if (entry.first.is_string() && entry.first.string() == key) return &entry.second;
  }
  return nullptr;
}

const Value* Value::Find(const Value& key) const {
  if (key.is_string()) return Find(absl::string_view(key.string()));
  if (!is_dict()) return nullptr;
  for (const auto& entry : entries()) {
    if (entry.first == key) return &entry.second;
  }
  return nullptr;
}

void Value::SetEntry(Entries* entries, Value key, Value value) {
  const auto found = std::find_if(entries->begin(), entries->end(),
                                  [&](const auto& entry) { return entry.first == key; });
  if (found == entries->end()) {
    entries->emplace_back(std::move(key), std::move(value));
  } else {
    found->second = std::move(value);
  }
}

bool Value::Truth() const {
  if (is_undefined() || is_none()) return false;
  if (is_float()) return number() != 0;
  if (is_integer()) return integer() != 0;
  if (is_string()) return !string().empty();
  if (is_list()) return !items().empty();
  if (is_dict()) return !entries().empty();
  if (is_iterable() && !is_iterator()) return !items().empty();
  return true;
}

bool Value::IsSameAs(const Value& other) const {
  if (data_.index() != other.data_.index()) return false;
  if (is_list()) return &items() == &other.items();
  if (is_dict()) return &entries() == &other.entries();
  return *this == other;
}

std::string Value::TypeName() const {
  if (is_undefined()) return "undefined";
  if (is_none()) return "none";
  if (is_bool()) return "a boolean";
  if (is_int()) return "an integer";
  if (is_float()) return "a float";
  if (is_string()) return "a string";
  if (is_list()) return is_tuple() ? "a tuple" : "a list";
  if (is_dict()) return "a dictionary";
  if (is_iterable()) return is_iterator() ? "an iterator" : is_range() ? "a range" : "a view";
  if (is_namespace()) return "a namespace";
  return loop() != nullptr ? "a loop" : "a function";
}

bool operator==(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integer() && b.is_integer()) return a.integer() == b.integer();
    return a.number() == b.number();
  }
  if (a.data_.index() != b.data_.index()) return false;
  if (a.is_undefined() || a.is_none()) return true;
  if (a.is_string()) return a.string() == b.string();
  if (a.is_list() || a.is_dict()) return a.IsSameAs(b);
  if (a.is_iterable()) return a.iterable() == b.iterable();
  if (a.is_namespace()) return &a.mutable_entries() == &b.mutable_entries();
  if (a.loop() != nullptr) return a.loop() == b.loop();
  if (a.macro() != nullptr) return a.macro() == b.macro();
  return a.function() != nullptr && a.function() == b.function();
}

bool AppendStr(const Value& value, std::string* out) {
  if (value.is_undefined()) return true;
  if (!value.is_string()) return AppendRepr(value, out);
  out->append(value.string());
  return true;
}

bool AppendRepr(const Value& value, std::string* out) {
  if (value.is_undefined()) {
    out->append("Undefined");
  } else if (value.is_none()) {
    out->append("None");
  } else if (value.is_bool()) {
    out->append(value.integer() != 0 ? "True" : "False");
  } else if (value.is_int()) {
    absl::StrAppend(out, value.integer());
  } else if (value.is_float()) {
    out->append(FloatRepr(value.number()));
  } else if (value.is_markup()) {
    out->append("Markup(").append(StringRepr(value.string())).append(")");
  } else if (value.is_string()) {
    out->append(StringRepr(value.string()));
  } else if (value.is_list()) {
    out->append(value.is_tuple() ? "(" : "[");
    if (!AppendJoinedReprs(value.items(), out)) return false;
    out->append(!value.is_tuple() ? "]" : value.items().size() == 1 ? ",)" : ")");
  } else if (value.is_dict()) {
    out->append("{");
    bool first = true;
    for (const auto& entry : value.entries()) {
      if (!first) out->append(", ");
      first = false;
      if (!AppendRepr(entry.first, out)) return false;
      out->append(": ");
      if (!AppendRepr(entry.second, out)) return false;
    }
    out->append("}");
  } else if (value.is_range()) {
    out->append(value.iterable()->repr);
  } else if (value.is_iterable() && !value.is_iterator()) {
    out->append(value.iterable()->repr).append("([");
    if (!AppendJoinedReprs(value.items(), out)) return false;
    out->append("])");
  } else if (const Value::Closure* closure = value.macro()) {
    absl::StrAppend(out, "<Macro ", StringRepr(closure->macro->text), ">");
  } else if (const Value::Loop* loop = value.loop()) {
    absl::StrAppend(out, "<LoopContext ", loop->index + 1, "/", loop->items.size(), ">");
  } else {
    return false;
  }
  return true;
}

}  // namespace coppice::tokenizer::jinja
