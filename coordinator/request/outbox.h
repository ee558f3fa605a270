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

#include "coordinator/http/api_error.h"
#include "coordinator/http/http.h"
#include "coordinator/http/parse_pool.h"

namespace coppice::coordinator {

class Outbox {
 public:
  using Make = std::function<std::string()>;
  // jobs nullptr: every piece is made at once. jobs must outlive this.
  Outbox(std::shared_ptr<HttpExchange> exchange, ParsePool* jobs, Client client)
      : exchange_(std::move(exchange)), jobs_(jobs), client_(std::move(client)) {}

  // make: forms the JSON of the whole answer, or of an event. bytes: its approximate size; if it is
  // large, another thread calls make. owner keeps this object and the source of the pieces alive
  // until all pieces are sent.
  void Reply(size_t bytes, Make make, const std::shared_ptr<void>& owner);
  void Event(size_t bytes, Make make, const std::shared_ptr<void>& owner);
  void EndStream();
  // Ends the answer, as a reply or, if a stream is open, as an event.
  void Fail(const ApiError& error);
  void Drop();  // nobody will read the output

 private:
  // send: receives the result of make.
  struct Piece {
    size_t bytes = 0;
    Make make;
    std::function<void(std::string)> send;
  };
  void Add(Piece piece, const std::shared_ptr<void>& owner);
  void SendAll(const std::shared_ptr<void>& owner);
  void MakeInBackground(Piece piece, const std::shared_ptr<void>& owner);

  const std::shared_ptr<HttpExchange> exchange_;
  ParsePool* const jobs_;
  const Client client_;
  std::deque<Piece> pieces_;
  uint64_t job_ = 0;  // id of the job that forms a piece; 0: none
  bool dropped_ = false;
};

}  // namespace coppice::coordinator
