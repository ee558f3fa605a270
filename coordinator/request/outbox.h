// The pieces of one answer on their way to the exchange, in order. Small pieces are formed at once,
// large ones in the background, and later pieces wait for them. Owned by a request. Event-loop
// thread, except for the functions that form large pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/http/api_error.h"
#include "coordinator/http/http.h"
#include "coordinator/http/parse_pool.h"

namespace coppice::coordinator {

class Outbox {
 public:
  using Make = std::function<std::string()>;
  using MakeEvents = std::function<std::vector<StreamEvent>()>;
  // jobs nullptr: every piece is made at once. jobs must outlive this.
  // errors: how an error is told. Its form is also that of a whole answer.
  struct Errors {
    ErrorForm form = ErrorForm::kOpenAi;
    std::function<std::vector<StreamEvent>(const ApiError&)> events;
  };
  Outbox(std::shared_ptr<HttpExchange> exchange, ParsePool* jobs, Client client, Errors errors)
      : exchange_(std::move(exchange)),
        jobs_(jobs),
        client_(std::move(client)),
        errors_(std::move(errors)) {}

  // make: forms the JSON of the whole answer, or some events. bytes: its approximate size; if it is
  // large, another thread calls make. owner keeps this object and the source of the pieces alive
  // until all pieces are sent.
  void Reply(size_t bytes, Make make, const std::shared_ptr<void>& owner);
  template <typename Makes>
  void Send(size_t bytes, Makes make, const std::shared_ptr<void>& owner) {
    if (SendsAtOnce(bytes)) return SendEvents(make());
    AddEvents(bytes, std::move(make), owner);
  }
  void EndStream();
  // Ends the answer, as a reply or, if a stream is open, as events.
  void Fail(const ApiError& error);
  void Drop();  // nobody will read the output

 private:
  // send: receives the result of make.
  struct Piece {
    size_t bytes = 0;
    MakeEvents make;  // of a whole answer: one event without a name
    std::function<void(std::vector<StreamEvent>)> send;
  };
  // Nothing waits, and another thread would not make it either: most events of most streams.
  bool SendsAtOnce(size_t bytes) const;
  void SendEvents(const std::vector<StreamEvent>& events);
  void AddEvents(size_t bytes, MakeEvents make, const std::shared_ptr<void>& owner);
  void Add(Piece piece, const std::shared_ptr<void>& owner);
  void SendAll(const std::shared_ptr<void>& owner);
  void MakeInBackground(Piece piece, const std::shared_ptr<void>& owner);

  const std::shared_ptr<HttpExchange> exchange_;
  ParsePool* const jobs_;
  const Client client_;
  const Errors errors_;
  std::deque<Piece> pieces_;
  uint64_t job_ = 0;  // id of the job that forms a piece; 0: none
  bool dropped_ = false;
};

}  // namespace coppice::coordinator
