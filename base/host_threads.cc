#include "base/host_threads.h"

namespace coppice {
namespace {

class SerialThreads final : public HostThreads {
 public:
  int count() const override { return 1; }
  void RunJobs(int jobs, absl::FunctionRef<void(int)> job) override {
    for (int i = 0; i < jobs; ++i) job(i);
  }
  void Post(std::function<void()> task) override { task(); }
  void Wait() override {}
  void KeepAwake(bool) override {}
};

}  // namespace

HostThreads* HostThreads::Serial() {
  static SerialThreads serial;  // has no state
  return &serial;
}

}  // namespace coppice
