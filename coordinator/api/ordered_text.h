// A value of a JSON text with its keys in the order in which they are written, which nlohmann::json
// does not keep. Pure.
#pragma once

#include <string>
#include <vector>

namespace coppice::coordinator {

// The text of the value under `keys`, one key for each level of objects, without spaces. Of equal
// keys the last one counts, as for nlohmann::json. "": there is no such value. `body` is valid
// JSON.
std::string OrderedText(const std::string& body, const std::vector<std::string>& keys);

}  // namespace coppice::coordinator
