#include "coordinator/http/output_batch.h"

#include <boost/asio/post.hpp>
#include <utility>

namespace coppice::coordinator {

void OutputBatch::Add(const boost::asio::any_io_executor& executor,
                      std::shared_ptr<Member> member) {
  members_.push_back(std::move(member));
  if (members_.size() == 1)
    boost::asio::post(executor, [self = shared_from_this()] { self->WriteAll(); });
}

void OutputBatch::WriteAll() {
  const std::vector<std::shared_ptr<Member>> members = std::exchange(members_, {});
  const SteadyTime now = SteadyNow();
  for (const std::shared_ptr<Member>& member : members) member->WriteNow(now);
}

}  // namespace coppice::coordinator
