#include "common/metrics.h"

#include "common/build_info.h"

namespace tokura {

prometheus::Histogram::BucketBoundaries LatencyBuckets() {
  return {50e-6, 100e-6, 250e-6, 500e-6, 1e-3,   2.5e-3, 5e-3, 10e-3,
          25e-3, 50e-3,  100e-3, 250e-3, 500e-3, 1.0,    2.5};
}

prometheus::Histogram::BucketBoundaries BytesBuckets() {
  prometheus::Histogram::BucketBoundaries bounds;
  for (double bound = 4096; bound <= 64.0 * 1024 * 1024; bound *= 4) {
    bounds.push_back(bound);
  }
  return bounds;
}

void RegisterBuildInfo(prometheus::Registry& registry, const std::string& transport_version) {
  const BuildInfo& info = GetBuildInfo();
  prometheus::BuildGauge()
      .Name("tokura_build_info")
      .Help("Constant 1; the labels say what this process was built from.")
      .Register(registry)
      .Add({{"version", info.version},
            {"commit", info.commit},
            {"transport_version", transport_version},
            {"cuda", "none"}})
      .Set(1);
}

}  // namespace tokura
