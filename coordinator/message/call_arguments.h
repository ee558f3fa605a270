// Reads the arguments of a call while they grow: those in JSON, and those in Python's notation, which
// are written as JSON. What is written is never taken back, and nothing is closed that the model did
// not close. Used by message_parser. Thread-compatible.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace coppice::coordinator {

// What became of a character.
enum class Took {
  kTaken,  // it belongs to the arguments
  kLast,   // it is the last one
  kNone,   // it is not a part: what came before it is whole
  kWrong,  // it is not a part, and what came before is not whole
};

// One value of JSON, as it is written. Tells where it ends; does not check it.
class JsonValueReader {
 public:
  Took Read(char c);

 private:
  size_t depth_ = 0;
  bool begun_ = false, scalar_ = false, string_ = false, escape_ = false;
};

// The keyword arguments of a call in Python and its closing bracket, behind the opening one. Strings
// with escapes, numbers, True, False and None, lists, tuples, and dicts with strings as keys.
class PythonArgumentsReader {
 public:
  // Appends to *json what is decided. After kWrong, held(), which came before c, is no part either.
  Took Read(char c, std::string* json);
  const std::string& held() const { return held_; }
  // No more comes. Writes a number or a word that is whole.
  void Finish(std::string* json);

 private:
  enum class At {
    kName,  // before the name of an argument, or the end
    kInName,
    kEquals,
    kValue,
    kElement,  // before a value, or the end of a list
    kKey,      // before a key of a dict, or its end
    kColon,
    kAfterValue,
    kQuote,        // behind the quote that begins a string
    kSecondQuote,  // behind two quotes: an empty string, or three quotes
    kString,
    kEscape,
    kWord,  // inside of a number or word
  };

  Took ReadAny(char c, std::string* json);
  Took ReadName(char c, std::string* json);
  Took ReadValue(char c, std::string* json);
  Took ReadAfterValue(char c, std::string* json);
  Took ReadAfterString(char c, std::string* json);
  Took ReadString(char c, std::string* json);
  Took ReadEscape(char c, std::string* json);
  Took Close(std::string* json);
  void EndString(std::string* json);
  bool EndWord(std::string* json);  // false: it is no value
  void Separate(std::string* json);

  At at_ = At::kName;
  std::string open_;     // brackets
  bool first_ = true;    // no element of the innermost bracket has come
  bool key_ = false;     // the string is a key
  bool triple_ = false;  // the string is between three quotes
  size_t quotes_ = 0;    // that may be the end of it
  char quote_ = 0;
  std::string escape_;  // without its backslash
  std::string word_;    // a name, a number or a word
  std::string held_;    // what came since it began
};

// As a part of a JSON string.
void AppendToJsonString(absl::string_view text, std::string* json);

}  // namespace coppice::coordinator
