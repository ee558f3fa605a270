#include "coordinator/request/request_log.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "decoding/method.h"

namespace coppice::coordinator {

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
  std::set<std::string> replicas;
  for (const Request::Sequence& sequence : request.sequences()) {
    if (!sequence.replica.empty()) replicas.insert(sequence.replica);
  }
  std::string where, reasons;
  for (const std::string& replica : replicas)
    absl::StrAppend(&where, where.empty() ? "" : ",", replica);
  for (const std::string& reason : request.finish_reasons())
    absl::StrAppend(&reasons, reasons.empty() ? "" : ",", reason);
  size_t prompt_tokens = 0;
  for (const auto& prompt : generate.prompts) prompt_tokens += prompt.size();
  const Usage& usage = request.usage();
  const int status = request.error()                    ? request.error()->status
                     : request.finish_reasons().empty() ? 499
                                                        : 200;
  spdlog::info(
      "request id={} key={} route={} status={} code={} decoding={} method={} W={} n={} "
      "prompt_tokens={} "
      "completion_tokens={} finish={} queue_ms={:.1f} first_token_ms={:.1f} total_ms={:.1f} "
      "block_efficiency={:.2f} "
      "replica={}{}{}",
      request.origin().request_id, request.origin().caller.empty() ? "-" : request.origin().caller,
      generate.chat ? "/v1/chat/completions" : "/v1/completions", status,
      request.error() ? request.error()->code : "-",
      std::string(sampling::DecodingKindName(generate.params.kind)),
      std::string(decoding::MethodName(generate.params)), generate.params.beam_width, generate.n,
      prompt_tokens, usage.completion_tokens, reasons.empty() ? "-" : reasons,
      usage.decoding.queue_ms, usage.first_token_ms, (now_s - request.origin().arrival_s) * 1e3,
      usage.decoding.block_efficiency().value_or(0), where.empty() ? "-" : where,
      generate.ignored.empty() ? "" : " ignored=", generate.ignored.Text());
}

void LogRefusal(const HttpRequest& request, const ApiError& error, bool enabled) {
  if (!enabled) return;
  spdlog::info("request id={} key={} route={} status={} code={}", request.request_id,
               request.caller.empty() ? "-" : request.caller, request.path, error.status,
               error.code);
}

}  // namespace coppice::coordinator
