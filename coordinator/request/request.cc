#include "coordinator/request/request.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/request/token_logprobs.h"
#include "decoding/method.h"

namespace coppice::coordinator {
namespace {

std::string NewAnswerId(bool chat) {
  static std::mt19937_64 engine(std::random_device{}());
  return absl::StrCat(chat ? "chatcmpl-" : "cmpl-", absl::Hex(engine(), absl::kZeroPad16));
}

constexpr char kOtherTokenizer[] =
    "they do not end where a stop string does: the replica's model folder has another tokenizer";
constexpr size_t kMaxRounds = 4096;  // in a timeline

bool Contains(const std::vector<TokenId>& ids, TokenId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// The choices are distinct, so that their probabilities add up.
double MassOf(const std::vector<Choice>& choices) {
  double mass = 0;
  for (const Choice& choice : choices) mass += choice.mass;
  return mass;
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
  GenerateRequest shown;  // a prompt is shown whole
  shown.skip_special_tokens = request_.skip_special_tokens;
  for (size_t prompt = 0; request_.echo && prompt < request_.prompts.size(); ++prompt) {
    echoed_.push_back(std::make_unique<ChoiceText>(tokenizer_, absl::Span<const TokenId>(), shown));
    echoed_.back()->Append(request_.prompts[prompt]);
    if (request_.score_only) echoed_.back()->Finish();
  }
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
  start.set_quiet(!request_.stream);
  if (request_.logprobs) start.set_logprobs(*request_.logprobs);
  start.set_score_prompt(request_.score_prompt());
  start.set_score_only(request_.score_only);
  start.set_timeline(origin_.timeline);
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
  sequence.updates = 0;
  sequence.prompt_scores.clear();
  sequence.replayed = true;
  if (Reproducible()) return true;
  if (sequence.shown) return false;
  sequence.text =
      std::make_unique<ChoiceText>(tokenizer_, request_.prompts[sequence.prompt], request_);
  sequence.scores.clear();
  return true;
}

// Takes tokens of this run. Tokens that an earlier run has already sent must be the same.
bool Request::TakeTokens(Sequence* sequence, absl::Span<const TokenId> tokens,
                         absl::Span<const TokenScore> scores) {
  const std::vector<TokenId>& known = sequence->text->tokens();
  while (!tokens.empty() && sequence->received < known.size()) {
    if (tokens.front() != known[sequence->received]) return false;
    ++sequence->received;
    tokens.remove_prefix(1);
    if (!scores.empty()) scores.remove_prefix(1);
  }
  sequence->received += tokens.size();
  sequence->text->Append(tokens);
  sequence->scores.insert(sequence->scores.end(), scores.begin(), scores.end());
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
      proto::ProgressFromMessage(update, Limits(sequence));
  if (!progress.ok()) return Refuse(sequence, progress.status().message());
  std::move(progress->prompt_scores.begin(), progress->prompt_scores.end(),
            std::back_inserter(sequence.prompt_scores));
  const bool decoded = !progress->stable_tokens.empty() || progress->finished;
  if (decoded && Limits(sequence).prompt_scores > 0) {
    return Refuse(sequence, "prompt_scores: tokens come before all of them");
  }
  if (first_token_s_ < 0 && decoded) first_token_s_ = now_s;
  if (!TakeTokens(&sequence, progress->stable_tokens, progress->stable_scores)) {
    Fail({503, "replica_lost",
          absl::StrCat(sequence.replica, " did not repeat what a lost replica had sent"), "", 1});
    return true;
  }
  if (!request_.beams() && sequence.text->stop() && !progress->finished)
    return Refuse(sequence, absl::StrCat("stable_tokens: ", kOtherTokenizer));
  if (progress->finished) {
    const std::string wrong = FinishSequence(&sequence, &*progress);
    if (!wrong.empty()) return Refuse(sequence, wrong);
  }
  if (progress->finished) sequence.stats = std::move(progress->stats);
  sequence.energy_joules = progress->energy_joules;
  if (request_.stream) sequence.done ? SendSequenceEnd(&sequence) : SendDelta(&sequence);
  if (std::all_of(sequences_.begin(), sequences_.end(), [](const Sequence& s) { return s.done; }))
    Complete(now_s);
  return true;
}

proto::ProgressLimits Request::Limits(const Sequence& sequence) const {
  proto::ProgressLimits limits{request_.vocab_size, request_.max_tokens(), sequence.received,
                               request_.params.num_hypotheses};
  limits.alternatives = request_.logprobs;
  if (request_.score_prompt()) {
    limits.prompt_scores = static_cast<int64_t>(request_.prompts[sequence.prompt].size()) - 1 -
                           static_cast<int64_t>(sequence.prompt_scores.size());
  }
  return limits;
}

// Returns what is wrong with the hypotheses, or "".
std::string Request::FinishSequence(Sequence* sequence, proto::SequenceProgress* progress) {
  constexpr char kUnstable[] = "hypotheses[0].tokens: not what it had declared stable";
  sequence->hypotheses = std::move(progress->hypotheses);
  sequence->hypothesis_scores = std::move(progress->hypothesis_scores);
  const std::vector<TokenId>& best = sequence->hypotheses[0].tokens;
  if (best.size() < sequence->text->tokens().size()) return kUnstable;
  sequence->received = 0;
  if (!TakeTokens(sequence, best, sequence->hypothesis_scores[0])) return kUnstable;
  sequence->text->Finish();
  sequence->others.clear();
  for (size_t i = 1; request_.beams() && i < sequence->hypotheses.size() && i < request_.n; ++i) {
    sequence->others.emplace_back(tokenizer_, request_.prompts[sequence->prompt], request_);
    sequence->others.back().Append(sequence->hypotheses[i].tokens);
    sequence->others.back().Finish();
  }
  for (size_t i = 0; i <= sequence->others.size(); ++i) {
    const ChoiceText& text = i == 0 ? *sequence->text : sequence->others[i - 1];
    if (!EndsWhereItsTextDoes(sequence->hypotheses[i], text)) {
      return absl::StrCat("hypotheses[", i, "].tokens: ", kOtherTokenizer);
    }
  }
  sequence->done = true;
  return "";
}

// The replica ends a hypothesis at the token that completes a stop string, and the text is cut in
// that token.
bool Request::EndsWhereItsTextDoes(const decoding::Hypothesis& hypothesis,
                                   const ChoiceText& text) const {
  if (request_.params.stop_strings.empty()) return true;
  if (text.tokens().size() != hypothesis.tokens.size()) return false;
  if (text.stop() || !hypothesis.finished) return true;
  const TokenId last = hypothesis.tokens.back();
  return Contains(request_.eos_ids, last) || Contains(request_.own_stop_ids, last);
}

Choice Request::MakeChoice(const Sequence& sequence, const decoding::Hypothesis* hypothesis,
                           const ChoiceText& text, absl::Span<const TokenScore> scores) const {
  Choice choice;
  choice.index = sequence.prompt * request_.n + sequence.sample;
  choice.seed = static_cast<int64_t>(request_.params.seed + static_cast<uint64_t>(sequence.sample));
  choice.text = TextOf(sequence, text);
  choice.num_tokens = text.tokens().size();
  if (text.stop()) {
    choice.finish_reason = "stop";
    choice.stop_string = text.stop();
  } else {
    choice.finish_reason = hypothesis->finished ? "stop" : "length";
    if (hypothesis->finished && !hypothesis->tokens.empty() &&
        !Contains(request_.eos_ids, hypothesis->tokens.back()))
      choice.stop_token = hypothesis->tokens.back();
  }
  if (hypothesis != nullptr) {
    choice.score = hypothesis->score;
    choice.joint_logprob = hypothesis->joint_log_probability;
    if (hypothesis->finished) choice.mass = std::exp(hypothesis->joint_log_probability);
  }
  AddLogprobs(sequence, text, scores, /*from=*/0, &choice);
  if (request_.return_token_ids) {
    choice.token_ids = text.tokens();
    choice.prompt_token_ids = request_.prompts[sequence.prompt];
  }
  return choice;
}

std::string Request::TextOf(const Sequence& sequence, const ChoiceText& text) const {
  const ChoiceText* echoed = Echoed(sequence.prompt);
  return echoed == nullptr ? text.text() : echoed->text() + text.text();
}

void Request::AddLogprobs(const Sequence& sequence, const ChoiceText& text,
                          absl::Span<const TokenScore> scores, size_t from, Choice* choice) const {
  if (!request_.logprobs) return;
  const ChoiceText* echoed = Echoed(sequence.prompt);
  const TokenNames names = request_.names_are_ids ? TokenNames::kIds : TokenNames::kBytes;
  choice->logprobs = from == 0 && echoed != nullptr
                         ? ShowPrompt(*tokenizer_, *echoed, sequence.prompt_scores, names)
                         : std::vector<TokenLogprob>();
  for (TokenLogprob& token : ShowTokens(*tokenizer_, text, scores, from,
                                        echoed == nullptr ? 0 : echoed->characters(), names)) {
    choice->logprobs->push_back(std::move(token));
  }
}

// All choices of a prompt, each with its whole text, in the order of the answer.
std::vector<Choice> Request::PromptChoices(int prompt) const {
  std::vector<Choice> choices;
  for (const Sequence& sequence : sequences_) {
    if (sequence.prompt != prompt) continue;
    const decoding::Hypothesis* best =
        sequence.hypotheses.empty() ? nullptr : &sequence.hypotheses[0];
    choices.push_back(MakeChoice(sequence, best, *sequence.text, sequence.scores));
    for (size_t i = 0; i < sequence.others.size(); ++i) {
      choices.push_back(MakeChoice(sequence, &sequence.hypotheses[i + 1], sequence.others[i],
                                   sequence.hypothesis_scores[i + 1]));
    }
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

// Cuts a whole choice to the part that no event has shown yet, and marks that part as shown.
void Request::CutToNew(const Sequence& sequence, Choice* choice) {
  Sent& sent = sent_[&sequence - sequences_.data()];
  choice->text.erase(0, sent.text);
  sent.text = TextOf(sequence, *sequence.text).size();
  if (choice->token_ids)
    choice->token_ids->erase(choice->token_ids->begin(), choice->token_ids->begin() + sent.tokens);
  if (choice->logprobs && sent.any) {  // the last ones are new
    const size_t added = sequence.text->tokens().size() - sent.tokens;
    choice->logprobs->erase(choice->logprobs->begin(), choice->logprobs->end() - added);
  }
  sent.tokens = sequence.text->tokens().size();
  if (sent.any) choice->prompt_token_ids.reset();
  choice->first = !sent.any;
  sent.any = true;
}

void Request::SendDelta(Sequence* sequence) {
  const Sent& sent = sent_[sequence - sequences_.data()];
  if (sequence->text->text().empty() || TextOf(*sequence, *sequence->text).size() == sent.text)
    return;
  Choice choice;
  choice.index = sequence->prompt * request_.n + sequence->sample;
  choice.text = TextOf(*sequence, *sequence->text);
  if (request_.return_token_ids) {
    choice.token_ids = sequence->text->tokens();
    choice.prompt_token_ids = request_.prompts[sequence->prompt];
  }
  AddLogprobs(*sequence, *sequence->text, sequence->scores, sent.tokens, &choice);
  CutToNew(*sequence, &choice);
  sequence->shown = true;
  exchange_->SendEvent(CompletionEvent(identity_, {choice}, std::nullopt, request_.include_usage));
}

void Request::SendSequenceEnd(Sequence* sequence) {
  std::vector<Choice> choices;
  if (request_.beams()) {
    choices = PromptChoices(sequence->prompt);
  } else {
    const decoding::Hypothesis* best =
        sequence->hypotheses.empty() ? nullptr : &sequence->hypotheses[0];
    choices.push_back(MakeChoice(*sequence, best, *sequence->text, sequence->scores));
  }
  const std::optional<double> mass =
      request_.beams() ? std::optional(MassOf(choices)) : std::nullopt;
  CutToNew(*sequence, &choices[0]);
  sequence->shown = true;
  exchange_->SendEvent(CompletionEvent(identity_, choices, mass, request_.include_usage));
}

void Request::Complete(double now_s) {
  std::vector<Choice> choices;
  std::vector<double> beam_mass;
  for (int prompt = 0; prompt < request_.prompts.size(); ++prompt) {
    std::vector<Choice> of_prompt = PromptChoices(prompt);
    if (request_.beams()) beam_mass.push_back(MassOf(of_prompt));
    for (Choice& choice : of_prompt) choices.push_back(std::move(choice));
  }
  Summarize(choices, now_s);
  ended_ = true;
  if (!request_.stream) {
    HttpReply reply;
    reply.body = CompletionBody(identity_, choices, beam_mass, usage_);
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
