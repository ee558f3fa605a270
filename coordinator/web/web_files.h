// The pages that the coordinator serves, / and /docs, and their files below /web/: with their
// types, compressed once at start, with validators and a strict policy. Called by routes.
// Read-only after start.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "coordinator/http/http.h"

namespace coppice::coordinator {

class WebFiles {
 public:
  WebFiles();

  // The answer for a file: with its bytes, in gzip if the client prefers that, or 304 if the client
  // has them. nullopt: there is no such file.
  std::optional<HttpReply> Serve(absl::string_view name, const HttpRequest& request) const;

  struct File {
    absl::string_view name;
    const char* type;           // of its content
    absl::string_view content;  // in the program
    std::string gzip;           // the same in gzip; empty: not smaller
    std::string tag;            // of If-None-Match; depends on the content alone
  };
  const std::vector<File>& files() const { return files_; }

 private:
  std::vector<File> files_;
};

// Whether a client asks for JSON rather than for a page: what a library sends to /, not a browser.
bool PrefersJson(absl::string_view accept);

}  // namespace coppice::coordinator
