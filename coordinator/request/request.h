// One request from start to end: its sequences, their output so far, the events and the final
// answer. Receives updates from the dispatcher and writes to the HTTP exchange. Owns no socket and
// no timer. Event-loop thread, except that another thread makes large answers (outbox), when their
// contents no longer change.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "coordinator/api/generate_request.h"
#include "coordinator/http/api_error.h"
#include "coordinator/http/fair_queue.h"
#include "coordinator/http/http.h"
#include "coordinator/request/answer_writer.h"
#include "coordinator/request/choice_text.h"
#include "coordinator/request/outbox.h"
#include "coordinator/request/response_json.h"
#include "coordinator/request/round_json.h"
#include "plan/token_score.h"
#include "proto/control.pb.h"
#include "proto/convert.h"
#include "tokenizer/tokenizer.h"

namespace coppice::coordinator {

class Request : public std::enable_shared_from_this<Request> {
 public:
  struct Origin {
    std::string request_id;  // HTTP request id, for the log
    std::string caller;      // name of the client's key; "" = it has none
    Client client;           // who takes turns with others
    std::string model;       // served name
    double arrival_s = 0;    // on the dispatcher's clock
    int64_t created = 0;     // unix seconds
    bool timeline = false;   // keep the times of every round
    TraceContext trace;      // with the span of this request
  };
  // Each sequence runs on one replica at a time. When that replica dies the sequence is pending
  // again.
  struct Sequence {
    int prompt = 0;  // index of its prompt
    int sample = 0;
    uint64_t id = 0;        // of the running StartSequence; 0 = pending or done
    std::string replica;    // where it runs or ran
    int64_t kv_blocks = 0;  // expected to be needed there
    int64_t kv_added = 0;   // what it added to the reservations there
    double lost_s = -1;     // when its last replica was lost; < 0 while it runs
    size_t received = 0;    // tokens that this run has sent
    uint32_t updates = 0;   // updates of this run that have arrived
    bool shown = false;     // some of its text has been sent to the client
    bool done = false;
    size_t counted = 0;  // tokens that TakeNewTokens has returned, of all runs
    std::unique_ptr<ChoiceText> text;
    std::vector<decoding::Hypothesis> hypotheses;
    // Where logprobs are requested: the scores of the tokens of `text`, of each hypothesis, and of
    // the prompt from its second token on.
    std::vector<TokenScore> scores;
    std::vector<std::vector<TokenScore>> hypothesis_scores;
    std::vector<TokenScore> prompt_scores;
    std::vector<ChoiceText> others;  // texts of hypotheses[1], [2], ... (beams)
    std::optional<DecodingStats> stats;
    std::optional<double> energy_joules;    // joules so far; nullopt: some of it was not measured
    bool replayed = false;                  // on another replica, after the first was lost
    int run = 0;                            // how often it was begun anew
    double started_s = -1;                  // when this run was dispatched
    std::vector<proto::RoundTimes> rounds;  // of this run, if a timeline is kept
  };

  // tokenizer must outlive this. jobs make large answers; nullptr: they are made at once.
  Request(GenerateRequest request, Origin origin, const tokenizer::Tokenizer* tokenizer,
          std::shared_ptr<HttpExchange> exchange, ParsePool* jobs = nullptr);

  // Makes the sequences. Call it after FitToModel has filled the parameters.
  GenerateRequest* mutable_generate() { return &request_; }
  void MakeSequences();
  proto::StartSequence StartMessage(int index) const;
  // The sequence starts on a replica, for the first time or again.
  void Start(int index, uint64_t id, const std::string& replica, const std::string& fingerprint,
             double now_s);
  // The replica of the sequence is gone. False: the text that was shown cannot be continued, so the
  // request must fail with replica_lost.
  bool Requeue(int index);
  // Whether Requeue would succeed: nothing was sent, or it will be decided again in the same way.
  bool CanRestart(int index) const { return !sequences_[index].shown || Reproducible(); }

  // Applies one update of a running sequence. Sends events and, when the last sequence is done, the
  // answer, which may take a while to form. False: the update is impossible, and the request has
  // failed with an error that names node and field.
  bool OnUpdate(int index, const proto::SequenceUpdate& update, double now_s);
  // What the sequence has brought since the last call, for the metrics: the tokens of its prompt,
  // once for all sequences of the prompt, when one of them reports tokens or its end; and its own.
  // These are the tokens of a sample; of beams the stable prefix, and at the end all returned
  // hypotheses. Tokens that a run after a fail-over repeats are not new.
  struct NewTokens {
    int64_t prompt = 0, generated = 0;
  };
  NewTokens TakeNewTokens(int index);
  int64_t generated_tokens() const { return generated_tokens_; }  // that TakeNewTokens has returned
  // Ends the request with an error, as a reply or as an event.
  void Fail(ApiError error);
  void Abandon();  // the client has gone

  bool ended() const { return ended_; }
  const std::optional<ApiError>& error() const { return error_; }
  const GenerateRequest& generate() const { return request_; }
  const Origin& origin() const { return origin_; }
  const std::shared_ptr<HttpExchange>& exchange() const { return exchange_; }
  std::vector<Sequence>& sequences() { return sequences_; }
  const std::vector<Sequence>& sequences() const { return sequences_; }
  bool made() const { return !sequences_.empty(); }
  double first_token_s() const { return first_token_s_; }  // < 0: none yet
  double started_s() const { return started_s_; }          // first dispatch; < 0: none yet
  // For the log and the metrics, after the request has ended successfully.
  const Usage& usage() const { return usage_; }
  const std::vector<std::string>& finish_reasons() const { return finish_reasons_; }

 private:
  bool Reproducible() const;
  proto::ProgressLimits Limits(const Sequence& sequence) const;
  bool TakeTokens(Sequence* sequence, absl::Span<const TokenId> tokens,
                  absl::Span<const TokenScore> scores);
  std::string FinishSequence(Sequence* sequence, proto::SequenceProgress* progress);
  bool EndsWhereItsTextDoes(const decoding::Hypothesis& hypothesis, const ChoiceText& text) const;
  bool Refuse(const Sequence& sequence, absl::string_view what);
  std::vector<std::string> RoundTexts(const std::vector<ShownRound>& rounds) const;
  bool TakeRounds(Sequence* sequence, const proto::SequenceUpdate& update);
  EventUsage CountStreamed(size_t tokens);
  void SendDelta(Sequence* sequence);
  void SendSequenceEnd(Sequence* sequence);
  void Complete(double now_s);
  // The part of a choice that events have shown.
  struct Sent {
    size_t text = 0;  // bytes; of a divided text those of its content
    size_t tokens = 0;
    size_t reasoning = 0;           // bytes
    std::vector<size_t> arguments;  // [calls] bytes
    bool any = false;

    bool HasMore(const Sent& before) const {
      return text != before.text || reasoning != before.reasoning || arguments != before.arguments;
    }
  };
  static double MassOf(const std::vector<Choice>& choices);
  static const ChoiceText& TextOf(const Sequence& sequence, size_t hypothesis);
  std::vector<Choice> PromptChoices(int prompt) const;
  Choice MakeChoice(const Sequence& sequence, size_t number) const;
  std::optional<ShownItem> ItemOf(const std::vector<TokenId>& tokens) const;
  size_t ShownBytes(const Choice& choice) const;
  void Show(const Sequence& sequence, size_t hypothesis, const Sent& sent, Choice* choice) const;
  Sent All(const Sequence& sequence) const;  // everything that is known
  Sent TakeSent(const Sequence& sequence);
  void ShowParts(const MessageParts& parts, const Sent& sent, Choice* choice) const;
  void FreeScores();
  // With echo: the text with which the choices of the prompt begin.
  const ChoiceText* Echoed(int prompt) const {
    return request_.echo ? echoed_[prompt].get() : nullptr;
  }
  size_t TextSize(const Sequence& sequence, const ChoiceText& text) const;
  std::optional<double> EnergyJoules() const;
  void Summarize(const std::vector<Choice>& choices, double now_s);

  GenerateRequest request_;
  const Origin origin_;
  const tokenizer::Tokenizer* const tokenizer_;
  const std::shared_ptr<HttpExchange> exchange_;
  AnswerIdentity identity_;
  const std::unique_ptr<AnswerWriter> writer_;
  Outbox outbox_;
  std::vector<std::unique_ptr<ChoiceText>> echoed_;  // [prompts], with echo
  std::vector<Sequence> sequences_;
  std::vector<Sent> sent_;  // per sequence
  size_t rounds_kept_ = 0;  // rounds kept for all sequences
  // With trace, of a whole answer: the rounds of all sequences, up to the limits.
  std::optional<std::vector<ShownRound>> shown_rounds_;
  int rounds_shown_ = 0, shown_entries_ = 0;
  bool rounds_end_ = false;
  std::vector<bool> prompt_counted_;  // [prompts] TakeNewTokens has returned its tokens
  int64_t generated_tokens_ = 0;
  int64_t streamed_tokens_ = 0;  // of all events
  bool ended_ = false;
  std::optional<ApiError> error_;
  double first_token_s_ = -1, started_s_ = -1;
  Usage usage_;
  std::vector<std::string> finish_reasons_;
};

}  // namespace coppice::coordinator
