// For tests: a request without a dispatcher, whose replica is the test.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/request/request.h"
#include "tests/coordinator/byte_tokenizer.h"
#include "tests/coordinator/fake_exchange.h"
#include "tests/coordinator/fake_worker.h"

namespace coppice::coordinator {

class RequestTest : public ::testing::Test {
 protected:
  Request& Make(GenerateRequest generate) {
    if (generate.prompts.empty()) generate.prompts = {Bytes("p")};
    generate.eos_ids = {ByteTokenizer::kEos};
    generate.vocab_size = tokenizer_.vocab_size();
    Request::Origin origin;
    origin.model = "demo";
    request_ = std::make_unique<Request>(std::move(generate), origin, &tokenizer_, exchange_);
    request_->MakeSequences();
    for (int i = 0; i < request_->sequences().size(); ++i)
      request_->Start(i, i + 1, "replica-0", "cop-0", 0.5);
    return *request_;
  }
  static proto::SequenceUpdate Stable(const std::string& text) {
    proto::SequenceUpdate update;
    for (const TokenId token : Bytes(text)) update.add_stable_tokens(token);
    return update;
  }
  static proto::SequenceUpdate Finished(const std::vector<proto::Hypothesis>& hypotheses) {
    proto::SequenceUpdate update;
    update.set_finished(true);
    for (const proto::Hypothesis& hypothesis : hypotheses) *update.add_hypotheses() = hypothesis;
    *update.mutable_stats() = MakeStats();
    return update;
  }
  static GenerateRequest Beams(int n) {
    GenerateRequest generate;
    generate.params.kind = sampling::DecodingKind::kBeamSearch;
    generate.params.beam_width = 4;
    generate.params.num_hypotheses = generate.n = n;
    return generate;
  }

  const ByteTokenizer tokenizer_;
  const std::shared_ptr<FakeExchange> exchange_ = std::make_shared<FakeExchange>();
  std::unique_ptr<Request> request_;
};

}  // namespace coppice::coordinator
