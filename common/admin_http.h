#pragma once

// Inside of the admin server (common/http.h); its own header so that the request parser can be
// fuzzed without a socket.

#include <httplib.h>

#include "common/http.h"

namespace tokura {

inline constexpr size_t kHttpRequestBytesMax = 16384;  // request line, headers and body together

// Answers one request read from a stream. Thread-safe once made.
class AdminRequests : public httplib::Server {
 public:
  // `options.listen` is not used.
  explicit AdminRequests(AdminServer::Options options);

  // Read one request from `stream` and answer it; the connection is to be closed afterwards.
  void Answer(httplib::Stream& stream);

 private:
  void AddRoutes();
  static void SetHealth(const std::function<absl::Status()>& check, httplib::Response& response);

  const AdminServer::Options options_;
};

}  // namespace tokura
