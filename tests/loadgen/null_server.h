// A server for tests of the load generator. It has an OpenAI-like API but computes nothing. It uses
// plain sockets and one thread per connection. Fields of the request select the answer.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace coppice::loadgen {

// Streams `max_tokens` events "x" 1 ms apart, then usage and [DONE]. Request fields that change
// this: "null_delay_ms": a delay before the first event. "null_error": "status" (400 with an error
// body), "event" (an error event after one text) or "cut" (the connection ends after one text).
class NullServer {
 public:
  NullServer();  // listens on a free port of 127.0.0.1
  ~NullServer();

  std::string base_url() const;
  std::vector<std::string> bodies();  // of the requests received so far

 private:
  void Accept();
  void Serve(int socket);
  bool Answer(int socket, const std::string& body);  // returns false to close the connection

  int listener_ = -1, port_ = 0;
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;
  std::vector<std::string> bodies_;   // guarded by mutex_
  std::vector<std::thread> threads_;  // guarded by mutex_
  std::vector<int> sockets_;          // guarded by mutex_
  std::thread acceptor_;
};

}  // namespace coppice::loadgen
