#include "coordinator/request/outbox.h"

#include <spdlog/spdlog.h>

#include <exception>
#include <optional>

namespace coppice::coordinator {
namespace {

// Smaller pieces are made in less than a millisecond.
constexpr size_t kLargePiece = 64 << 10;

std::vector<StreamEvent> Nothing() { return {}; }

}  // namespace

void Outbox::Reply(size_t bytes, Make make, const std::shared_ptr<void>& owner) {
  const auto send = [this](std::vector<StreamEvent> made) {
    exchange_->Reply(WholeReply(200, std::move(made[0].data), errors_.form));
  };
  const auto make_one = [make = std::move(make)] { return std::vector<StreamEvent>{{make(), ""}}; };
  Add({bytes, make_one, send}, owner);
}

bool Outbox::SendsAtOnce(size_t bytes) const {
  return pieces_.empty() && job_ == 0 && !dropped_ && (jobs_ == nullptr || bytes < kLargePiece);
}

void Outbox::SendEvents(const std::vector<StreamEvent>& events) {
  for (const StreamEvent& event : events) exchange_->SendEvent(event);
}

void Outbox::AddEvents(size_t bytes, MakeEvents make, const std::shared_ptr<void>& owner) {
  const auto send = [this](const std::vector<StreamEvent>& events) { SendEvents(events); };
  Add({bytes, std::move(make), send}, owner);
}

void Outbox::EndStream() {
  const auto end = [this](const std::vector<StreamEvent>&) {
    exchange_->EndStream(/*keep_connection=*/true);
  };
  Add({0, Nothing, end}, nullptr);
}

void Outbox::Fail(const ApiError& error) {
  const auto fail = [this, error](const std::vector<StreamEvent>&) {
    if (!exchange_->stream_open()) return exchange_->Reply(ErrorReply(error, errors_.form));
    for (const StreamEvent& event : errors_.events(error)) exchange_->SendEvent(event);
    exchange_->EndStream(/*keep_connection=*/false);
  };
  Add({0, Nothing, fail}, nullptr);
}

void Outbox::Drop() {
  dropped_ = true;
  pieces_.clear();
  if (job_ != 0) jobs_->Skip(job_);
}

void Outbox::Add(Piece piece, const std::shared_ptr<void>& owner) {
  if (dropped_) return;
  pieces_.push_back(std::move(piece));
  SendAll(owner);
}

void Outbox::SendAll(const std::shared_ptr<void>& owner) {
  while (!pieces_.empty() && job_ == 0) {
    Piece piece = std::move(pieces_.front());
    pieces_.pop_front();
    if (jobs_ != nullptr && piece.bytes >= kLargePiece) {
      MakeInBackground(std::move(piece), owner);
    } else {
      piece.send(piece.make());
    }
  }
}

void Outbox::MakeInBackground(Piece piece, const std::shared_ptr<void>& owner) {
  struct Made {
    Piece piece;
    std::shared_ptr<void> owner;
    std::optional<std::vector<StreamEvent>> events;
  };
  const auto made = std::make_shared<Made>();
  made->piece = std::move(piece);
  made->owner = owner;
  job_ = jobs_->Post(
      client_, made->piece.bytes,
      [made] {
        try {
          made->events = made->piece.make();
        } catch (const std::exception& error) {  // no memory left
          spdlog::error("an answer cannot be made: {}", error.what());
        }
      },
      [this, made] {
        job_ = 0;
        if (dropped_) return;
        if (made->events) {
          made->piece.send(*std::move(made->events));
        } else {
          pieces_.clear();
          Fail({500, "internal_error", "the answer could not be made"});
        }
        SendAll(made->owner);
      });
}

}  // namespace coppice::coordinator
