#include "coordinator/request/answer_page.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "coordinator/http/page_reply.h"

namespace coppice::coordinator {
namespace {

class AnswerPage : public AnswerWriter {
 public:
  explicit AnswerPage(const GenerateRequest* request) : request_(*request) {}
  ErrorForm error_form() const override { return ErrorForm::kPage; }

  std::string Body(const AnswerIdentity& identity, std::vector<Choice> choices,
                   absl::FunctionRef<void(Choice*)> show, const std::vector<double>& /*beam_mass*/,
                   const Usage& usage,
                   const std::optional<std::vector<std::string>>& /*rounds*/) override {
    std::string body = absl::StrCat("<section>\n<h2>Question</h2>\n<pre>",
                                    HtmlText(request_.question), "</pre>\n</section>\n",
                                    "<section>\n<h2>", choices.size() == 1 ? "Answer" : "Answers",
                                    " of ", HtmlText(identity.model), "</h2>\n<ol>\n");
    for (Choice& choice : choices) {
      show(&choice);
      absl::StrAppend(&body, "<li>", ChoiceText(choice), "</li>\n");
    }
    absl::StrAppend(&body, "</ol>\n<p class=\"note\">", Summary(usage),
                    "</p>\n<p><a href=\"./\">Ask another question</a></p>\n</section>\n");
    return PageText("Coppice", body);
  }
  Events Delta(const AnswerIdentity&, absl::Span<const Choice>, std::optional<double>,
               const EventUsage&) override {
    return {};
  }
  Events End(const AnswerIdentity&, const Usage&) override { return {}; }
  Events Error(const AnswerIdentity&, const ApiError&) override { return {}; }

 private:
  static std::string ChoiceText(const Choice& choice) {
    std::string text;
    if (!choice.reasoning.empty()) {
      absl::StrAppend(&text, "<details><summary>Reasoning</summary><pre>",
                      HtmlText(choice.reasoning), "</pre></details>");
    }
    absl::StrAppend(&text, "<pre>", HtmlText(choice.text), "</pre><p class=\"note\">");
    if (choice.score) absl::StrAppendFormat(&text, "score %.3f, ", *choice.score);
    absl::StrAppend(&text, choice.num_tokens, choice.num_tokens == 1 ? " token" : " tokens");
    if (choice.finish_reason == "length") text += ", cut at the longest length";
    return text + "</p>";
  }
  static std::string Summary(const Usage& usage) {
    const DecodingStats& stats = usage.decoding;
    std::string text =
        absl::StrFormat("%.0f ms. The target model made %d forward passes for %d layers of tokens",
                        usage.total_ms, stats.target_passes, stats.layers);
    if (stats.drafted_nodes == 0) return text + "; nothing was drafted.";
    absl::StrAppendFormat(&text, "; it accepted %d of %d drafted tokens.", stats.accepted_nodes,
                          stats.drafted_nodes);
    return text;
  }

  const GenerateRequest& request_;
};

}  // namespace

std::unique_ptr<AnswerWriter> MakeAnswerPage(const GenerateRequest* request) {
  return std::make_unique<AnswerPage>(request);
}

}  // namespace coppice::coordinator
