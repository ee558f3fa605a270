// The trace of a request across programs: the headers traceparent and tracestate of the W3C
// recommendation Trace Context. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace coppice {

struct TraceContext {
  std::string trace_id;   // 32 digits of lower-case hex; "" = there is no trace
  std::string parent_id;  // 16 digits: the span that this one is part of, or this one itself
  std::string flags;      // 2 digits
  std::string state;      // the value of tracestate, "" = none
};

// The value of a traceparent header; state stays empty. nullopt: malformed. Of a version that is
// not known, what version 00 has.
std::optional<TraceContext> ParseTraceParent(absl::string_view text);
// The entries of tracestate headers, as the value of one; "" if they are malformed.
std::string ParseTraceState(const std::vector<std::string>& headers);
// The value of traceparent, of version 00.
std::string TraceParentText(const TraceContext& trace);

// The context of a request: the trace of its headers, with a new span. Malformed or several
// traceparent headers, or none, begin a new trace, without flags. A malformed tracestate is left
// out. random: 64 random bits.
TraceContext StartSpan(const std::vector<std::string>& traceparents,
                       const std::vector<std::string>& tracestates,
                       absl::FunctionRef<uint64_t()> random);

}  // namespace coppice
