// Any text, in any format, with any cuts: the parts do not depend on the cuts, they only grow, and
// marks may be special tokens. fuzz.sh runs it with libFuzzer; a normal test runs the seeds.
//
// An input: a byte for the format, a byte of switches, three bytes of cuts, and the text.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "tests/coordinator/message/parse_message.h"
#include "tests/testing/fuzz_require.h"
#include "tokenizer/utf8.h"

namespace coppice::coordinator {
namespace {

using test::Require;

constexpr char kSchemaWithTypes[] =
    R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"},)"
    R"( "c": {"type": ["string", "null"]}}})";

void CheckMessage(const uint8_t* data, size_t size) {
  constexpr size_t kHead = 5;
  if (size < kHead) return;
  MessageSyntax syntax;
  const auto formats = ToolFormats();
  if (data[0] < formats.size()) syntax.tool_format = &formats[data[0]];
  syntax.tools = {{"f", ""}, {"g", kSchemaWithTypes}, {"get_weather", ""}};
  if ((data[1] & 1) != 0) syntax.reasoning = {"<think>", "</think>"};
  syntax.reasoning_begun = (data[1] & 2) != 0;
  const std::string text =
      tokenizer::ValidUtf8(std::string(reinterpret_cast<const char*>(data) + kHead, size - kHead));

  const std::string whole = ParseInPieces(syntax, text, {});
  Require(!absl::StartsWith(whole, kShrank), "the end of an answer takes something back");
  std::vector<size_t> every, some;
  for (size_t at = 0; at <= text.size(); ++at) {
    if (!BeginsCharacter(text, at)) continue;
    every.push_back(at);
    const size_t step = 1 + data[2 + every.size() % 3];
    if (every.size() % step == 0) some.push_back(at);
  }
  Require(ParseInPieces(syntax, text, every) == whole, "one by one, the parts differ");
  Require(ParseInPieces(syntax, text, some) == whole, "in pieces, the parts differ");
  if (syntax.tool_format == nullptr) return;
  Require(ParseWithSpecials(syntax, syntax.tool_format->specials, text) == whole,
          "with special tokens, the parts differ");
}

}  // namespace
}  // namespace coppice::coordinator

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  coppice::coordinator::CheckMessage(data, size);
  return 0;
}
