// The life of one request: its sequences, what each has said so far, the events and the final
// answer. Gets updates from the dispatcher and writes to the HTTP exchange; owns no socket and no
// timer. Event-loop thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "coordinator/api_error.h"
#include "coordinator/choice_text.h"
#include "coordinator/generate_request.h"
#include "coordinator/http.h"
#include "coordinator/response_json.h"
#include "coordinator/tokenizer/tokenizer.h"
#include "proto/control.pb.h"
#include "proto/convert.h"

namespace coppice {

class Request {
 public:
  struct Origin {
    std::string request_id;  // of HTTP, for the log
    std::string model;       // served name
    double arrival_s = 0;    // on the dispatcher's clock
    int64_t created = 0;     // unix seconds
  };
  // One StartSequence at a time runs for each sequence; a replica that dies makes it pending again.
  struct Sequence {
    int prompt = 0;  // index of its prompt
    int sample = 0;
    uint64_t id = 0;        // of the running StartSequence; 0 = pending or done
    std::string replica;    // where it runs or ran
    int64_t kv_blocks = 0;  // reserved there
    double lost_s = -1;     // when the replica was lost on which it last ran; < 0 while it runs
    size_t received = 0;    // tokens that this run has sent
    bool shown = false;     // text of it has reached the client
    bool done = false;
    std::unique_ptr<ChoiceText> text;
    std::vector<Hypothesis> hypotheses;
    std::optional<DecodingStats> stats;
  };

  // tokenizer must outlive this.
  Request(GenerateRequest request, Origin origin, const Tokenizer* tokenizer,
          std::shared_ptr<HttpExchange> exchange);

  // After FitToModel has filled params(): makes the sequences.
  GenerateRequest* mutable_generate() { return &request_; }
  void MakeSequences();
  proto::StartSequence StartMessage(int index) const;
  // A run of the sequence begins on a replica, for the first time or again.
  void Start(int index, uint64_t id, const std::string& replica, const std::string& fingerprint,
             double now_s);
  // The sequence's replica is gone. False: what was shown cannot be continued, so the request fails
  // with replica_lost.
  bool Requeue(int index);

  // What one update of the running sequence says. Sends events; when the last sequence is done, the
  // answer. False: the node says what cannot be; the request has failed with an error that names
  // node and field.
  bool OnUpdate(int index, const proto::SequenceUpdate& update, double now_s);
  // Ends the request with an error, as a reply or as an event.
  void Fail(ApiError error);
  void Abandon() { ended_ = true; }  // the client has gone

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
  // For the log and the metrics, after a good end.
  const Usage& usage() const { return usage_; }
  const std::vector<std::string>& finish_reasons() const { return finish_reasons_; }

 private:
  bool Reproducible() const;
  bool TakeTokens(Sequence* sequence, absl::Span<const TokenId> tokens);
  bool FinishSequence(Sequence* sequence, SequenceProgress* progress);
  bool Refuse(const Sequence& sequence, absl::string_view what);
  void SendDelta(Sequence* sequence);
  void SendSequenceEnd(Sequence* sequence);
  void Complete(double now_s);
  std::vector<Choice> PromptChoices(int prompt) const;
  Choice MakeChoice(const Sequence& sequence, const Hypothesis* hypothesis,
                    const ChoiceText& text) const;
  void CutToNew(const Sequence& sequence, Choice* choice);
  void Summarize(const std::vector<Choice>& choices, double now_s);

  GenerateRequest request_;
  const Origin origin_;
  const Tokenizer* const tokenizer_;
  const std::shared_ptr<HttpExchange> exchange_;
  AnswerIdentity identity_;
  std::vector<Sequence> sequences_;
  struct Sent {
    size_t text = 0, tokens = 0;
    bool any = false;
  };
  std::vector<Sent> sent_;  // per sequence: what its events have shown
  bool ended_ = false;
  std::optional<ApiError> error_;
  double first_token_s_ = -1, started_s_ = -1;
  Usage usage_;
  std::vector<std::string> finish_reasons_;
};

}  // namespace coppice
