// A value of a JSON text with its keys in the order in which they are written, which nlohmann::json
// does not keep. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace coppice::coordinator {

// The text of the value under `keys`, one key for each level of objects, without spaces. Of equal
// keys the last one counts, as for nlohmann::json. "": there is no such value. `body` is valid
// JSON.
std::string OrderedText(const std::string& body, const std::vector<std::string>& keys);

// Reading an object in order takes the square of its members, so a value may have no object with
// more than so many.
inline constexpr size_t kMostOrderedMembers = 256;
bool FitsInOrder(const nlohmann::json& value);

}  // namespace coppice::coordinator
