#include "coordinator/request/request_log.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/printable_name.h"
#include "coordinator/api/endpoints.h"
#include "decoding/method.h"

namespace coppice::coordinator {
namespace {

// What every line about a request begins with. The parameter of an error may be a name that the
// client invented.
std::vector<LogField> Head(const std::string& id, const TraceContext& trace,
                           const std::string& caller, const std::string& route, int status,
                           const ApiError& error) {
  return {{"id", id},
          {"trace_id", TextOrNone(trace.trace_id)},
          {"key", TextOrNone(caller)},
          {"route", route},
          {"status", int64_t{status}},
          {"code", TextOrNone(error.code)},
          {"param", TextOrNone(PrintableName(error.param))}};
}

// Of many choices each reason once, with the number of choices that it has.
std::vector<std::string> InShort(const std::vector<std::string>& reasons) {
  constexpr size_t kMostListed = 8;
  if (reasons.size() <= kMostListed) return reasons;
  std::map<std::string, int> counts;
  for (const std::string& reason : reasons) ++counts[reason];
  std::vector<std::string> listed;
  for (const auto& [reason, count] : counts) listed.push_back(absl::StrCat(reason, "*", count));
  return listed;
}

}  // namespace

std::string FinishedReason(const Request& request) {
  if (request.error()) {
    const bool late = request.error()->status == 504 || request.error()->code == "queue_timeout";
    return late ? "timeout" : "error";
  }
  const std::vector<std::string>& reasons = request.finish_reasons();
  if (reasons.empty()) return "abort";
  return std::count(reasons.begin(), reasons.end(), "length") > 0 ? "length" : "stop";
}

void LogRequest(const Request& request, double now_s, bool enabled) {
  if (!enabled) return;
  const GenerateRequest& generate = request.generate();
  const Request::Origin& origin = request.origin();
  std::set<std::string> replicas;
  for (const Request::Sequence& sequence : request.sequences()) {
    if (!sequence.replica.empty()) replicas.insert(sequence.replica);
  }
  size_t prompt_tokens = 0;
  for (const auto& prompt : generate.prompts) prompt_tokens += prompt.size();
  const Usage& usage = request.usage();
  const bool answered = !request.error() && !request.finish_reasons().empty();
  const int status = request.error() ? request.error()->status : answered ? 200 : 499;
  const auto ms = [&](double since_s) -> LogValue {
    if (since_s < 0) return {};
    return (since_s - origin.arrival_s) * 1e3;
  };
  std::vector<LogField> fields =
      Head(origin.request_id, origin.trace, origin.caller, RouteOf(generate.form), status,
           request.error().value_or(ApiError()));
  const std::optional<double> efficiency = usage.decoding.block_efficiency();
  std::vector<LogField> more = {
      {"model", origin.model},
      {"decoding", std::string(sampling::DecodingKindName(generate.params.kind))},
      {"method", std::string(decoding::MethodName(generate.params))},
      {"W", int64_t{generate.params.beam_width}},
      {"n", int64_t{generate.n}},
      {"prompt_tokens", static_cast<int64_t>(prompt_tokens)},
      {"completion_tokens", answered ? usage.completion_tokens : request.generated_tokens()},
      {"finish", InShort(request.finish_reasons())},
      {"queue_ms", answered ? LogValue(usage.decoding.queue_ms) : ms(request.started_s())},
      {"first_token_ms", ms(request.first_token_s())},
      {"total_ms", ms(now_s)},
      {"block_efficiency", efficiency ? LogValue(*efficiency) : LogValue()},
      {"replica", std::vector<std::string>(replicas.begin(), replicas.end())}};
  if (!generate.ignored.empty()) more.push_back({"ignored", generate.ignored.names()});
  std::move(more.begin(), more.end(), std::back_inserter(fields));
  LogFields(spdlog::level::info, "request", fields);
}

void LogRefusal(const HttpRequest& request, const ApiError& error, bool enabled) {
  if (!enabled) return;
  LogFields(
      spdlog::level::info, "request",
      Head(request.request_id, request.trace, request.caller, request.path, error.status, error));
}

}  // namespace coppice::coordinator
