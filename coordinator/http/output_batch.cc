#include "coordinator/http/output_batch.h"

#include <boost/asio/post.hpp>
#include <utility>

namespace coppice::coordinator {

// In this order, so that what throws for want of memory leaves nothing behind that nobody writes.
void OutputBatch::Add(const boost::asio::any_io_executor& executor,
                      std::shared_ptr<Member> member) {
  if (members_.empty())
    boost::asio::post(executor, [self = shared_from_this()] { self->WriteAll(); });
  members_.push_back(std::move(member));
}

void OutputBatch::WriteAll() {
  const std::vector<std::shared_ptr<Member>> members = std::exchange(members_, {});
  const SteadyTime now = SteadyNow();
  for (const std::shared_ptr<Member>& member : members) member->WriteNow(now);
}

}  // namespace coppice::coordinator
