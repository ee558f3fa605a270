#include "coordinator/request/messages_writer.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/api/json_text.h"

namespace coppice::coordinator {
namespace {

using Json = nlohmann::ordered_json;

// The member of a tool's input that has what the model wrote, if that is not a JSON object: the
// answer broke off in it.
constexpr char kUnparsed[] = "__unparsed";

// What a tool is called with, as the text of an object.
std::string InputText(const std::string& arguments) {
  if (nlohmann::json::accept(arguments) && !MemberTexts(arguments).empty())
    return CompactText(arguments);
  if (arguments.empty() || CompactText(arguments) == "{}") return "{}";
  return ObjectText().Add(kUnparsed, arguments).text();
}

class MessagesWriter : public AnswerWriter {
 public:
  explicit MessagesWriter(const GenerateRequest* request) : request_(*request) {}
  ErrorForm error_form() const override { return ErrorForm::kAnthropic; }

  std::string Body(const AnswerIdentity& identity, std::vector<Choice> choices,
                   absl::FunctionRef<void(Choice*)> show, const std::vector<double>& beam_mass,
                   const Usage& usage,
                   const std::optional<std::vector<std::string>>& /*rounds*/) override {
    Choice& choice = choices[0];
    show(&choice);
    ListText content;
    if (!choice.reasoning.empty()) content.Add(ThinkingText(choice.reasoning));
    if (!choice.text.empty()) content.Add(TextBlock(choice.text));
    for (const CallDelta& call : choice.calls)
      content.Add(ToolText(call, InputText(call.arguments)));
    last_ = std::move(choice);
    called_ = !last_.calls.empty();
    ObjectText message = Head(identity);
    message.AddText("content", content.text()).AddMembers(StopMembers());
    message.Add("usage", FinalUsage(usage));
    AddOwn(usage, beam_mass.empty() ? std::nullopt : std::optional(beam_mass[0]), &message);
    return message.text();
  }

  Events Delta(const AnswerIdentity& identity, absl::Span<const Choice> choices,
               std::optional<double> beam_mass, const EventUsage&) override {
    Begin(identity);
    const Choice& choice = choices[0];
    if (beam_mass) beam_mass_ = beam_mass;
    // What is left of a call that has begun comes before text that stands behind it.
    EmitCalls(choice, /*first=*/false);
    if (!choice.reasoning.empty()) {
      Open(Block::kThinking, 0, ThinkingText(""));
      EmitDelta("thinking_delta", "thinking", choice.reasoning);
    }
    if (!choice.text.empty()) {
      Open(Block::kText, 0, TextBlock(""));
      EmitDelta("text_delta", "text", choice.text);
    }
    EmitCalls(choice, /*first=*/true);
    if (!choice.finish_reason.empty()) {
      last_ = choice;
      last_.text = last_.reasoning = "";
      last_.calls.clear();
    }
    return std::move(events_);
  }

  Events End(const AnswerIdentity& identity, const Usage& usage) override {
    Begin(identity);
    CloseBlock();
    ObjectText delta, event;
    delta.AddMembers(StopMembers());
    event.AddText("delta", delta.text()).Add("usage", FinalUsage(usage));
    AddOwn(usage, beam_mass_, &event);
    Emit("message_delta", event);
    Emit("message_stop", ObjectText());
    return std::move(events_);
  }

  Events Error(const AnswerIdentity&, const ApiError& error) override {
    return {{ErrorBody(error, ErrorForm::kAnthropic), "error"}};
  }

 private:
  enum class Block { kNone, kThinking, kText, kTool };

  static std::string ThinkingText(const std::string& thinking) {
    return ObjectText()
        .Add("type", "thinking")
        .Add("thinking", thinking)
        .Add("signature", "")
        .text();
  }
  static std::string TextBlock(const std::string& text) {
    return ObjectText().Add("type", "text").Add("text", text).text();
  }
  static std::string ToolText(const CallDelta& call, const std::string& input) {
    ObjectText tool;
    tool.Add("type", "tool_use").Add("id", call.id).Add("name", call.name);
    return tool.AddText("input", input).text();
  }

  static ObjectText Head(const AnswerIdentity& identity) {
    ObjectText head;
    head.Add("id", identity.id).Add("type", "message").Add("role", "assistant");
    return head.Add("model", identity.model);
  }

  const char* StopReason() const {
    if (last_.finish_reason == "length") return "max_tokens";
    if (last_.stop_string) return "stop_sequence";
    return called_ ? "tool_use" : "end_turn";
  }

  std::string StopMembers() const {
    ObjectText stop;
    stop.Add("stop_reason", StopReason());
    stop.Add("stop_sequence", last_.stop_string ? Json(*last_.stop_string) : Json());
    return stop.members();
  }

  // Tokens that came from the cache are not among input_tokens.
  static Json UsageCounts(int64_t prompt, int64_t cached, int64_t completion) {
    Json json;
    json["input_tokens"] = prompt - cached;
    json["cache_creation_input_tokens"] = 0;
    json["cache_read_input_tokens"] = cached;
    json["output_tokens"] = completion;
    return json;
  }
  static Json FinalUsage(const Usage& usage) {
    Json json =
        UsageCounts(usage.prompt_tokens, usage.decoding.cached_tokens, usage.completion_tokens);
    if (usage.energy_joules) json["energy_joules"] = *usage.energy_joules;
    json["speculation"] = SpeculationPart(usage);
    return json;
  }

  // The members that are Coppice's own.
  void AddOwn(const Usage& usage, const std::optional<double>& beam_mass,
              ObjectText* object) const {
    object->Add("seed", last_.seed).Add("score", ScorePart(last_.score));
    object->Add("joint_logprob", ScorePart(last_.joint_logprob));
    if (beam_mass) object->Add("beam_mass", *beam_mass);
    object->Add("timings", TimingsPart(usage));
  }

  void Emit(const char* type, const ObjectText& members) {
    ObjectText event;
    event.Add("type", type).AddMembers(members.members());
    events_.push_back({event.text(), type});
  }

  void Begin(const AnswerIdentity& identity) {
    if (std::exchange(begun_, true)) return;
    int64_t prompt = 0;
    for (const auto& one : request_.prompts) prompt += static_cast<int64_t>(one.size());
    ObjectText message = Head(identity);
    message.Add("content", Json::array()).Add("stop_reason", Json()).Add("stop_sequence", Json());
    message.Add("usage", UsageCounts(prompt, 0, 0));
    Emit("message_start", ObjectText().AddText("message", message.text()));
    Emit("ping", ObjectText());
  }

  // Begins a block, unless it is open. Blocks come one after the other.
  void Open(Block block, size_t call, const std::string& content) {
    if (open_ == block && open_call_ == call) return;
    CloseBlock();
    open_ = block;
    open_call_ = call;
    Emit("content_block_start",
         ObjectText().Add("index", index_).AddText("content_block", content));
  }

  void CloseBlock() {
    if (open_ == Block::kNone) return;
    open_ = Block::kNone;
    Emit("content_block_stop", ObjectText().Add("index", index_++));
  }

  // Those that begin, or those that have begun.
  void EmitCalls(const Choice& choice, bool first) {
    for (const CallDelta& call : choice.calls) {
      if (call.first != first) continue;
      called_ = true;
      Open(Block::kTool, call.index, ToolText(call, "{}"));
      if (!call.arguments.empty()) EmitDelta("input_json_delta", "partial_json", call.arguments);
    }
  }

  void EmitDelta(const char* type, const char* member, const std::string& text) {
    ObjectText delta;
    delta.Add("type", type).Add(member, text);
    Emit("content_block_delta", ObjectText().Add("index", index_).AddText("delta", delta.text()));
  }

  const GenerateRequest& request_;
  bool begun_ = false, called_ = false;
  Block open_ = Block::kNone;
  size_t open_call_ = 0;  // of a tool: index of the call
  int64_t index_ = 0;     // of the open block, else of the next
  Choice last_;           // the end of the choice, without its text
  std::optional<double> beam_mass_;
  Events events_;
};

}  // namespace

std::unique_ptr<AnswerWriter> MakeMessagesWriter(const GenerateRequest* request) {
  return std::make_unique<MessagesWriter>(request);
}

}  // namespace coppice::coordinator
