#include "client-lib/src/acceptance.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tokura {
namespace {
// The node adds the same numbers in another order.
constexpr double kRounding = 1 + 1e-6;
constexpr double kUnknown = std::numeric_limits<double>::infinity();

double LayerError(const kernels::ErrorRecord::Layer& layer) {
  if (!(layer.error >= 0) || !(layer.size >= 0)) {
    return kUnknown;
  }
  if (layer.error == 0) {
    return 0;
  }
  const double error = std::sqrt(layer.error / layer.size);
  return std::isnan(error) ? kUnknown : error;
}
}  // namespace

proto::Accept MakeAccept(const Acceptance& acceptance) {
  proto::Accept message;
  if (acceptance.max_error) {
    message.set_max_error(*acceptance.max_error);
  }
  message.set_allow_summary(acceptance.allow_summary);
  message.set_accept_proxy_error(acceptance.accept_proxy_error);
  return message;
}

void BlockFidelity::Add(const kernels::PartInfo& info) {
  worst_ = std::max(worst_, info.fidelity);
  if (info.fidelity == kernels::Fidelity::kExact) {
    return;
  }
  proxy_ = proxy_ || info.error.proxy();
  measured_ = measured_ && info.error.measured && !info.error.layers.empty();
  const size_t group = info.identity.part.group;
  groups_.resize(std::max(groups_.size(), group + 1));
  std::vector<kernels::ErrorRecord::Layer>& layers = groups_[group];
  layers.resize(std::max(layers.size(), info.error.layers.size()));
  for (size_t i = 0; i < info.error.layers.size(); ++i) {
    layers[i].error += info.error.layers[i].error;
    layers[i].size += info.error.layers[i].size;
  }
}

double BlockFidelity::Mean() const {
  if (!measured_) {
    return kUnknown;
  }
  double sum = 0;
  size_t count = 0;
  for (const auto& layers : groups_) {
    for (const kernels::ErrorRecord::Layer& layer : layers) {
      sum += LayerError(layer);
      ++count;
    }
  }
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

bool BlockFidelity::Acceptable(const Acceptance& acceptance) const {
  if (worst_ == kernels::Fidelity::kSummary && !acceptance.allow_summary) {
    return false;
  }
  if (!acceptance.max_error || worst_ == kernels::Fidelity::kExact) {
    return true;
  }
  if (proxy_ && !acceptance.accept_proxy_error) {
    return false;
  }
  return *acceptance.max_error > 0 && Mean() <= *acceptance.max_error * kRounding;
}

}  // namespace tokura
