// One measurement: a line of JSON on stdout.
#pragma once

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"

namespace coppice::bench {

// Prints itself at its end. Names and texts need no escape.
class JsonLine {
 public:
  explicit JsonLine(const char* bench) { Text("bench", bench); }
  ~JsonLine() {
    std::printf("{%s}\n", fields_.c_str());
    std::fflush(stdout);
  }
  JsonLine(const JsonLine&) = delete;
  JsonLine& operator=(const JsonLine&) = delete;

  JsonLine& Text(const char* name, const std::string& value) {
    return Raw(name, absl::StrCat("\"", value, "\""));
  }
  JsonLine& Number(const char* name, double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.4g", value);
    return Raw(name, text);
  }
  JsonLine& Count(const char* name, int64_t value) { return Raw(name, absl::StrCat(value)); }

 private:
  JsonLine& Raw(const char* name, const std::string& value) {
    absl::StrAppend(&fields_, fields_.empty() ? "" : ", ", "\"", name, "\": ", value);
    return *this;
  }
  std::string fields_;
};

}  // namespace coppice::bench
