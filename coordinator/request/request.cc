#include "coordinator/request/request.h"

#include <algorithm>
#include <iterator>
#include <random>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "catalogue/catalogue_query.h"
#include "coordinator/api/client_fields.h"
#include "decoding/method.h"

namespace coppice::coordinator {
namespace {

std::string NewAnswerId(AnswerForm form) {
  static std::mt19937_64 engine(std::random_device{}());
  return absl::StrCat(AnswerIdPrefix(form), absl::Hex(engine(), absl::kZeroPad16));
}

constexpr char kOtherTokenizer[] =
    "they do not end where a stop string does: the replica's model folder has another tokenizer";

// The HTTP status of a replica's error. The code says whether the request caused it.
int StatusOfReplicaError(const std::string& code) {
  for (const char* fault : {"kv_capacity_exceeded", "context_length_exceeded", "invalid_value",
                            "unsupported_combination"}) {
    if (code == fault) return 400;
  }
  return code == "deadline_exceeded" ? 504 : 500;
}

// What an answer says of the catalogue that it is from.
std::string CatalogueText(const AskedCatalogue& catalogue) {
  if (catalogue.content == nullptr) return "";
  nlohmann::ordered_json json;
  json["name"] = catalogue.name;
  json["fingerprint"] = catalogue::FingerprintText(catalogue.content->fingerprint());
  json["items"] = catalogue.items;
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

Request::Request(GenerateRequest request, Origin origin, const tokenizer::Tokenizer* tokenizer,
                 std::shared_ptr<HttpExchange> exchange, ParsePool* jobs)
    : request_(std::move(request)),
      origin_(std::move(origin)),
      tokenizer_(tokenizer),
      exchange_(std::move(exchange)),
      identity_{request_.chat(),
                NewAnswerId(request_.form),
                origin_.created,
                origin_.model,
                "",
                CatalogueText(request_.catalogue)},
      writer_(MakeAnswerWriter(&request_)),
      outbox_(exchange_, jobs, origin_.client,
              {writer_->error_form(),
               [this](const ApiError& error) { return writer_->Error(identity_, error); }}) {}

void Request::MakeSequences() {
  GenerateRequest shown;  // a prompt is shown as a whole
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
  prompt_counted_.resize(request_.prompts.size());
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
  start.set_forests(request_.trace);
  start.set_client(origin_.client.name);
  start.set_client_weight(origin_.client.weight);
  start.set_priority(request_.priority);
  start.set_expected_kv_blocks(static_cast<uint64_t>(sequence.kv_blocks));
  *start.mutable_trace() = proto::TraceToMessage(origin_.trace);
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
  ++sequence.run;
  if (sequence.shown) return Reproducible();
  sequence.text =
      std::make_unique<ChoiceText>(tokenizer_, request_.prompts[sequence.prompt], request_);
  sequence.scores.clear();
  return true;
}

// Takes tokens of this run. Tokens that an earlier run has already sent must be equal.
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

Request::NewTokens Request::TakeNewTokens(int index) {
  Sequence& sequence = sequences_[index];
  size_t tokens = sequence.text->tokens().size();
  for (const ChoiceText& other : sequence.others) tokens += other.tokens().size();
  NewTokens fresh;
  if ((tokens > 0 || sequence.done) && !prompt_counted_[sequence.prompt]) {
    prompt_counted_[sequence.prompt] = true;
    fresh.prompt = static_cast<int64_t>(request_.prompts[sequence.prompt].size());
  }
  if (tokens > sequence.counted) {
    fresh.generated = static_cast<int64_t>(tokens - sequence.counted);
    sequence.counted = tokens;
  }
  generated_tokens_ += fresh.generated;
  return fresh;
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
  if (!TakeRounds(&sequence, update)) return false;
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

// Returns why the hypotheses are wrong, or "".
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

// The replica ends a hypothesis at the token that completes a stop string; the text is cut inside
// that token.
bool Request::EndsWhereItsTextDoes(const decoding::Hypothesis& hypothesis,
                                   const ChoiceText& text) const {
  if (request_.params.stop_strings.empty()) return true;
  if (text.tokens().size() != hypothesis.tokens.size()) return false;
  if (text.stop() || !hypothesis.finished) return true;
  const TokenId last = hypothesis.tokens.back();
  return absl::c_linear_search(request_.eos_ids, last) ||
         absl::c_linear_search(request_.own_stop_ids, last);
}

// Sends the new part of an unfinished choice.
void Request::SendDelta(Sequence* sequence) {
  if (sequence->text->text().empty() ||
      !All(*sequence).HasMore(sent_[sequence - sequences_.data()]))
    return;
  Choice choice;
  choice.index = sequence->prompt * request_.n + sequence->sample;
  sequence->shown = true;
  const Sent sent = TakeSent(*sequence);
  Show(*sequence, /*hypothesis=*/0, sent, &choice);
  const EventUsage usage = CountStreamed(sequence->text->settled_tokens() - sent.tokens);
  outbox_.Send(
      /*bytes=*/0,
      [this, choice = std::move(choice), usage] {
        return writer_->Delta(identity_, absl::MakeConstSpan(&choice, 1), std::nullopt, usage);
      },
      weak_from_this().lock());
}

// Sends the choices of a sequence that has ended. With beams these are all choices of the prompt;
// the first may have been shown in part.
void Request::SendSequenceEnd(Sequence* sequence) {
  std::vector<Choice> choices = request_.beams()
                                    ? PromptChoices(sequence->prompt)
                                    : std::vector<Choice>{MakeChoice(*sequence, /*hypothesis=*/0)};
  size_t bytes = 0;
  for (const Choice& choice : choices) bytes += ShownBytes(choice);
  const std::optional<double> mass =
      request_.beams() ? std::optional(MassOf(choices)) : std::nullopt;
  sequence->shown = true;
  const Sent sent = TakeSent(*sequence);
  size_t tokens = 0;
  for (const Choice& choice : choices) tokens += choice.num_tokens;
  const EventUsage usage = CountStreamed(tokens - sent.tokens);
  outbox_.Send(
      bytes,
      [this, choices = std::move(choices), mass, sent, usage]() mutable {
        for (size_t i = 0; i < choices.size(); ++i)
          Show(sequences_[choices[i].sequence], choices[i].hypothesis, i == 0 ? sent : Sent(),
               &choices[i]);
        return writer_->Delta(identity_, choices, mass, usage);
      },
      weak_from_this().lock());
}

// The usage of the event that brings these tokens.
EventUsage Request::CountStreamed(size_t tokens) {
  streamed_tokens_ += static_cast<int64_t>(tokens);
  EventUsage usage{.shown = request_.include_usage};
  if (!request_.continuous_usage) return usage;
  usage.prompt_tokens = 0;
  for (const auto& prompt : request_.prompts) *usage.prompt_tokens += prompt.size();
  usage.completion_tokens = streamed_tokens_;
  return usage;
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
  size_t bytes = 0;
  for (const Choice& choice : choices) bytes += ShownBytes(choice);
  if (!request_.stream) {
    if (shown_rounds_) {
      for (const ShownRound& round : *shown_rounds_) bytes += round.bytes();
    }
    return outbox_.Reply(
        bytes,
        [this, choices = std::move(choices), beam_mass = std::move(beam_mass)]() mutable {
          const auto show = [this](Choice* choice) {
            Show(sequences_[choice->sequence], choice->hypothesis, Sent(), choice);
          };
          std::optional<std::vector<std::string>> rounds;
          if (shown_rounds_) rounds = RoundTexts(*shown_rounds_);
          std::string body = writer_->Body(identity_, choices, show, beam_mass, usage_, rounds);
          FreeScores();
          return body;
        },
        weak_from_this().lock());
  }
  // The end of a response repeats all of it.
  outbox_.Send(
      request_.form == AnswerForm::kResponse ? bytes : 0,
      [this] { return writer_->End(identity_, usage_); }, weak_from_this().lock());
  outbox_.EndStream();
}

// The energy that a lost replica used since its last report is not known.
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
  if (request_.syntax != nullptr && !request_.syntax->reasoning.open.empty())
    usage_.reasoning_tokens = 0;
  for (const Choice& choice : choices) {
    usage_.completion_tokens += choice.num_tokens;
    if (usage_.reasoning_tokens) *usage_.reasoning_tokens += choice.reasoning_tokens;
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
  error = ForClient(request_.form, std::move(error));
  error_ = error;
  outbox_.Fail(error);
}

void Request::Abandon() {
  ended_ = true;
  outbox_.Drop();
}

}  // namespace coppice::coordinator
