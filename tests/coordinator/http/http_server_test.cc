// The HTTP server with an app of the test: what it survives, what it holds, whom it disconnects.
#include "coordinator/http/http_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <functional>
#include <stdexcept>
#include <thread>

#include "absl/strings/str_cat.h"
#include "coordinator/http/gzip.h"
#include "tests/coordinator/cluster_fixture.h"
#include "tests/coordinator/gate.h"
#include "tests/coordinator/raw_client.h"

namespace coppice::coordinator {
namespace {

namespace asio = boost::asio;

class TestApp : public HttpApp {
 public:
  std::optional<HttpReply> CheckHead(HttpRequest* request) override {
    return check ? check(request) : std::nullopt;
  }
  void Handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) override {
    if (handle && request.path != "/health") return handle(std::move(request), exchange);
    HttpReply reply;
    reply.body = "fine";
    exchange->Reply(std::move(reply));
  }
  void Observe(const HttpRequest& request, int, double) override {
    if (observe) observe(request);
  }
  void SetConnections(int open) override { connections = open; }

  std::function<std::optional<HttpReply>(HttpRequest*)> check;
  std::function<void(HttpRequest, std::shared_ptr<HttpExchange>)> handle;
  std::function<void(const HttpRequest&)> observe;
  std::atomic<int> connections{0};
};

class HttpServerTest : public ::testing::Test {
 protected:
  void SetUp() override { options_.listen = "127.0.0.1:0"; }
  void TearDown() override {
    io_.stop();
    if (thread_.joinable()) thread_.join();
  }
  void Start(ParsePool* jobs = nullptr) {
    auto started = HttpServer::Start(&io_, options_, &clock_, &app_, jobs);
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
    thread_ = std::thread([this] { io_.run(); });  // what a handler throws ends the test
  }
  int port() const { return server_->port(); }
  // Starts the server and asks for a stream. *stream is what the app got.
  std::unique_ptr<RawClient> StartWithStream(std::shared_ptr<HttpExchange>* stream) {
    app_.handle = [this, stream](HttpRequest, std::shared_ptr<HttpExchange> exchange) {
      *stream = std::move(exchange);
      came_ = true;
    };
    Start();
    auto client = std::make_unique<RawClient>(port());
    client->Send(Get("/stream"));
    EXPECT_TRUE(Eventually([this] { return came_.load(); }));
    return client;
  }
  RawAnswer Ask(const std::string& request) {
    RawClient client(port());
    client.Send(request);
    return client.ReadAnswer();
  }
  void ExpectClosedAndOthersServed(const std::string& request) {
    RawClient client(port());
    client.Send(request);
    EXPECT_EQ(client.ReadAnswer().status, 0);
    EXPECT_EQ(Ask(Get("/health")).body, "fine");
    EXPECT_TRUE(Eventually([this] { return app_.connections == 0; }));
  }

  HttpOptions options_;
  SteadyClock clock_;
  TestApp app_;
  asio::io_context io_;
  std::unique_ptr<HttpServer> server_;
  std::atomic<bool> came_{false};  // StartWithStream
  std::thread thread_;
};

TEST_F(HttpServerTest, WhatTheAppThrowsClosesTheSessionAlone) {
  app_.check = [](HttpRequest* request) -> std::optional<HttpReply> {
    if (request->path == "/check") throw std::runtime_error("check");
    return std::nullopt;
  };
  app_.handle = [](HttpRequest, std::shared_ptr<HttpExchange>) { throw std::bad_alloc(); };
  app_.observe = [](const HttpRequest& request) {
    if (request.path == "/observe") throw std::length_error("observe");
  };
  Start();
  ExpectClosedAndOthersServed(Get("/check"));
  ExpectClosedAndOthersServed(Get("/handle"));
  app_.handle = nullptr;
  RawClient client(port());
  client.Send(Get("/observe"));
  EXPECT_EQ(client.ReadAnswer().status, 200);  // it is observed after it is written
  EXPECT_TRUE(client.AtEnd());
  EXPECT_EQ(Ask(Get("/health")).body, "fine");
}

// The callback is called where the end of the connection is seen: beside the session's coroutine.
TEST_F(HttpServerTest, WhatTheCallbackOfADisconnectThrowsClosesTheSessionAlone) {
  std::atomic<bool> called{false};
  app_.handle = [&](HttpRequest, std::shared_ptr<HttpExchange> exchange) {
    exchange->OnDisconnect([&] {
      called = true;
      throw std::runtime_error("disconnected");
    });
  };
  Start();
  {
    RawClient client(port());
    client.Send(Get("/wait"));
    EXPECT_TRUE(Eventually([&] { return app_.connections == 1; }));
  }
  EXPECT_TRUE(Eventually([&] { return called.load(); }));
  EXPECT_EQ(Ask(Get("/health")).body, "fine");
  EXPECT_TRUE(Eventually([this] { return app_.connections == 0; }));
}

// A request that the app has taken and then throws is told that its client has gone.
TEST_F(HttpServerTest, ARequestWhoseSessionFailsIsDisconnected) {
  std::atomic<bool> disconnected{false};
  app_.handle = [&](HttpRequest, std::shared_ptr<HttpExchange> exchange) {
    exchange->OnDisconnect([&] { disconnected = true; });
    throw std::runtime_error("handle");
  };
  Start();
  ExpectClosedAndOthersServed(Get("/handle"));
  EXPECT_TRUE(disconnected);
}

TEST_F(HttpServerTest, AStreamThatIsNotReadEndsBeforeItsOutputIsLarge) {
  constexpr int kEvents = 200;
  std::shared_ptr<HttpExchange> stream;
  std::atomic<bool> disconnected{false};
  std::atomic<int> sent{0};
  const std::string event(1 << 20, 'x');
  std::function<void()> send = [&] {
    if (disconnected || sent == kEvents) return;
    stream->SendEvent({event, ""});
    ++sent;
    asio::post(io_, send);
  };
  app_.handle = [&](HttpRequest, std::shared_ptr<HttpExchange> exchange) {
    stream = std::move(exchange);
    stream->OnDisconnect([&] { disconnected = true; });
    send();
  };
  Start();
  RawClient deaf(port());
  deaf.Send(Get("/stream"));
  EXPECT_TRUE(Eventually([&] { return disconnected.load(); }));
  EXPECT_LT(sent, kEvents);
  EXPECT_EQ(Ask(Get("/health")).body, "fine");
}

TEST_F(HttpServerTest, AStreamThatIsReadMayBeOfAnySize) {
  constexpr int kEvents = 40;
  std::shared_ptr<HttpExchange> stream;
  const std::string event(1 << 20, 'x');
  const auto client = StartWithStream(&stream);
  size_t bytes = 0;
  for (int i = 0; i < kEvents; ++i) {
    asio::post(io_, [&, last = i + 1 == kEvents] {
      stream->SendEvent({event, ""});
      if (last) stream->EndStream(true);
    });
    bytes += event.size();
    EXPECT_TRUE(client->ReadMore(bytes));
  }
  EXPECT_GT(client->ReadAnswer().body.size(), bytes);
}

// No later event, and no end, brings what the socket has not taken.
TEST_F(HttpServerTest, AnEventThatTheSocketDoesNotTakeAtOnceComesWhole) {
  std::string event;
  for (int i = 0; event.size() < 12 << 20; ++i) absl::StrAppend(&event, i, ",");
  std::shared_ptr<HttpExchange> stream;
  const auto client = StartWithStream(&stream);
  asio::post(io_, [&] { stream->SendEvent({event, ""}); });
  EXPECT_TRUE(client->ReadMore(event.size()));
  asio::post(io_, [&] { stream->EndStream(true); });
  EXPECT_TRUE(client->ReadAnswer().body == "data: " + event + "\n\n");
}

// An event that is written while the stream waits begins its silence anew.
TEST_F(HttpServerTest, ACommentComesSoLongAfterTheLastEvent) {
  constexpr std::chrono::milliseconds kSilence(300);
  options_.keep_alive_interval_s = 0.3;
  std::shared_ptr<HttpExchange> stream;
  std::atomic<bool> came{false};
  app_.handle = [&](HttpRequest, std::shared_ptr<HttpExchange> exchange) {
    stream = std::move(exchange);
    stream->ExpectStream();
    stream->SendEvent({"first", ""});
    came = true;
  };
  Start();
  RawClient client(port());
  client.Send(Get("/stream"));
  ASSERT_TRUE(Eventually([&] { return came.load(); }));
  std::this_thread::sleep_for(kSilence / 2);
  const SteadyTime before = SteadyNow();
  asio::post(io_, [&] { stream->SendEvent({"second", ""}); });
  EXPECT_NE(client.ReadUntil("data: second\n\n\r\ne\r\n: keep-alive\n\n\r\n"), "");
  EXPECT_GE(SteadyNow() - before, kSilence);
}

// Without comments the client still learns that it is served.
TEST_F(HttpServerTest, AQuietStreamBeginsWithItsHeadAlone) {
  options_.keep_alive_interval_s = 0;
  options_.stream_head_after_s = 0.1;
  std::shared_ptr<HttpExchange> stream;
  app_.handle = [&](HttpRequest, std::shared_ptr<HttpExchange> exchange) {
    stream = std::move(exchange);
    stream->ExpectStream();
  };
  Start();
  RawClient client(port());
  client.Send(Get("/stream"));
  EXPECT_EQ(client.ReadHead().status, 200);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  asio::post(io_, [&] {
    EXPECT_TRUE(stream->stream_open());
    stream->SendEvent({"first", ""});
    stream->EndStream(true);
  });
  EXPECT_EQ(client.ReadUntil("0\r\n\r\n"), "d\r\ndata: first\n\n\r\n0\r\n\r\n");
}

// Comments that are further apart do not delay the head.
TEST_F(HttpServerTest, AQuietStreamBeginsBeforeARareComment) {
  options_.keep_alive_interval_s = 0.3;
  options_.stream_head_after_s = 0.01;
  std::shared_ptr<HttpExchange> stream;
  app_.handle = [&](HttpRequest, std::shared_ptr<HttpExchange> exchange) {
    stream = std::move(exchange);
    stream->ExpectStream();
  };
  Start();
  RawClient client(port());
  client.Send(Get("/stream"));
  EXPECT_EQ(client.ReadHead().status, 200);
  EXPECT_EQ(client.ReadUntil("\n\n\r\n"), "e\r\n: keep-alive\n\n\r\n");
}

// A refusal that comes late has its own status as long as the stream has not begun.
TEST_F(HttpServerTest, ALateRefusalHasItsStatus) {
  options_.keep_alive_interval_s = 0;
  std::shared_ptr<HttpExchange> stream;
  std::atomic<bool> came{false};
  app_.handle = [&](HttpRequest, std::shared_ptr<HttpExchange> exchange) {
    stream = std::move(exchange);
    stream->ExpectStream();
    came = true;
  };
  Start();
  RawClient client(port());
  client.Send(Get("/stream"));
  EXPECT_TRUE(Eventually([&] { return came.load(); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  asio::post(io_, [&] {
    HttpReply reply;
    reply.status = 429;
    stream->Reply(std::move(reply));
  });
  EXPECT_EQ(client.ReadAnswer().status, 429);
}

// While every thread of the pool is busy, a large answer waits and others are sent.
TEST_F(HttpServerTest, LargeAnswersAreCompressedBesideTheLoop) {
  std::vector<std::string> answered;  // used by the event loop, until it has ended
  app_.handle = [](HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
    HttpReply reply;
    reply.body.assign(request.path == "/large" ? 1 << 20 : 10 << 10, 'x');
    exchange->Reply(std::move(reply));
  };
  app_.observe = [&](const HttpRequest& request) { answered.push_back(request.path); };
  const auto gate = std::make_shared<Gate>();
  ParsePool pool(&io_);
  for (int i = 0; i < 8; ++i)
    pool.Post(
        {"other"}, 1, [gate] { gate->Pass(); }, [] {});
  const int threads = std::clamp<int>(std::thread::hardware_concurrency() / 2, 2, 4);
  ASSERT_TRUE(test::Eventually([&] { return gate->arrived() == threads; }));
  Start(&pool);
  RawClient large(port());
  large.Send(Get("/large", "Accept-Encoding: gzip\r\n"));
  for (int i = 0; i < 10; ++i) {
    const RawAnswer small = Ask(Get("/small", "Accept-Encoding: gzip\r\n"));
    EXPECT_TRUE(small.Has("Content-Encoding: gzip"));
  }
  gate->Open();
  const RawAnswer answer = large.ReadAnswer();
  EXPECT_EQ(*Gunzip(answer.body, 1 << 20), std::string(1 << 20, 'x'));
  EXPECT_EQ(Ask(Get("/health")).body, "fine");
  io_.stop();
  thread_.join();
  ASSERT_GT(answered.size(), 10u);
  EXPECT_EQ(std::count(answered.begin(), answered.begin() + 10, "/small"), 10);
}

TEST(ConnectionsTest, LeaveRoomForOtherFiles) {
  EXPECT_EQ(ConnectionsFor(10000, 1 << 20), 10000);
  EXPECT_EQ(ConnectionsFor(10000, ~uint64_t{0}), 10000);
  EXPECT_EQ(ConnectionsFor(10000, 1024), 768);
  EXPECT_EQ(ConnectionsFor(10000, 64), 32);
  EXPECT_EQ(ConnectionsFor(10000, 0), 1);
  EXPECT_EQ(ConnectionsFor(100, 1024), 100);
}

}  // namespace
}  // namespace coppice::coordinator
