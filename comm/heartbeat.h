// How often a node tells the coordinator that it is alive where nobody says otherwise: the default of
// --heartbeat_interval on both sides.
#pragma once

namespace coppice::comm {

inline constexpr double kDefaultHeartbeat_s = 0.5;

}  // namespace coppice::comm
