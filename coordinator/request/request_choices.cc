// The request's choices: the parts of its sequences that an answer or an event shows.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "coordinator/request/request.h"
#include "coordinator/request/token_logprobs.h"

namespace coppice::coordinator {
namespace {

// Approximate bytes of JSON for one score of a token.
constexpr size_t kScoreBytes = 48;

}  // namespace

// The choices are distinct, so that their probabilities add up.
double Request::MassOf(const std::vector<Choice>& choices) {
  double mass = 0;
  for (const Choice& choice : choices) mass += choice.mass;
  return mass;
}

const ChoiceText& Request::TextOf(const Sequence& sequence, size_t hypothesis) {
  return hypothesis == 0 ? *sequence.text : sequence.others[hypothesis - 1];
}

// nullopt: the tokens are no item.
std::optional<ShownItem> Request::ItemOf(const std::vector<TokenId>& tokens) const {
  const AskedCatalogue& catalogue = request_.catalogue;
  std::vector<TokenId> ids = catalogue.prefix;
  ids.insert(ids.end(), tokens.begin(), tokens.end());
  if (!ids.empty() && decoding::IsStopId(request_.params.stop_ids, ids.back())) ids.pop_back();
  const int64_t item = catalogue.content->ItemOf(ids);
  if (item < 0) return std::nullopt;
  return ShownItem{catalogue.content->Id(item), catalogue.content->Name(item)};
}

// The choice without its text.
Choice Request::MakeChoice(const Sequence& sequence, size_t number) const {
  const decoding::Hypothesis* hypothesis =
      sequence.hypotheses.empty() ? nullptr : &sequence.hypotheses[number];
  const ChoiceText& text = TextOf(sequence, number);
  Choice choice;
  choice.sequence = &sequence - sequences_.data();
  choice.hypothesis = number;
  choice.index = sequence.prompt * request_.n + sequence.sample;
  choice.seed = static_cast<int64_t>(request_.params.seed + static_cast<uint64_t>(sequence.sample));
  choice.num_tokens = text.tokens().size();
  choice.reasoning_tokens = text.reasoning_tokens();
  if (text.stop()) {
    choice.finish_reason = "stop";
    choice.stop_string = text.stop();
  } else {
    const bool calls = text.parts() != nullptr && !text.parts()->calls.empty();
    choice.finish_reason = !hypothesis->finished ? "length" : calls ? "tool_calls" : "stop";
    if (hypothesis->finished && !hypothesis->tokens.empty() &&
        !absl::c_linear_search(request_.eos_ids, hypothesis->tokens.back()))
      choice.stop_token = hypothesis->tokens.back();
  }
  if (request_.catalogue.content != nullptr) choice.item = ItemOf(text.tokens());
  if (hypothesis != nullptr) {
    choice.score = hypothesis->score;
    choice.joint_logprob = hypothesis->joint_log_probability;
    if (hypothesis->finished) choice.mass = std::exp(hypothesis->joint_log_probability);
  }
  return choice;
}

// All choices of a prompt, in the order of the answer, without texts.
std::vector<Choice> Request::PromptChoices(int prompt) const {
  std::vector<Choice> choices;
  for (const Sequence& sequence : sequences_) {
    if (sequence.prompt != prompt) continue;
    for (size_t i = 0; i <= sequence.others.size(); ++i) choices.push_back(MakeChoice(sequence, i));
  }
  for (int i = 1; request_.score_only && !request_.beams() && i < request_.n; ++i) {
    choices.push_back(choices[0]);
    choices.back().index += i;
    choices.back().seed += i;
  }
  if (request_.samples > request_.n) {
    std::stable_sort(choices.begin(), choices.end(), [](const Choice& a, const Choice& b) {
      return a.score.value_or(0) > b.score.value_or(0);
    });
    choices.resize(request_.n);
  }
  for (size_t i = 0; i < choices.size(); ++i) {
    if (request_.ranked()) choices[i].index = prompt * request_.n + static_cast<int>(i);
  }
  return choices;
}

// Approximate bytes of JSON that show the choice.
size_t Request::ShownBytes(const Choice& choice) const {
  const Sequence& sequence = sequences_[choice.sequence];
  const size_t tokens =
      choice.num_tokens +
      (request_.echo || request_.return_token_ids ? request_.prompts[sequence.prompt].size() : 0);
  const size_t scores = request_.logprobs ? tokens * (*request_.logprobs + 1) : 0;
  return TextSize(sequence, TextOf(sequence, choice.hypothesis)) + tokens + scores * kScoreBytes;
}

size_t Request::TextSize(const Sequence& sequence, const ChoiceText& text) const {
  const ChoiceText* echoed = Echoed(sequence.prompt);
  return (echoed == nullptr ? 0 : echoed->text().size()) + text.text().size();
}

Request::Sent Request::All(const Sequence& sequence) const {
  Sent all;
  all.text = TextSize(sequence, *sequence.text);
  all.tokens = sequence.text->settled_tokens();
  all.any = true;
  const MessageParts* parts = sequence.text->parts();
  if (parts == nullptr) return all;
  all.text = parts->content.size();
  all.reasoning = request_.shows_reasoning ? parts->reasoning.size() : 0;
  for (const ToolCall& call : parts->calls) all.arguments.push_back(call.arguments.size());
  return all;
}

// Returns what events of this sequence had sent, and records that all of it is sent now.
Request::Sent Request::TakeSent(const Sequence& sequence) {
  return std::exchange(sent_[&sequence - sequences_.data()], All(sequence));
}

void Request::ShowParts(const MessageParts& parts, const Sent& sent, Choice* choice) const {
  choice->text = parts.content.substr(sent.text);
  if (request_.shows_reasoning) choice->reasoning = parts.reasoning.substr(sent.reasoning);
  for (size_t i = 0; i < parts.calls.size(); ++i) {
    const ToolCall& call = parts.calls[i];
    const bool first = i >= sent.arguments.size();
    const size_t shown = first ? 0 : sent.arguments[i];
    if (!first && shown == call.arguments.size()) continue;
    CallDelta delta;
    delta.index = i;
    delta.first = first;
    delta.id = call.id;
    delta.name = call.name;
    delta.arguments = call.arguments.substr(shown);
    choice->calls.push_back(std::move(delta));
  }
}

// Adds the text, scores and ids of the choice from `sent` on.
void Request::Show(const Sequence& sequence, size_t hypothesis, const Sent& sent,
                   Choice* choice) const {
  const ChoiceText& text = TextOf(sequence, hypothesis);
  const ChoiceText* echoed = Echoed(sequence.prompt);
  const absl::string_view before = echoed == nullptr ? "" : absl::string_view(echoed->text());
  const absl::string_view after = text.text();
  if (const MessageParts* parts = text.parts()) {
    ShowParts(*parts, sent, choice);
  } else {
    choice->text = absl::StrCat(before.substr(std::min(sent.text, before.size())),
                                after.substr(std::max(sent.text, before.size()) - before.size()));
  }
  choice->first = !sent.any;
  const std::vector<TokenId>& ids = text.tokens();
  if (request_.return_token_ids) {
    choice->token_ids.emplace(ids.begin() + sent.tokens, ids.begin() + text.settled_tokens());
    if (!sent.any) choice->prompt_token_ids = request_.prompts[sequence.prompt];
  }
  if (!request_.logprobs) return;
  const std::vector<TokenScore>& scores =
      hypothesis == 0 ? sequence.scores : sequence.hypothesis_scores[hypothesis];
  const TokenNames names = request_.names_are_ids ? TokenNames::kIds : TokenNames::kBytes;
  choice->logprobs = !sent.any && echoed != nullptr
                         ? ShowPrompt(*tokenizer_, *echoed, sequence.prompt_scores, names)
                         : std::vector<TokenLogprob>();
  ShowTokens(*tokenizer_, text, scores, sent.tokens, echoed == nullptr ? 0 : echoed->characters(),
             names, &*choice->logprobs);
}

// Called by the thread that has written the scores into the answer, since there may be many.
void Request::FreeScores() {
  for (Sequence& sequence : sequences_) {
    sequence.scores = {};
    sequence.hypothesis_scores = {};
    sequence.prompt_scores = {};
  }
}

}  // namespace coppice::coordinator
