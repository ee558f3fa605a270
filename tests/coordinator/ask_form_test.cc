// The form for browsers without JavaScript (POST /ask): the request that it means, and its answers
// as pages, from a whole coordinator with a fake replica.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/coordinator/cluster_fixture.h"
#include "tests/testing/temp_dir.h"

namespace coppice::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A sample repeats its prompt. Beams: one that looks like HTML, and one that was cut.
std::vector<proto::SequenceUpdate> AnswerTheForm(const proto::StartSequence& start) {
  if (start.decoding().kind() == "multinomial") {
    std::string prompt;
    for (const TokenId id : start.prompt()) prompt += ByteTokenizer().TokenBytes(id, true);
    return SayText(prompt);
  }
  std::vector<proto::SequenceUpdate> updates(1);
  updates[0].set_finished(true);
  *updates[0].add_hypotheses() = MakeHypothesis(Bytes("<b>1 & 2</b>", true), -1, true);
  *updates[0].add_hypotheses() = MakeHypothesis(Bytes("'two'"), -2, false);
  *updates[0].mutable_stats() = MakeStats();
  return updates;
}

class AskFormTest : public ClusterTest {
 protected:
  void Begin() {
    StartCluster();
    worker_ = Join("replica-0", AnswerTheForm);
    WaitReady();
  }
  void TearDown() override {
    worker_.reset();
    ClusterTest::TearDown();
  }
  RawAnswer Submit(const std::string& form, const std::string& headers = "",
                   const std::string& type = "application/x-www-form-urlencoded") {
    return Ask(absl::StrCat("POST /ask HTTP/1.1\r\nHost: here:8000\r\nContent-Type: ", type,
                            "\r\nContent-Length: ", form.size(), "\r\n", headers, "\r\n", form));
  }
  std::unique_ptr<FakeWorker> worker_;
};

TEST_F(AskFormTest, ASampleAnswersWithAPage) {
  Begin();
  const RawAnswer answer = Submit("prompt=a+%3Cscript%3E%0D%0Ab%21&system=&max_tokens=40&beams=1");
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_THAT(answer.head, HasSubstr("Content-Type: text/html; charset=utf-8"));
  EXPECT_THAT(answer.head, HasSubstr("Content-Security-Policy: default-src 'none'; "));
  EXPECT_THAT(answer.head, HasSubstr("Cache-Control: no-store"));
  EXPECT_THAT(answer.body, HasSubstr("<h2>Question</h2>\n<pre>a &lt;script&gt;\nb!</pre>"));
  EXPECT_THAT(answer.body, HasSubstr("<li><pre>a &lt;script&gt;\nb!</pre>"));
  EXPECT_THAT(answer.body, Not(HasSubstr("<script")));
  EXPECT_THAT(answer.body, HasSubstr("it accepted 6 of 12 drafted tokens"));
}

TEST_F(AskFormTest, BeamsComeWithTheirScores) {
  Begin();
  const std::string page = Submit("prompt=q&beams=2&max_tokens=40").body;
  EXPECT_THAT(page, HasSubstr("<li><pre>&lt;b&gt;1 &amp; 2&lt;/b&gt;</pre>"
                              "<p class=\"note\">score -0.077, 13 tokens</p></li>"));
  EXPECT_THAT(page, HasSubstr("<li><pre>&#39;two&#39;</pre><p class=\"note\">score -0.400, "
                              "5 tokens, cut at the longest length</p></li>"));
}

TEST_F(AskFormTest, AChatTemplateReadsTheSystemPrompt) {
  chat_template_ = "{% for m in messages %}[{{ m.role[0] }}:{{ m.content }}]{% endfor %}";
  Begin();
  EXPECT_THAT(Submit("prompt=hi&system=be+kind").body, HasSubstr("<pre>[s:be kind][u:hi]</pre>"));
}

TEST_F(AskFormTest, WhatIsWrongIsSaidOnAPage) {
  Begin();
  struct Case {
    const char* form;
    int status;
    const char* says;
  };
  for (const Case& wrong : {Case{"beams=4", 400, "there is no question"},
                            Case{"prompt=a&max_tokens=many", 400, "max_tokens must be "},
                            Case{"prompt=a&beams=0", 400, "beam_width must be between 1 and"},
                            Case{"prompt=a&system=b", 400, "the model has no chat template"},
                            Case{"prompt=a%FF", 400, "the form is not UTF-8"}}) {
    const RawAnswer answer = Submit(wrong.form);
    EXPECT_EQ(answer.status, wrong.status) << wrong.form;
    EXPECT_THAT(answer.head, HasSubstr("Content-Type: text/html"));
    EXPECT_THAT(answer.body, HasSubstr(absl::StrCat("<p>", wrong.says))) << wrong.form;
  }
  EXPECT_EQ(Submit("{}", "", "application/json").status, 415);
}

// Pages of other servers could make a browser ask, too.
TEST_F(AskFormTest, OnlyOwnPagesMaySendIt) {
  Begin();
  for (const char* origin : {"http://here:8000", "https://HERE:8000"})
    EXPECT_EQ(Submit("prompt=a", absl::StrCat("Origin: ", origin, "\r\n")).status, 200) << origin;
  for (const char* origin : {"http://here:8001", "http://here:8000.org", "null", ""})
    EXPECT_EQ(Submit("prompt=a", absl::StrCat("Origin: ", origin, "\r\n")).status, 403) << origin;
}

TEST_F(AskFormTest, AServerWithKeysOrWithoutPagesAnswersNoForm) {
  test::TempDir folder;
  folder.Write("keys", "0123456789abcdef somebody\n");
  options_.api_keys_file = folder.File("keys");
  Begin();
  const RawAnswer answer = Submit("prompt=a");
  EXPECT_EQ(answer.status, 401);
  EXPECT_THAT(answer.body, HasSubstr("<h2>No answer</h2>"));
  EXPECT_EQ(Submit("prompt=a", "Authorization: Bearer 0123456789abcdef\r\n").status, 200);
  worker_.reset();
  StopCluster();
  options_.web = false;
  options_.api_keys_file = "";
  Begin();
  EXPECT_EQ(Submit("prompt=a").status, 404);
}

}  // namespace
}  // namespace coppice::coordinator
