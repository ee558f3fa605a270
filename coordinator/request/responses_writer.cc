#include "coordinator/request/responses_writer.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "coordinator/api/json_text.h"

namespace coppice::coordinator {
namespace {

using Json = nlohmann::ordered_json;

// A part of the output. Its text grows at the end.
struct OutputItem {
  enum class Kind { kReasoning, kMessage, kCall };
  Kind kind = Kind::kMessage;
  std::string id;
  std::string text;  // of a call: its arguments
  std::string call_id, name;
  size_t call = 0;       // index of the call in the choice
  std::string logprobs;  // of a message: entries of the list
};

constexpr absl::string_view kInProgress = "in_progress";

class ResponsesWriter : public AnswerWriter {
 public:
  explicit ResponsesWriter(const GenerateRequest* request) : request_(*request) {}

  std::string Body(const AnswerIdentity& identity, std::vector<Choice> choices,
                   absl::FunctionRef<void(Choice*)> show, const std::vector<double>& beam_mass,
                   const Usage& usage,
                   const std::optional<std::vector<std::string>>& /*rounds*/) override {
    show(&choices[0]);
    quiet_ = true;
    Take(identity, choices[0]);
    if (!beam_mass.empty()) beam_mass_ = beam_mass[0];
    Close(identity);
    return Response(identity, &usage, nullptr);
  }

  Events Delta(const AnswerIdentity& identity, absl::Span<const Choice> choices,
               std::optional<double> beam_mass, const EventUsage&) override {
    Begin(identity);
    if (beam_mass) beam_mass_ = beam_mass;
    Take(identity, choices[0]);
    return std::move(events_);
  }

  Events End(const AnswerIdentity& identity, const Usage& usage) override {
    Begin(identity);
    Close(identity);
    Emit(Incomplete() ? "response.incomplete" : "response.completed",
         ObjectText().AddText("response", Response(identity, &usage, nullptr)));
    return std::move(events_);
  }

  Events Error(const AnswerIdentity& identity, const ApiError& error) override {
    if (begun_) {
      Emit("response.failed",
           ObjectText().AddText("response", Response(identity, nullptr, &error)));
    } else {
      ObjectText members;
      members.Add("code", error.code).Add("message", error.message);
      members.Add("param", error.param.empty() ? Json() : Json(error.param));
      Emit("error", members);
    }
    return std::move(events_);
  }

 private:
  using Kind = OutputItem::Kind;

  bool Incomplete() const { return last_.finish_reason == "length"; }

  void Emit(const char* type, const ObjectText& members) {
    if (quiet_) return;
    ObjectText event;
    event.Add("type", type).AddMembers(members.members()).Add("sequence_number", sequence_++);
    events_.push_back({event.text(), type});
  }

  void Begin(const AnswerIdentity& identity) {
    if (std::exchange(begun_, true)) return;
    for (const char* type : {"response.created", "response.in_progress"})
      Emit(type, ObjectText().AddText("response", Response(identity, nullptr, nullptr)));
  }

  // Where an event of the last item belongs.
  ObjectText Where(bool in_part) const {
    ObjectText where;
    where.Add("item_id", items_.back().id).Add("output_index", items_.size() - 1);
    if (in_part) where.Add("content_index", 0);
    return where;
  }

  static const char* PartType(const OutputItem& item) {
    return item.kind == Kind::kReasoning ? "reasoning_text" : "output_text";
  }

  static std::string PartText(const OutputItem& item, bool begins) {
    ObjectText part;
    part.Add("type", PartType(item)).Add("text", begins ? "" : item.text);
    if (item.kind == Kind::kMessage) {
      part.Add("annotations", Json::array());
      part.AddText("logprobs", absl::StrCat("[", begins ? "" : item.logprobs, "]"));
    }
    return part.text();
  }

  // in_progress: without what it has, as when it was added.
  static std::string ItemText(const OutputItem& item, const char* status) {
    const bool begins = status == kInProgress;
    ObjectText text;
    text.Add("id", item.id);
    if (item.kind == Kind::kCall) {
      text.Add("type", "function_call").Add("status", status);
      text.Add("call_id", item.call_id).Add("name", item.name);
      return text.Add("arguments", begins ? "" : item.text).text();
    }
    const bool message = item.kind == Kind::kMessage;
    text.Add("type", message ? "message" : "reasoning").Add("status", status);
    if (message) text.Add("role", "assistant");
    if (!message) text.Add("summary", Json::array());
    return text.AddText("content", begins ? "[]" : absl::StrCat("[", PartText(item, false), "]"))
        .text();
  }

  void Open(const AnswerIdentity& identity, OutputItem item) {
    if (!items_.empty()) CloseLast("completed");
    const char* prefix = item.kind == Kind::kReasoning ? "rs_"
                         : item.kind == Kind::kMessage ? "msg_"
                                                       : "fc_";
    const absl::string_view own = absl::StripPrefix(identity.id, AnswerIdPrefix(request_.form));
    item.id = absl::StrCat(prefix, own, "_", items_.size());
    items_.push_back(std::move(item));
    Emit("response.output_item.added",
         ObjectText()
             .Add("output_index", items_.size() - 1)
             .AddText("item", ItemText(items_.back(), "in_progress")));
    if (items_.back().kind == Kind::kCall) return;
    Emit("response.content_part.added", Where(true).AddText("part", PartText(items_.back(), true)));
  }

  // Opens an item of this kind, unless the last one is.
  OutputItem& Continue(const AnswerIdentity& identity, Kind kind) {
    if (items_.empty() || items_.back().kind != kind) {
      OutputItem item;
      item.kind = kind;
      Open(identity, std::move(item));
    }
    return items_.back();
  }

  // Tells that the last item ends.
  void CloseLast(const char* status) {
    const OutputItem& item = items_.back();
    if (item.kind == Kind::kCall) {
      Emit("response.function_call_arguments.done",
           Where(false).Add("name", item.name).Add("arguments", item.text));
    } else {
      ObjectText done = Where(true);
      done.Add("text", item.text);
      if (item.kind == Kind::kMessage) done.AddText("logprobs", "[" + item.logprobs + "]");
      Emit(item.kind == Kind::kMessage ? "response.output_text.done"
                                       : "response.reasoning_text.done",
           done);
      Emit("response.content_part.done", Where(true).AddText("part", PartText(item, false)));
    }
    Emit("response.output_item.done", ObjectText()
                                          .Add("output_index", items_.size() - 1)
                                          .AddText("item", ItemText(item, status)));
  }

  void Take(const AnswerIdentity& identity, const Choice& choice) {
    if (!choice.finish_reason.empty()) {
      last_ = choice;
      last_.text = last_.reasoning = "";
      last_.calls.clear();
      last_.logprobs.reset();
    }
    const std::string logprobs = choice.logprobs ? TokenEntries(*choice.logprobs) : "";
    if (!logprobs.empty()) absl::StrAppend(&logprobs_, logprobs_.empty() ? "" : ",", logprobs);
    // What is left of a call that has begun comes before text that stands behind it.
    TakeCalls(identity, choice, /*first=*/false);
    if (!choice.reasoning.empty()) {
      Continue(identity, Kind::kReasoning).text += choice.reasoning;
      Emit("response.reasoning_text.delta", Where(true).Add("delta", choice.reasoning));
    }
    if (!choice.text.empty()) {
      OutputItem& item = Continue(identity, Kind::kMessage);
      item.text += choice.text;
      EmitTextDelta(choice.text);
    }
    TakeCalls(identity, choice, /*first=*/true);
  }

  // Those that begin, or those that have begun.
  void TakeCalls(const AnswerIdentity& identity, const Choice& choice, bool first) {
    for (const CallDelta& call : choice.calls) {
      if (call.first == first) TakeCall(identity, call);
    }
  }

  // With the scores that have come since the last text.
  void EmitTextDelta(const std::string& text) {
    OutputItem& item = items_.back();
    absl::StrAppend(&item.logprobs, item.logprobs.empty() || logprobs_.empty() ? "" : ",",
                    logprobs_);
    Emit("response.output_text.delta",
         Where(true).Add("delta", text).AddText("logprobs", "[" + logprobs_ + "]"));
    logprobs_.clear();
  }

  void TakeCall(const AnswerIdentity& identity, const CallDelta& call) {
    if (items_.empty() || items_.back().kind != Kind::kCall || items_.back().call != call.index) {
      OutputItem item;
      item.kind = Kind::kCall;
      item.call = call.index;
      item.call_id = call.id;
      item.name = call.name;
      Open(identity, std::move(item));
    }
    if (call.arguments.empty()) return;
    items_.back().text += call.arguments;
    Emit("response.function_call_arguments.delta", Where(false).Add("delta", call.arguments));
  }

  // Ends the output. An answer without any text has an empty message.
  void Close(const AnswerIdentity& identity) {
    if (items_.empty()) Continue(identity, Kind::kMessage);
    if (!logprobs_.empty() && items_.back().kind == Kind::kMessage) EmitTextDelta("");
    CloseLast(Incomplete() ? "incomplete" : "completed");
  }

  // usage: of a whole answer. error: the answer has failed. Neither: it goes on.
  std::string Response(const AnswerIdentity& identity, const Usage* usage,
                       const ApiError* error) const {
    const bool cut = usage != nullptr && Incomplete();
    ObjectText json;
    json.Add("id", identity.id).Add("object", "response").Add("created_at", identity.created);
    json.Add("status", error != nullptr   ? "failed"
                       : usage == nullptr ? "in_progress"
                       : cut              ? "incomplete"
                                          : "completed");
    json.Add("error", error == nullptr ? Json() : FailureJson(*error));
    json.Add("incomplete_details", cut ? Json({{"reason", "max_output_tokens"}}) : Json());
    json.Add("model", identity.model).Add("system_fingerprint", identity.fingerprint);
    ListText output;
    for (size_t i = 0; (usage != nullptr || error != nullptr) && i < items_.size(); ++i)
      output.Add(ItemText(items_[i], i + 1 == items_.size() && (error != nullptr || cut)
                                         ? "incomplete"
                                         : "completed"));
    json.AddText("output", output.text()).AddMembers(request_.repeated_fields);
    json.Add("temperature", request_.params.sampling.temperature);
    json.Add("top_p", request_.params.sampling.top_p);
    json.Add("usage", usage == nullptr ? Json() : UsageObject(*usage));
    if (usage == nullptr) return json.text();
    json.Add("stop_reason", last_.stop_string  ? Json(*last_.stop_string)
                            : last_.stop_token ? Json(*last_.stop_token)
                                               : Json());
    json.Add("seed", last_.seed).Add("score", ScorePart(last_.score));
    json.Add("joint_logprob", ScorePart(last_.joint_logprob));
    if (beam_mass_) json.Add("beam_mass", *beam_mass_);
    return json.Add("timings", TimingsPart(*usage)).text();
  }

  static Json FailureJson(const ApiError& error) {
    Json json;
    json["code"] = error.status == 429 ? "rate_limit_exceeded" : "server_error";
    json["message"] = absl::StrCat(error.code, ": ", error.message);
    return json;
  }

  static Json UsageObject(const Usage& usage) {
    Json json;
    json["input_tokens"] = usage.prompt_tokens;
    json["input_tokens_details"]["cached_tokens"] = usage.decoding.cached_tokens;
    json["input_tokens_details"]["cache_write_tokens"] = 0;
    json["output_tokens"] = usage.completion_tokens;
    json["output_tokens_details"]["reasoning_tokens"] = usage.reasoning_tokens.value_or(0);
    json["total_tokens"] = usage.prompt_tokens + usage.completion_tokens;
    if (usage.energy_joules) json["energy_joules"] = *usage.energy_joules;
    json["speculation"] = SpeculationPart(usage);
    return json;
  }

  const GenerateRequest& request_;
  bool quiet_ = false;  // a whole answer: no events
  bool begun_ = false;
  int64_t sequence_ = 0;
  std::vector<OutputItem> items_;
  std::string logprobs_;  // that no text delta has had yet
  Choice last_;           // the end of the choice, without its text
  std::optional<double> beam_mass_;
  Events events_;
};

}  // namespace

std::unique_ptr<AnswerWriter> MakeResponsesWriter(const GenerateRequest* request) {
  return std::make_unique<ResponsesWriter>(request);
}

}  // namespace coppice::coordinator
