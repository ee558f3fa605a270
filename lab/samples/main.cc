// Prints random texts of a format, each as a JSON string on a line of its own.
//
//   coppice-samples (regex | grammar | json_schema) COUNT SEED < FORMAT
//
// Status 1: the format is refused; the reason is on standard error. Texts that get longer than
// kLongest are given up and not counted.
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "grammar/compile.h"

namespace coppice::grammar {
namespace {

constexpr size_t kLongest = 20'000;
constexpr int kMostTries = 100;  // for each text

// Byte by byte at random; after `eager` bytes brackets and quotes are closed more and more often.
// nullopt: the text gets too long.
std::optional<std::string> RandomTextOf(Automaton* automaton, std::mt19937* random, size_t eager) {
  std::string text;
  for (Automaton::State state = automaton->start(); text.size() < kLongest;) {
    const bool hurry = text.size() > eager;
    if (automaton->Complete(state) && (hurry || (*random)() % 4 == 0)) return text;
    std::vector<uint8_t> live, plain, closing;
    for (int byte = 0; byte < 256; ++byte) {
      const auto b = static_cast<uint8_t>(byte);
      if (automaton->Next(state, b) == Automaton::kDead) continue;
      live.push_back(b);
      if (byte >= 0x20 && byte < 0x7f && byte != '\\') plain.push_back(b);
      if (byte == '"' || byte == ']' || byte == '}') closing.push_back(b);
    }
    if (live.empty()) {
      if (automaton->Complete(state)) return text;
      return std::nullopt;  // the limits of the automaton
    }
    const bool close = !closing.empty() && (*random)() % 4 < (hurry ? 3 : 1);
    const bool usual = !plain.empty() && (*random)() % 4 != 0;
    const std::vector<uint8_t>& from = close ? closing : usual ? plain : live;
    text.push_back(static_cast<char>(from[(*random)() % from.size()]));
    state = automaton->Next(state, static_cast<uint8_t>(text.back()));
  }
  return std::nullopt;
}

int Main(absl::string_view kind_name, absl::string_view count_text, absl::string_view seed_text) {
  FormatSpec spec;
  const auto kind = ParseFormatKind(kind_name);
  int count = 0;
  uint32_t seed = 0;
  if (!kind.ok() || !absl::SimpleAtoi(count_text, &count) || !absl::SimpleAtoi(seed_text, &seed))
    return 2;
  spec.kind = *kind;
  spec.text.assign(std::istreambuf_iterator<char>(std::cin), {});
  std::vector<std::string> annotations;
  auto automaton = CompileFormat(spec, Automaton::AllBytes(), &annotations);
  if (!automaton.ok()) {
    std::cerr << automaton.status().message() << "\n";
    return 1;
  }
  for (const std::string& place : annotations) std::cerr << "ignored: " << place << "\n";
  std::mt19937 random(seed);
  for (int tries = count * kMostTries; count > 0 && tries > 0; --tries) {
    const auto text = RandomTextOf(&*automaton, &random, random() % 60);
    if (!text) continue;
    std::cout << nlohmann::json(*text).dump(-1, ' ', true) << "\n";
    --count;
  }
  if (count == 0) return 0;
  std::cerr << "no text of the format is short enough\n";
  return 1;
}

}  // namespace
}  // namespace coppice::grammar

int main(int argc, char** argv) {
  const int status = argc == 4 ? coppice::grammar::Main(argv[1], argv[2], argv[3]) : 2;
  if (status == 2)
    std::fputs("usage: coppice-samples (regex | grammar | json_schema) COUNT SEED < FORMAT\n",
               stderr);
  return status;
}
