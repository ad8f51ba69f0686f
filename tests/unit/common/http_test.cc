#include "common/http.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/metrics.h"
#include "common/time.h"

namespace tokura {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class AdminServerTest : public ::testing::Test {
 protected:
  AdminServerTest() {
    options_.listen = {"127.0.0.1", 0};
    options_.registry = std::make_shared<prometheus::Registry>();
    RegisterBuildInfo(*options_.registry, "1.22.0");
    options_.healthy = [this] {
      return healthy_ ? absl::OkStatus() : absl::InternalError("progress thread is stuck");
    };
    options_.ready = [this] {
      return ready_ ? absl::OkStatus() : absl::UnavailableError("draining");
    };
    options_.version_json = R"({"tokura":"0.1.0"})";
  }

  void Start() {
    auto server = AdminServer::Start(options_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  httplib::Result Get(const std::string& path, const httplib::Headers& headers = {}) {
    return httplib::Client("127.0.0.1", server_->address().port).Get(path, headers);
  }

  // A raw connection to the server.
  int Connect() {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(server_->address().port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return fd;
  }

  // Send `request` and read until the server closes.
  std::string Raw(const std::string& request) {
    const int fd = Connect();
    for (size_t sent = 0; sent < request.size();) {
      const ssize_t count = send(fd, request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) {
        break;
      }
      sent += static_cast<size_t>(count);
    }
    std::string reply;
    char buffer[4096];
    for (ssize_t count; (count = recv(fd, buffer, sizeof(buffer), 0)) > 0;) {
      reply.append(buffer, static_cast<size_t>(count));
    }
    close(fd);
    return reply;
  }

  std::atomic<bool> healthy_{true};
  std::atomic<bool> ready_{true};
  AdminServer::Options options_;
  std::unique_ptr<AdminServer> server_;
};

TEST_F(AdminServerTest, ServesMetricsInPrometheusTextFormat) {
  Start();
  const auto result = Get("/metrics");
  ASSERT_TRUE(result);
  EXPECT_EQ(result->status, 200);
  EXPECT_THAT(result->get_header_value("Content-Type"), HasSubstr("text/plain; version=0.0.4"));
  EXPECT_THAT(result->body, HasSubstr("# TYPE tokura_build_info gauge"));
  EXPECT_THAT(result->body, HasSubstr("transport_version=\"1.22.0\""));
}

TEST_F(AdminServerTest, HealthAndReadinessFollowTheirChecks) {
  Start();
  EXPECT_EQ(Get("/healthz")->status, 200);
  EXPECT_EQ(Get("/healthz")->body, "ok\n");
  EXPECT_EQ(Get("/readyz")->status, 200);
  ready_ = false;
  EXPECT_EQ(Get("/readyz")->status, 503);
  EXPECT_EQ(Get("/readyz")->body, "draining\n");
  EXPECT_EQ(Get("/healthz")->status, 200);
  healthy_ = false;
  EXPECT_EQ(Get("/healthz")->status, 503);
  EXPECT_EQ(Get("/healthz")->body, "progress thread is stuck\n");
}

TEST_F(AdminServerTest, ServesVersionAsJson) {
  Start();
  const auto result = Get("/version");
  EXPECT_EQ(result->body, "{\"tokura\":\"0.1.0\"}\n");
  EXPECT_EQ(result->get_header_value("Content-Type"), "application/json");
}

TEST_F(AdminServerTest, UnknownPathListsTheEndpoints) {
  Start();
  for (const char* path : {"/", "/metricsx", "/metrics/", "/../etc/passwd", "/metrics%00"}) {
    const auto result = Get(path);
    ASSERT_TRUE(result) << path;
    EXPECT_EQ(result->status, 404) << path;
    EXPECT_THAT(result->body, HasSubstr("/metrics /healthz /readyz /version"));
  }
}

TEST_F(AdminServerTest, OtherMethodsAreRefused) {
  Start();
  httplib::Client client("127.0.0.1", server_->address().port);
  const auto post = client.Post("/metrics", "x=1", "text/plain");
  ASSERT_TRUE(post);
  EXPECT_EQ(post->status, 405);
  EXPECT_EQ(post->get_header_value("Allow"), "GET, HEAD");
  EXPECT_EQ(client.Delete("/healthz")->status, 405);
  EXPECT_EQ(client.Head("/healthz")->status, 200);
}

TEST_F(AdminServerTest, MalformedRequestsGetAnErrorAndTheServerLives) {
  Start();
  EXPECT_THAT(Raw("NONSENSE\r\n\r\n"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(Raw("GET /metrics\r\n\r\n"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(Raw("GET /" + std::string(9000, 'a') + " HTTP/1.1\r\n\r\n"),
              StartsWith("HTTP/1.1 414"));
  Raw(std::string("\0\xff\xfe\r\n\r\n", 7));
  Raw("\r\n\r\n");
  EXPECT_EQ(Get("/healthz")->status, 200);
}

TEST_F(AdminServerTest, ARequestIsBoundedInSize) {
  Start();
  std::string headers;
  for (int i = 0; i < 4000; ++i) {
    headers += "X-" + std::to_string(i) + ": " + std::string(50, 'v') + "\r\n";
  }
  EXPECT_THAT(Raw("GET /healthz HTTP/1.1\r\n" + headers + "\r\n"),
              ::testing::Not(StartsWith("HTTP/1.1 200")));
  EXPECT_EQ(Get("/healthz")->status, 200);
}

TEST_F(AdminServerTest, ManyRangesAreAnsweredWithOnePage) {
  Start();
  std::string ranges = "bytes=0-";
  for (int i = 0; i < 500; ++i) {
    ranges += ",0-";
  }
  const auto result = Get("/metrics", {{"Range", ranges}});
  ASSERT_TRUE(result);
  EXPECT_LT(result->body.size(), 10'000u);
}

TEST_F(AdminServerTest, SilentConnectionsDoNotStopTheServerFromStopping) {
  Start();
  std::vector<int> silent;
  for (int i = 0; i < 60; ++i) {
    silent.push_back(Connect());
  }
  server_.reset();
  for (const int fd : silent) {
    close(fd);
  }
}

TEST_F(AdminServerTest, SilentConnectionsGiveWayToThoseWhoAsk) {
  Start();
  std::vector<int> silent;
  for (int i = 0; i < 50; ++i) {
    silent.push_back(Connect());
  }
  const int halting = Connect();
  ASSERT_EQ(send(halting, "GET /hea", 8, MSG_NOSIGNAL), 8);
  const TimePoint before = SystemClock().Now();
  const auto result = Get("/healthz");
  ASSERT_TRUE(result) << "no answer";
  EXPECT_EQ(result->status, 200);
  EXPECT_LT(SystemClock().Now() - before, std::chrono::seconds(4)) << "the silent ones were served";
  close(halting);
  for (const int fd : silent) {
    close(fd);
  }
}

TEST_F(AdminServerTest, ServesManyClientsAtOnce) {
  Start();
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        const auto result = Get("/metrics");
        good += result && result->status == 200 ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(good, 160);
}

TEST_F(AdminServerTest, AnAddressInUseOrNotLocalIsUnavailable) {
  Start();
  options_.listen = server_->address();
  EXPECT_EQ(AdminServer::Start(options_).status().code(), absl::StatusCode::kUnavailable);
  options_.listen = {"192.0.2.1", 0};
  const auto foreign = AdminServer::Start(options_);
  EXPECT_EQ(foreign.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(foreign.status().message()), HasSubstr("192.0.2.1"));
}

TEST_F(AdminServerTest, ThePortIsFreeAgainAfterwards) {
  Start();
  options_.listen = server_->address();
  EXPECT_EQ(Get("/healthz")->status, 200);
  server_.reset();
  Start();
  EXPECT_EQ(server_->address(), options_.listen);
  EXPECT_EQ(Get("/healthz")->status, 200);
}

}  // namespace
}  // namespace tokura
