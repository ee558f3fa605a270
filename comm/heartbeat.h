// The default interval between the heartbeats that a node sends to the coordinator: the default of
// --heartbeat_interval on both sides.
#pragma once

namespace coppice::comm {

inline constexpr double kDefaultHeartbeat_s = 0.5;

}  // namespace coppice::comm
