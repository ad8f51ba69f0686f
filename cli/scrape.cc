#include "cli/scrape.h"

#include <algorithm>

#include <httplib.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/net/transport.h"
#include "common/status_macros.h"

namespace tokura::cli {
namespace {

constexpr int kTimeoutSeconds = 5;
constexpr int kHttpOk = 200;

}  // namespace

MetricValues ParseMetrics(std::string_view text) {
  MetricValues values;
  while (!text.empty()) {
    const std::string line(text.substr(0, text.find('\n')));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const size_t space = line.rfind(' ');
    double value = 0;
    if (!line.starts_with('#') && space != std::string::npos &&
        absl::SimpleAtod(line.substr(space + 1), &value)) {
      values.emplace(line.substr(0, space), value);
    }
  }
  return values;
}

absl::StatusOr<MetricValues> ScrapeMetrics(const std::string& admin) {
  TOKURA_ASSIGN_OR_RETURN(const net::Address address, net::Address::Parse(admin));
  httplib::Client client(address.host, address.port);
  client.set_connection_timeout(kTimeoutSeconds);
  client.set_read_timeout(kTimeoutSeconds);
  const auto result = client.Get("/metrics");
  if (!result || result->status != kHttpOk) {
    return absl::UnavailableError(absl::StrCat(
        "http://", admin, "/metrics: ",
        result ? absl::StrCat("status ", result->status) : httplib::to_string(result.error())));
  }
  return ParseMetrics(result->body);
}

absl::StatusOr<double> MetricValue(const MetricValues& values, std::string_view series) {
  const auto found = values.find(series);
  if (found == values.end()) {
    return absl::UnavailableError(absl::StrCat("the server has no metric ", std::string(series)));
  }
  return found->second;
}

}  // namespace tokura::cli
