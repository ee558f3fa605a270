// Streams that have new output and wait for nothing else. They write it together, after the
// handlers of the event loop that are ready now: a report of a replica brings tokens of many
// streams, and several reports some of the same stream. So each stream has one write, and neither
// its coroutine nor its timer is touched. Used by http_session. Event-loop thread.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <memory>
#include <vector>

#include "base/clock.h"

namespace coppice::coordinator {

class OutputBatch : public std::enable_shared_from_this<OutputBatch> {
 public:
  class Member {
   public:
    virtual ~Member() = default;
    // Writes what can be written without waiting. Does not throw.
    virtual void WriteNow(SteadyTime now) = 0;
  };
  // Once for a member until its WriteNow is called.
  void Add(const boost::asio::any_io_executor& executor, std::shared_ptr<Member> member);

 private:
  void WriteAll();

  std::vector<std::shared_ptr<Member>> members_;
};

}  // namespace coppice::coordinator
