// The clients of very many streams, on one thread. Sampled streams are read as their events come
// and compared with the stamps of their tokens. The others are emptied five times a second without
// a look at what they say, so that the clients are not what limits the coordinator.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lab/bench/coordinator/stamps.h"

namespace coppice::bench {

struct StreamOptions {
  int port = 0;
  int streams = 0;
  double opened_per_s = 1000;
  bool usage = false;      // the counts so far in each event
  size_t token_bytes = 0;  // bytes of the text of each token
};

// What was seen between StreamClients::Begin and End.
struct StreamsSeen {
  double seconds = 0;
  int64_t sampled_tokens = 0, sampled_events = 0;
  double sampled_bytes_per_s = 0, other_bytes_per_s = 0;  // of one stream
  std::vector<double> latencies_ms;  // of sampled tokens, ascending: from the report to the client
  int ended = 0;                     // streams that have ended or were refused
};

class StreamClients {
 public:
  // stamps must outlive the clients.
  StreamClients(const StreamOptions& options, const Stamps* stamps);
  ~StreamClients();
  StreamClients(const StreamClients&) = delete;

  void OpenAll();
  void Read(double seconds);  // what comes in this time
  void Begin();
  StreamsSeen End();

 private:
  struct Stream {
    int socket = -1;
    bool answered = false;  // its status was 200
    size_t tokens = 0;      // that have come
    std::string rest;       // of a line; sampled streams
  };
  void Open(int number);
  void Turn(int64_t until_ns);
  void ReadSampled(int number);
  void Take(int number, int64_t now_ns);
  void Empty(int number);
  void Lose(int number);

  const StreamOptions options_;
  const Stamps* const stamps_;
  int epoll_ = -1;
  std::vector<Stream> streams_;
  int next_emptied_ = 0;
  int64_t last_turn_ns_ = 0, began_ns_ = 0;
  double due_ = 0;  // streams that should have been emptied
  int64_t sampled_bytes_ = 0, other_bytes_ = 0, events_ = 0;
  StreamsSeen seen_;
};

// A connected socket of the server on this host's port; ends the program if there is none.
int ConnectTo(int port);
// The bytes of a POST request.
std::string Post(const std::string& path, const std::string& body);

}  // namespace coppice::bench
