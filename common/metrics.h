#pragma once

// Metrics are prometheus-cpp objects; each component registers its own families once, every label
// combination starting at 0. Names: tokura_ prefix, base units, counters end in _total. Here: the
// shared bucket bounds.

#include <string>

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include "common/time.h"

namespace tokura {

// 50 µs … 2.5 s in 1-2.5-5 steps.
prometheus::Histogram::BucketBoundaries LatencyBuckets();
// 4 KiB … 64 MiB in steps of 4.
prometheus::Histogram::BucketBoundaries BytesBuckets();
inline double Seconds(Duration d) {
  return std::chrono::duration<double>(d).count();
}

// Register tokura_build_info{version,commit,transport_version,cuda} = 1; cuda is "none" in a build
// without it. Once per registry.
void RegisterBuildInfo(prometheus::Registry& registry, const std::string& transport_version);

}  // namespace tokura
