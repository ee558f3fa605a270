// Recognises where calls begin, go on and end in text that may still grow. Used by message_parser.
// Pure: what is found in a text is found in every longer one, so it does not matter how the text was
// cut. Nothing looks further than a few hundred bytes.
#pragma once

#include <cstddef>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "coordinator/message/message_syntax.h"
#include "coordinator/message/tool_format.h"

namespace coppice::coordinator {

constexpr absl::string_view kMarkSpace = " \t\r\n";

// What a text begins with.
enum class Begins {
  kNothing,         // that is looked for
  kUnknown,         // more text decides
  kCall,            // the head of a call, up to its name or to its arguments
  kEarlyArguments,  // a call in JSON whose arguments come before its name
  kContentMark,     // ToolFormat::content_mark
  kClose,           // a text that ends a call, a list or a section
  kMember,          // the next member of a call in JSON, up to its value
  kEnd,             // the end of a call in JSON
  kArgument,        // of a call in XML, up to its value
};

// Where a reader of calls is, behind a call or a part of its end.
struct CallPlace {
  bool in_list = false;               // a ] is to come
  bool section_closed = false;        // so that only a new section may follow
  absl::string_view call_close = "";  // what is left of the text that ends the call
};

struct CallHead {
  Begins begins = Begins::kNothing;
  size_t size = 0;             // bytes of what the text begins with
  const Tool* tool = nullptr;  // kCall
  CallPlace place = {};        // kCall, kEarlyArguments: of the call; kClose: what follows is there
  absl::string_view key = "";  // kMember, kArgument
};

class CallReader {
 public:
  // Both outlive this. format: not nullptr when a member is called.
  CallReader(const ToolFormat* format, absl::Span<const Tool> tools)
      : format_(format), tools_(tools) {}

  // whole: no more text comes, so nothing is unknown.
  // early: arguments before a name are looked for.
  // In content. first: nothing but white space came before it in the answer.
  CallHead Section(absl::string_view text, bool first, bool early, bool whole) const;
  // Behind a call.
  CallHead Next(absl::string_view text, const CallPlace& place, bool early, bool whole) const;
  // kJson: inside of the object, behind the value of a member.
  CallHead Member(absl::string_view text, bool whole) const;
  // The same before the name is known: kCall.
  CallHead LateName(absl::string_view text, bool whole) const;
  // kXml: inside of the call, between arguments.
  CallHead Argument(absl::string_view text, bool whole) const;
  // The text is the beginning of one that ends the call or the section.
  bool MayClose(absl::string_view text, const CallPlace& place) const;

  // The key is that of arguments in JSON. Models take one word for the other.
  static bool IsArgumentKey(absl::string_view key) {
    return key == "arguments" || key == "parameters";
  }

 private:
  CallHead NextCall(absl::string_view text, bool in_list, bool early, bool whole) const;

  const ToolFormat* format_;
  absl::Span<const Tool> tools_;
};

// The first part of a text that has no white space in it, and what follows it.
absl::string_view FirstChunk(absl::string_view text, absl::string_view* rest);

}  // namespace coppice::coordinator
