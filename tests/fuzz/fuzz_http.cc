// HTTP requests to the admin endpoints, without a socket: the answer is a bounded HTTP response or
// nothing.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <prometheus/registry.h>

#include "common/admin_http.h"
#include "common/check.h"
#include "common/metrics.h"

namespace tokura {
namespace {

// Gives the request in pieces of uneven size, as sockets do, and keeps the answer.
class MemoryStream final : public httplib::Stream {
 public:
  explicit MemoryStream(std::string request) : request_(std::move(request)) {}

  bool is_readable() const override { return at_ < request_.size(); }
  bool is_writable() const override { return true; }
  ssize_t read(char* out, size_t size) override {
    const size_t count = std::min({size, request_.size() - at_, 1 + at_ % 7});
    std::copy_n(request_.data() + at_, count, out);
    at_ += count;
    return count == 0 ? -1 : static_cast<ssize_t>(count);
  }
  ssize_t write(const char* data, size_t size) override {
    answer_.append(data, size);
    return static_cast<ssize_t>(size);
  }
  void get_remote_ip_and_port(std::string& ip, int& port) const override {
    ip.clear();
    port = 0;
  }
  void get_local_ip_and_port(std::string& ip, int& port) const override {
    ip.clear();
    port = 0;
  }
  socket_t socket() const override { return -1; }

  const std::string& answer() const { return answer_; }

 private:
  const std::string request_;
  size_t at_ = 0;
  std::string answer_;
};

AdminRequests& Requests() {
  static AdminRequests* const requests = [] {
    AdminServer::Options options;
    options.registry = std::make_shared<prometheus::Registry>();
    RegisterBuildInfo(*options.registry, "1.22.0");
    options.version_json = "{}";
    return new AdminRequests(options);
  }();
  return *requests;
}

}  // namespace
}  // namespace tokura

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kAnswerBytesMax = 64 << 10;
  const size_t kept = std::min(size, tokura::kHttpRequestBytesMax);  // as the server reads
  tokura::MemoryStream stream(std::string(reinterpret_cast<const char*>(data), kept));
  tokura::Requests().Answer(stream);
  TOKURA_CHECK(stream.answer().empty() || stream.answer().rfind("HTTP/1.1 ", 0) == 0);
  TOKURA_CHECK(stream.answer().size() < kAnswerBytesMax);
  return 0;
}
