#include "coordinator/api/client_fields.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace coppice::coordinator {
namespace {

const FieldPlaces& PlacesOf(AnswerForm form) {
  static const FieldPlaces none;
  static const FieldPlaces response = {
      {"messages", "input"},
      {"max_tokens", "max_output_tokens"},
      {"response_format", "text.format"},
      {"response_format.json_schema", "text.format"},
      {"reasoning_effort", "reasoning.effort"},
  };
  static const FieldPlaces message = {
      {"stop", "stop_sequences"},
      {"response_format", "output_config.format"},
      {"response_format.json_schema", "output_config.format"},
      {"reasoning_effort", "output_config.effort"},
      {"parallel_tool_calls", "tool_choice.disable_parallel_tool_use"},
  };
  return form == AnswerForm::kResponse ? response : form == AnswerForm::kMessage ? message : none;
}

// Whether `beginning` is the whole path, or ends where a part of it does.
bool Begins(absl::string_view path, absl::string_view beginning) {
  if (!absl::StartsWith(path, beginning)) return false;
  return path.size() == beginning.size() || path[beginning.size()] == '.' ||
         path[beginning.size()] == '[';
}

}  // namespace

std::string ClientPath(const FieldPlaces& places, absl::string_view path) {
  const std::pair<std::string, std::string>* best = nullptr;
  for (const auto& place : places) {
    if (Begins(path, place.first) && (best == nullptr || place.first.size() > best->first.size()))
      best = &place;
  }
  if (best == nullptr) return std::string(path);
  return absl::StrCat(best->second, path.substr(best->first.size()));
}

std::string ClientPath(AnswerForm form, absl::string_view path) {
  return ClientPath(PlacesOf(form), path);
}

ApiError WithPath(std::string path, ApiError error) {
  if (!error.param.empty() && absl::StartsWith(error.message, absl::StrCat(error.param, " ")))
    error.message.replace(0, error.param.size(), path);
  error.param = std::move(path);
  return error;
}

ApiError ForClient(AnswerForm form, ApiError error) {
  std::string path = ClientPath(form, error.param);
  return WithPath(std::move(path), std::move(error));
}

}  // namespace coppice::coordinator
