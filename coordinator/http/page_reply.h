// Pages for people: the headers of all of them, and pages that are made from text. Pure.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "coordinator/http/http.h"

namespace coppice::coordinator {

// The headers of every page and file that let a browser load nothing from elsewhere, run no script
// but those files, and be in no frame.
const HttpHeaders& PageHeaders();

// Text as HTML: in an element, or in quotes as the value of an attribute.
std::string HtmlText(absl::string_view text);

// A whole page. title: text. body: HTML.
std::string PageText(absl::string_view title, absl::string_view body);
// The answer with such a page.
HttpReply PageReply(int status, std::string page);

}  // namespace coppice::coordinator
