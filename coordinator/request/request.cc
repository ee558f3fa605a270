#include "coordinator/request/request.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "decoding/method.h"

namespace coppice::coordinator {
namespace {

std::string NewAnswerId(bool chat) {
  static std::mt19937_64 engine(std::random_device{}());
  return absl::StrCat(chat ? "chatcmpl-" : "cmpl-", absl::Hex(engine(), absl::kZeroPad16));
}

constexpr size_t kMaxRounds = 4096;  // in a timeline

bool Contains(const std::vector<TokenId>& ids, TokenId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// The HTTP status of a replica's error. The code says whether the request caused it.
int StatusOfReplicaError(const std::string& code) {
  for (const char* fault : {"kv_capacity_exceeded", "context_length_exceeded", "invalid_value",
                            "unsupported_combination"}) {
    if (code == fault) return 400;
  }
  return code == "deadline_exceeded" ? 504 : 500;
}

}  // namespace

Request::Request(GenerateRequest request, Origin origin, const tokenizer::Tokenizer* tokenizer,
                 std::shared_ptr<HttpExchange> exchange)
    : request_(std::move(request)),
      origin_(std::move(origin)),
      tokenizer_(tokenizer),
      exchange_(std::move(exchange)),
      identity_{request_.chat, NewAnswerId(request_.chat), origin_.created, origin_.model, ""} {}

void Request::MakeSequences() {
  for (int prompt = 0; prompt < request_.prompts.size(); ++prompt) {
    for (int sample = 0; sample < request_.samples; ++sample) {
      Sequence sequence;
      sequence.prompt = prompt;
      sequence.sample = sample;
      sequence.text = std::make_unique<ChoiceText>(tokenizer_, request_.prompts[prompt], request_);
      sequences_.push_back(std::move(sequence));
    }
  }
  sent_.resize(sequences_.size());
}

proto::StartSequence Request::StartMessage(int index) const {
  const Sequence& sequence = sequences_[index];
  decoding::DecodingParams params = request_.params;
  params.seed += static_cast<uint64_t>(sequence.sample);
  proto::StartSequence start;
  const std::vector<TokenId>& prompt = request_.prompts[sequence.prompt];
  start.mutable_prompt()->Add(prompt.begin(), prompt.end());
  *start.mutable_decoding() = proto::DecodingToMessage(params);
  start.set_timeline(origin_.timeline);
  start.set_quiet(!request_.stream && request_.stop.empty());
  return start;
}

void Request::Start(int index, uint64_t id, const std::string& replica,
                    const std::string& fingerprint, double now_s) {
  Sequence& sequence = sequences_[index];
  sequence.id = id;
  sequence.replica = replica;
  sequence.lost_s = -1;
  sequence.received = 0;
  sequence.started_s = now_s;
  sequence.rounds.clear();
  if (started_s_ < 0) started_s_ = now_s;
  if (identity_.fingerprint.empty()) identity_.fingerprint = fingerprint;
}

bool Request::Reproducible() const {
  const absl::StatusOr<const decoding::MethodRow*> method =
      decoding::ResolveMethod(request_.params);
  return method.ok() && (*method)->reproducible;
}

bool Request::Requeue(int index) {
  Sequence& sequence = sequences_[index];
  sequence.id = 0;
  sequence.received = 0;
  sequence.replayed = true;
  if (Reproducible()) return true;
  if (sequence.shown) return false;
  sequence.text =
      std::make_unique<ChoiceText>(tokenizer_, request_.prompts[sequence.prompt], request_);
  return true;
}

// Takes tokens of this run. Tokens that an earlier run has already sent must be the same.
bool Request::TakeTokens(Sequence* sequence, absl::Span<const TokenId> tokens) {
  const std::vector<TokenId>& known = sequence->text->tokens();
  while (!tokens.empty() && sequence->received < known.size()) {
    if (tokens.front() != known[sequence->received]) return false;
    ++sequence->received;
    tokens.remove_prefix(1);
  }
  sequence->received += tokens.size();
  sequence->text->Append(tokens);
  return true;
}

bool Request::Refuse(const Sequence& sequence, absl::string_view what) {
  Fail({500, "internal_error", absl::StrCat(sequence.replica, ": ", what)});
  return false;
}

bool Request::OnUpdate(int index, const proto::SequenceUpdate& update, double now_s) {
  Sequence& sequence = sequences_[index];
  if (ended_ || sequence.done) return true;
  if (!update.error_code().empty()) {
    const int status = StatusOfReplicaError(update.error_code());
    Fail({status, status == 500 ? "internal_error" : update.error_code(),
          absl::StrCat(sequence.replica, ": ", update.error_message())});
    return true;
  }
  for (const proto::RoundTimes& round : update.rounds()) {
    if (!origin_.timeline || rounds_kept_ == kMaxRounds) break;
    sequence.rounds.push_back(round);
    ++rounds_kept_;
  }
  absl::StatusOr<proto::SequenceProgress> progress =
      proto::ProgressFromMessage(update, {request_.vocab_size, request_.params.max_tokens,
                                          sequence.received, request_.params.num_hypotheses});
  if (!progress.ok()) return Refuse(sequence, progress.status().message());
  if (first_token_s_ < 0 && (!progress->stable_tokens.empty() || progress->finished))
    first_token_s_ = now_s;
  if (!TakeTokens(&sequence, progress->stable_tokens)) {
    Fail({503, "replica_lost",
          absl::StrCat(sequence.replica, " did not repeat what a lost replica had sent"), "", 1});
    return true;
  }
  if (sequence.text->stop()) {
    sequence.done = true;  // the dispatcher cancels it
  } else if (progress->finished && !FinishSequence(&sequence, &*progress)) {
    return Refuse(sequence, "hypotheses[0].tokens: not what it had declared stable");
  }
  if (progress->finished) sequence.stats = std::move(progress->stats);
  sequence.energy_joules = progress->energy_joules;
  if (request_.stream) sequence.done ? SendSequenceEnd(&sequence) : SendDelta(&sequence);
  if (std::all_of(sequences_.begin(), sequences_.end(), [](const Sequence& s) { return s.done; }))
    Complete(now_s);
  return true;
}

bool Request::FinishSequence(Sequence* sequence, proto::SequenceProgress* progress) {
  sequence->hypotheses = std::move(progress->hypotheses);
  const std::vector<TokenId>& best = sequence->hypotheses[0].tokens;
  if (best.size() < sequence->text->tokens().size()) return false;
  sequence->received = 0;
  if (!TakeTokens(sequence, best)) return false;
  sequence->text->Finish();
  sequence->done = true;
  return true;
}

Choice Request::MakeChoice(const Sequence& sequence, const decoding::Hypothesis* hypothesis,
                           const ChoiceText& text) const {
  Choice choice;
  choice.index = sequence.prompt * request_.n + sequence.sample;
  choice.seed = static_cast<int64_t>(request_.params.seed + static_cast<uint64_t>(sequence.sample));
  choice.text = text.text();
  choice.num_tokens = text.tokens().size();
  if (text.stop()) {
    choice.finish_reason = "stop";
    choice.stop_string = text.stop();
  } else {
    choice.finish_reason = hypothesis->finished ? "stop" : "length";
    if (hypothesis->finished && !hypothesis->tokens.empty() &&
        !Contains(request_.eos_ids, hypothesis->tokens.back()))
      choice.stop_token = hypothesis->tokens.back();
    choice.score = hypothesis->score;
    choice.joint_logprob = hypothesis->joint_log_probability;
  }
  if (request_.return_token_ids) {
    choice.token_ids = text.tokens();
    choice.prompt_token_ids = request_.prompts[sequence.prompt];
  }
  return choice;
}

// All choices of a prompt, each with its whole text, in the order of the answer.
std::vector<Choice> Request::PromptChoices(int prompt) const {
  std::vector<Choice> choices;
  for (const Sequence& sequence : sequences_) {
    if (sequence.prompt != prompt) continue;
    const decoding::Hypothesis* best =
        sequence.hypotheses.empty() ? nullptr : &sequence.hypotheses[0];
    choices.push_back(MakeChoice(sequence, best, *sequence.text));
    for (size_t i = 1; request_.beams() && i < sequence.hypotheses.size() && i < request_.n; ++i) {
      ChoiceText text(tokenizer_, request_.prompts[prompt], request_);
      text.Append(sequence.hypotheses[i].tokens);
      text.Finish();
      choices.push_back(MakeChoice(sequence, &sequence.hypotheses[i], text));
    }
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

// Cuts a whole choice to the part that no event has shown yet, and marks that part as shown.
void Request::CutToNew(const Sequence& sequence, Choice* choice) {
  Sent& sent = sent_[&sequence - sequences_.data()];
  choice->text.erase(0, sent.text);
  sent.text = sequence.text->text().size();
  if (choice->token_ids)
    choice->token_ids->erase(choice->token_ids->begin(), choice->token_ids->begin() + sent.tokens);
  sent.tokens = sequence.text->tokens().size();
  if (sent.any) choice->prompt_token_ids.reset();
  choice->first = !sent.any;
  sent.any = true;
}

void Request::SendDelta(Sequence* sequence) {
  const Sent& sent = sent_[sequence - sequences_.data()];
  if (sequence->text->text().size() == sent.text) return;
  Choice choice;
  choice.index = sequence->prompt * request_.n + sequence->sample;
  choice.text = sequence->text->text();
  if (request_.return_token_ids) {
    choice.token_ids = sequence->text->tokens();
    choice.prompt_token_ids = request_.prompts[sequence->prompt];
  }
  CutToNew(*sequence, &choice);
  sequence->shown = true;
  exchange_->SendEvent(CompletionEvent(identity_, {choice}, request_.include_usage));
}

void Request::SendSequenceEnd(Sequence* sequence) {
  std::vector<Choice> choices;
  if (request_.beams()) {
    choices = PromptChoices(sequence->prompt);
  } else {
    const decoding::Hypothesis* best =
        sequence->hypotheses.empty() ? nullptr : &sequence->hypotheses[0];
    choices.push_back(MakeChoice(*sequence, best, *sequence->text));
  }
  CutToNew(*sequence, &choices[0]);
  sequence->shown = true;
  exchange_->SendEvent(CompletionEvent(identity_, choices, request_.include_usage));
}

void Request::Complete(double now_s) {
  std::vector<Choice> choices;
  for (int prompt = 0; prompt < request_.prompts.size(); ++prompt) {
    for (Choice& choice : PromptChoices(prompt)) choices.push_back(std::move(choice));
  }
  Summarize(choices, now_s);
  ended_ = true;
  if (!request_.stream) {
    HttpReply reply;
    reply.body = CompletionBody(identity_, choices, usage_);
    return exchange_->Reply(std::move(reply));
  }
  if (request_.include_usage) exchange_->SendEvent(UsageEvent(identity_, usage_));
  exchange_->SendEvent("[DONE]");
  exchange_->EndStream(/*keep_connection=*/true);
}

// What a lost replica has used since its last report nobody knows.
std::optional<double> Request::EnergyJoules() const {
  double sum = 0;
  for (const Sequence& sequence : sequences_) {
    if (sequence.replayed || !sequence.energy_joules) return std::nullopt;
    sum += *sequence.energy_joules;
  }
  return sum;
}

void Request::Summarize(const std::vector<Choice>& choices, double now_s) {
  for (const Sequence& sequence : sequences_) {
    if (!sequence.stats) continue;
    DecodingStats stats = *sequence.stats;
    if (sequence.sample > 0) stats.cached_tokens = 0;  // counted once per prompt
    usage_.decoding.Merge(stats);
  }
  for (const auto& prompt : request_.prompts) usage_.prompt_tokens += prompt.size();
  for (const Choice& choice : choices) {
    usage_.completion_tokens += choice.num_tokens;
    finish_reasons_.push_back(choice.finish_reason);
  }
  usage_.energy_joules = EnergyJoules();
  usage_.decoding.queue_ms += (started_s_ - origin_.arrival_s) * 1e3;
  usage_.first_token_ms = (first_token_s_ - origin_.arrival_s) * 1e3;
  usage_.total_ms = (now_s - origin_.arrival_s) * 1e3;
}

void Request::Fail(ApiError error) {
  if (ended_) return;
  ended_ = true;
  error_ = error;
  if (!exchange_->stream_open()) return exchange_->Reply(ErrorReply(error));
  exchange_->SendEvent(ErrorBody(error));
  exchange_->EndStream(/*keep_connection=*/false);
}

}  // namespace coppice::coordinator
