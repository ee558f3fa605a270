// The command line of coppice-loadgen before base/flag_sources reads it: dashes and underscores are
// equal in flag names, and some flags may be repeated or take several words, as in `vllm bench
// serve`. Called by main. Pure functions.
#pragma once

#include <string>
#include <vector>

namespace coppice::loadgen {

// --base-url=x -> --base_url=x; values are unchanged. The values of each flag that may be repeated
// (base_url, header, metadata, goodput) are gathered into one flag, one per line; metadata and
// goodput also take the words that follow them: --goodput ttft:200 tpot:50.
std::vector<std::string> NormalizeFlags(const std::vector<std::string>& arguments);

// For logs and results: the value of a header is left out, since it may be a key.
std::string CommandLineText(const std::vector<std::string>& arguments);

}  // namespace coppice::loadgen
