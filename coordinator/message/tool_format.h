// How models write calls of tools: a table of formats, looked up by name or found by the texts of a
// chat template. message_parser.h reads calls by a row, answer_structure.h demands them by it. Pure;
// any thread.
//
// An answer is content, and then a section of calls:
//   open  call_open CALL call_close  between  call_open CALL call_close  close
// Readers take any white space where these texts have some.
#pragma once

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace coppice::coordinator {

enum class CallKind {
  kJson,       // {"name": "f", KEY: {...}}
  kNamedJson,  // f NAME_END {...}
  kPythonic,   // f(a=1, b="x")
  kXml,        // f NAME_END and each argument: ARGUMENT_OPEN a KEY_END 1 ARGUMENT_CLOSE
};

enum class CallIds {
  kHex,    // "call_" and 24 hexadecimal digits
  kNine,   // nine letters and digits
  kNamed,  // "functions.f:0", by name and index
};

struct CallSection {
  std::string open, close;  // "": the section begins with the first call, ends with the last one
  bool anywhere = true;     // false: only at the beginning of the answer, after the reasoning
};

struct ToolFormat {
  std::string name;
  CallKind kind = CallKind::kJson;
  // A template has this format if it mentions all texts of one of these lists.
  std::vector<std::vector<std::string>> known_by;

  std::vector<CallSection> sections;  // any of these
  bool list = false;                  // the calls of a section stand in [ and ]
  std::string call_open = "", call_close = "";
  std::string between = "";
  bool loose = false;  // models may leave out the white space in these texts

  std::string key = "arguments";  // kJson: of the arguments
  std::string name_end = "";      // kNamedJson, kXml
  // kNamedJson: behind the name may stand this text and then any text up to name_end.
  std::string name_note = "";
  std::string argument_open = "", key_end = "", argument_close = "";  // kXml

  // In place of a call: what follows is content.
  std::string content_mark = "";

  CallIds ids = CallIds::kHex;
  // Texts that are special tokens of some tokenizers.
  std::vector<std::string> specials = {};
};

// For models whose template does not say how to write calls.
inline constexpr char kDefaultToolFormat[] = "hermes";

// In the order in which a template is compared with them.
absl::Span<const ToolFormat> ToolFormats();

// nullptr if there is none.
const ToolFormat* FindToolFormat(absl::string_view name);

// mentions: whether the template's source has a text. A template that knows no tools gets the
// default, hermes. nullptr: it has tools, in a format that is not in the table.
const ToolFormat* DetectToolFormat(absl::FunctionRef<bool(absl::string_view)> mentions);

}  // namespace coppice::coordinator
