// Reads the arguments of a call that stand as text between marks, as XML has them, and writes them as
// JSON: as the schema of the tool tells, since the text of a number and that of a string look alike.
// Used by message_parser. Thread-compatible.
#pragma once

#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "coordinator/message/call_arguments.h"
#include "coordinator/message/call_head.h"
#include "coordinator/message/message_syntax.h"
#include "coordinator/message/tool_format.h"

namespace coppice::coordinator {

// How a text is written as a value of JSON, by the schema of an argument.
enum class TextValue {
  kString,  // as a string
  kOther,   // as it is, if it is JSON; else as a string
  kMixed,   // as it is, if it is an object, an array or null; else as a string
};

// Of each argument, by the schema of a tool.
absl::flat_hash_map<std::string, TextValue> TextValues(const Tool& tool);

std::string TextAsJson(absl::string_view text, TextValue value);

class TextArgumentsReader {
 public:
  // format must outlive this. Its kind is kXml.
  TextArgumentsReader(const ToolFormat& format, const Tool& tool)
      : format_(format), reader_(&format, {}), values_(TextValues(tool)) {}

  // Takes what is decided from the front of *text, and appends JSON. kTaken: more text decides.
  // kLast: the first part of call_close was taken. kWrong: what is left is no part of the call.
  Took Read(absl::string_view* text, bool whole, std::string* json);
  // No more comes. Writes a value that has begun.
  void Finish(std::string* json);

 private:
  Took ReadMarks(absl::string_view* text, bool whole, std::string* json);
  bool ReadValue(absl::string_view* text, bool whole, std::string* json);  // false: more is needed
  void Write(absl::string_view text, std::string* json);

  const ToolFormat& format_;
  const CallReader reader_;
  const absl::flat_hash_map<std::string, TextValue> values_;
  bool first_ = true;  // no argument has come
  bool in_value_ = false;
  TextValue value_ = TextValue::kOther;
  bool line_ = false;  // a line end has come, which may be that before argument_close
  std::string text_;   // of a value that is not a string
};

}  // namespace coppice::coordinator
