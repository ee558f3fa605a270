// The rounds of a request's sequences: their times for the timeline, and what a request with `trace`
// shows of them.
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/request/request.h"
#include "coordinator/request/round_json.h"

namespace coppice::coordinator {
namespace {

constexpr size_t kMaxRounds = 4096;  // rounds kept in a timeline

}  // namespace

std::vector<std::string> Request::RoundTexts(const std::vector<ShownRound>& rounds) const {
  std::vector<std::string> texts;
  for (const ShownRound& round : rounds) texts.push_back(RoundJson(round, *tokenizer_));
  return texts;
}

// Keeps the times for the timeline, and shows the forests to who asked for them.
bool Request::TakeRounds(Sequence* sequence, const proto::SequenceUpdate& update) {
  std::vector<ShownRound> shown;
  size_t bytes = 0;
  for (const proto::RoundTimes& round : update.rounds()) {
    proto::RoundTimes times = round;
    times.clear_forest();
    if (origin_.timeline && rounds_kept_ < kMaxRounds && round.round() > 0) {
      sequence->rounds.push_back(times);
      ++rounds_kept_;
    }
    if (!request_.trace || !round.has_forest() || rounds_end_) continue;
    auto forest = proto::RoundForestFromMessage(round.forest(), request_.vocab_size);
    if (!forest.ok())
      return Refuse(*sequence, absl::StrCat("rounds: forest.", forest.status().message()));
    if (!request_.stream) {  // kept until the end
      shown_entries_ += forest->entries();
      rounds_end_ = ++rounds_shown_ == decoding::kMostShownRounds ||
                    shown_entries_ > decoding::kMostShownEntries;
      forest->last |= rounds_end_;
    }
    shown.push_back({{sequence->prompt, sequence->sample, sequence->run},
                     std::move(times),
                     *std::move(forest)});
    bytes += shown.back().bytes();
  }
  if (!request_.stream && request_.trace) {
    if (!shown_rounds_) shown_rounds_.emplace();
    std::move(shown.begin(), shown.end(), std::back_inserter(*shown_rounds_));
  } else if (!shown.empty()) {
    outbox_.Send(
        bytes,
        [this, shown = std::move(shown), usage = CountStreamed(0)] {
          return writer_->Rounds(identity_, RoundTexts(shown), usage);
        },
        weak_from_this().lock());
  }
  return true;
}

}  // namespace coppice::coordinator
