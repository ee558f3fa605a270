// Measures how much is served per second while something waits. The dispatcher estimates waits from
// it. The recent half minute counts most. The clock is an argument; event-loop thread.
#pragma once

#include <optional>

namespace coppice::coordinator {

class ServiceRate {
 public:
  // waiting: something has waited since the last call.
  void Advance(double now_s, bool waiting);
  // Records a service. Only services while something waits count. Call it after Advance.
  void Served(double cost, bool waiting);
  // nullopt: too little was served for an estimate.
  std::optional<double> PerSecond() const;

 private:
  double at_s_ = -1;
  double seconds_ = 0, cost_ = 0, times_ = 0;  // decayed sums of the past
};

}  // namespace coppice::coordinator
