#pragma once

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tokura::cli {

// Values of a server's metrics by series, named as /metrics prints it:
// "tokura_node_requests_total{op=\"get\",result=\"ok\"}".
using MetricValues = std::map<std::string, double, std::less<>>;

// Read Prometheus' text format; lines that are not a series and a number are skipped.
MetricValues ParseMetrics(std::string_view text);

// The metrics of the server with this admin address, "host:port". Blocks at most a few seconds.
// INVALID_ARGUMENT: the address; UNAVAILABLE: nobody answers, or otherwise than with metrics.
absl::StatusOr<MetricValues> ScrapeMetrics(const std::string& admin);

// UNAVAILABLE names a series that is not there.
absl::StatusOr<double> MetricValue(const MetricValues& values, std::string_view series);

}  // namespace tokura::cli
