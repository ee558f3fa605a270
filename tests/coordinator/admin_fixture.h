// For tests of what admins may do: a coordinator with fake replicas, requests that take their time, and
// calls of the administration.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/coordinator/cluster_fixture.h"
#include "tests/testing/temp_dir.h"

namespace coppice::coordinator {

inline std::vector<proto::SequenceUpdate> Short(const proto::StartSequence&) {
  return SayText("yes");
}
inline std::vector<proto::SequenceUpdate> Long(const proto::StartSequence&) {
  return SayText(std::string(200, 'x'));
}

inline std::string Call(const std::string& method, const std::string& path, const std::string& body,
                        const std::string& headers = "") {
  return absl::StrCat(method, " ", path, " HTTP/1.1\r\nHost: x\r\n", headers,
                      "Content-Length: ", body.size(), "\r\n\r\n", body);
}

class AdminTest : public ClusterTest {
 protected:
  std::string Code(const RawAnswer& answer, int status) {
    EXPECT_EQ(answer.status, status) << answer.body;
    return nlohmann::json::parse(answer.body, nullptr, false).value("/error/code"_json_pointer, "");
  }
  RawAnswer Admin(const std::string& what, const std::string& body) {
    return Ask(Call("POST", "/admin/" + what, body));
  }
  // Sends a long completion and waits until it runs.
  std::unique_ptr<RawClient> Begin(const FakeWorker& worker, const std::string& headers = "") {
    const int before = worker.started();
    auto client = std::make_unique<RawClient>(port());
    client->Send(Post(R"({"prompt": "a", "stream": true})", headers));
    EXPECT_TRUE(Eventually([&] { return worker.started() > before; }));
    return client;
  }
  // Before StartCluster. Answers as Short does, but waits for go_ first. Meanwhile the replica
  // neither beats nor takes what arrives.
  FakeWorker::Script Held() {
    options_.registry.heartbeat_interval_s = 20;
    return [this](const proto::StartSequence& start) {
      Eventually([this] { return go_.load(); });
      return Short(start);
    };
  }
  test::TempDir folder_;
  std::atomic<bool> go_ = false;
};

}  // namespace coppice::coordinator
