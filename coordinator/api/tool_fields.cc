#include "coordinator/api/tool_fields.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "coordinator/api/ordered_text.h"

namespace coppice::coordinator {
namespace {

using nlohmann::json;
using Ordered = nlohmann::ordered_json;

constexpr size_t kMostTools = 512;
constexpr size_t kMostNameBytes = 128;
constexpr size_t kMostCalls = 512;  // of one message
constexpr int kMostArgumentsDepth = 64;
constexpr char kNoArguments[] = R"({"type":"object","properties":{}})";

// Names stand in the texts of calls without quotes or escapes.
bool IsToolName(absl::string_view name) {
  return !name.empty() && name.size() <= kMostNameBytes &&
         std::all_of(name.begin(), name.end(), [](char c) {
           const auto byte = static_cast<unsigned char>(c);
           return absl::ascii_isalnum(byte) || byte >= 0x80 ||
                  absl::string_view("_-.:/").find(c) != absl::string_view::npos;
         });
}

// The function of an object of type "function"; nullptr with an error in *fields if there is none.
const json* Function(const json& object, const std::string& path, JsonFields* fields) {
  const auto refuse = [&](const char* code, const std::string& at, const std::string& what) {
    fields->set_error({400, code, absl::StrCat(at, " ", what), at});
    return nullptr;
  };
  if (!object.is_object()) return refuse("invalid_type", path, "must be an object");
  const auto type = object.find("type");
  if (type != object.end() && !type->is_null() && *type != "function") {
    return refuse("unsupported_field", absl::StrCat(path, ".type"),
                  "must be function: no other tools are supported");
  }
  const auto function = object.find("function");
  const std::string at = absl::StrCat(path, ".function");
  if (function == object.end() || function->is_null())
    return refuse("missing_field", at, "is required");
  if (!function->is_object()) return refuse("invalid_type", at, "must be an object");
  return &*function;
}

}  // namespace

void ToolFields::Read(JsonFields* fields) {
  parallel_ = fields->Bool({"parallel_tool_calls"}).value_or(true);
  const json* list = fields->FindValue({"tools"});
  const json* choice = fields->Find({"tool_choice"});
  if (list == nullptr) {
    if (choice != nullptr && *choice != "none" && *choice != "auto")
      fields->Fail(kUnsupportedCombination, "tool_choice", "needs tools");
    return;
  }
  if (!list->is_array()) return fields->Fail("invalid_type", "tools", "must be a list of tools");
  if (list->size() > kMostTools) {
    return fields->Fail("invalid_value", "tools",
                        absl::StrCat("has at most ", kMostTools, " tools, got ", list->size()));
  }
  if (!FitsInOrder(*list)) {
    return fields->Fail(
        "invalid_value", "tools",
        absl::StrCat("has an object of more than ", kMostOrderedMembers, " members"));
  }
  shown_ = Ordered::parse(OrderedText(body_, {"tools"}));
  for (size_t i = 0; i < shown_.size() && !fields->error(); ++i)
    ReadTool(shown_[i], absl::StrCat("tools[", i, "]"), fields);
  if (!fields->error() && choice != nullptr) ReadChoice(*choice, fields);
}

void ToolFields::ReadTool(const Ordered& tool, const std::string& path, JsonFields* fields) {
  const json unordered = tool;
  const json* function = Function(unordered, path, fields);
  if (function == nullptr) return;
  JsonFields inner(*function, absl::StrCat(path, ".function"), fields->ignored());
  const std::optional<std::string> name = inner.String({"name"});
  if (!name) {
    inner.Fail("missing_field", "name", "is required");
  } else if (!IsToolName(*name)) {
    inner.Fail("invalid_value", "name",
               absl::StrCat("must have 1 to ", kMostNameBytes,
                            " letters, digits and characters of _-.:/"));
  } else if (std::any_of(tools_.begin(), tools_.end(),
                         [&name](const Tool& other) { return other.name == *name; })) {
    inner.Fail("invalid_value", "name", absl::StrCat("is that of another tool: ", *name));
  }
  inner.String({"description"});
  inner.Bool({"strict"});  // calls have the schema in any case
  const json* parameters = inner.Object("parameters");
  inner.IgnoreUnknown();
  if (inner.error()) return fields->set_error(*inner.error());
  tools_.push_back(
      {*name, parameters == nullptr ? kNoArguments : tool["function"]["parameters"].dump()});
}

void ToolFields::ReadChoice(const json& choice, JsonFields* fields) {
  constexpr char kName[] = "tool_choice";
  if (choice == "none") return KeepNone();
  if (choice == "auto") return;
  if (choice == "required" || choice == "any") {
    choice_ = ToolChoice::kRequired;
    return;
  }
  if (!choice.is_object()) {
    return fields->Fail("invalid_value", kName,
                        "must be none, auto, required or an object that names a function");
  }
  if (choice.value("type", json()) == "allowed_tools") return ReadAllowed(choice, fields);
  const json* function = Function(choice, kName, fields);
  if (function == nullptr) return;
  JsonFields inner(*function, absl::StrCat(kName, ".function"), fields->ignored());
  const std::optional<std::string> name = inner.String({"name"});
  if (!name) inner.Fail("missing_field", "name", "is required");
  inner.IgnoreUnknown();
  if (inner.error()) return fields->set_error(*inner.error());
  choice_ = ToolChoice::kNamed;
  parallel_ = false;
  Keep({*name}, fields);
}

// {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [...]}}
void ToolFields::ReadAllowed(const json& choice, JsonFields* fields) {
  JsonFields outer(choice, "tool_choice", fields->ignored());
  outer.Ignore({"type"});
  const json* allowed = outer.Object("allowed_tools");
  if (allowed == nullptr) {
    outer.Fail("missing_field", "allowed_tools", "is required");
    return fields->set_error(*outer.error());
  }
  JsonFields inner(*allowed, "tool_choice.allowed_tools", fields->ignored());
  const std::string mode = inner.String({"mode"}).value_or("auto");
  const json* list = inner.Find({"tools"});
  if (mode != "auto" && mode != "required")
    inner.Fail("invalid_value", "mode", "must be auto or required");
  if (list == nullptr || !list->is_array())
    inner.Fail("invalid_type", "tools", "must be a list of tools");
  if (inner.error()) return fields->set_error(*inner.error());
  std::vector<std::string> names;
  for (size_t i = 0; i < list->size() && !fields->error(); ++i) {
    const json* function =
        Function((*list)[i], absl::StrCat("tool_choice.allowed_tools.tools[", i, "]"), fields);
    if (function != nullptr && function->value("name", json()).is_string())
      names.push_back((*function)["name"]);
  }
  if (mode == "required") choice_ = ToolChoice::kRequired;
  if (!fields->error()) Keep(names, fields);
}

void ToolFields::Keep(const std::vector<std::string>& names, JsonFields* fields) {
  std::vector<Tool> kept;
  for (Tool& tool : tools_) {
    if (std::find(names.begin(), names.end(), tool.name) != names.end())
      kept.push_back(std::move(tool));
  }
  if (kept.size() < names.size() || kept.empty())
    fields->Fail("invalid_value", "tool_choice", "names a function that is not in tools");
  tools_ = std::move(kept);
}

void ToolFields::KeepNone() {
  tools_.clear();
  shown_ = Ordered();
}

Ordered ReadToolCalls(const json& calls, const std::string& path, JsonFields* fields) {
  Ordered made = Ordered::array();
  if (!calls.is_array() || calls.size() > kMostCalls) {
    fields->Fail("invalid_type", "tool_calls",
                 absl::StrCat("must be a list of at most ", kMostCalls, " calls"));
    return made;
  }
  for (size_t i = 0; i < calls.size() && !fields->error(); ++i) {
    const std::string at = absl::StrCat(path, ".tool_calls[", i, "]");
    const json* function = Function(calls[i], at, fields);
    if (function == nullptr) break;
    JsonFields inner(*function, absl::StrCat(at, ".function"), fields->ignored());
    const std::optional<std::string> name = inner.String({"name"});
    if (!name) inner.Fail("missing_field", "name", "is required");
    const json* arguments = inner.FindGiven({"arguments"});
    Ordered shown = Ordered::object();
    if (arguments != nullptr && arguments->is_string()) {
      const auto& text = arguments->get_ref<const std::string&>();
      json read;
      // A call that broke off has the text that it has, and so has one that is nested too deep.
      if (ParseJsonObject(text, kMostArgumentsDepth, &read)) {
        if (!absl::StripAsciiWhitespace(text).empty()) shown = text;
      } else if (!FitsInOrder(read)) {
        inner.Fail("invalid_value", "arguments",
                   absl::StrCat("has an object of more than ", kMostOrderedMembers, " members"));
      } else {
        shown = Ordered::parse(text);
      }
    } else if (arguments != nullptr && arguments->is_object()) {
      shown = *arguments;
    } else if (arguments != nullptr) {
      inner.Fail("invalid_type", "arguments", "must be the text of a JSON object");
    }
    inner.IgnoreUnknown();
    if (inner.error()) {
      fields->set_error(*inner.error());
      break;
    }
    Ordered call;
    const auto id = calls[i].find("id");
    if (id != calls[i].end() && id->is_string()) call["id"] = *id;
    call["type"] = "function";
    call["function"]["name"] = *name;
    call["function"]["arguments"] = std::move(shown);
    made.push_back(std::move(call));
  }
  return made;
}

}  // namespace coppice::coordinator
