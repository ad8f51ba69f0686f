#include "client-lib/src/layer_progress.h"

#include <algorithm>
#include <utility>

namespace tokura {

LayerProgress::LayerProgress(OnLayer on_layer, uint32_t first_layer)
    : on_layer_(std::move(on_layer)), first_layer_(first_layer) {}

size_t LayerProgress::AddPart(uint8_t group, uint32_t layers) {
  MutexLock lock(mutex_);
  parts_.push_back({.group = group, .layers = layers});
  groups_.resize(std::max<size_t>(groups_.size(), group + size_t{1}));
  Group& waiting = groups_[group];
  waiting.missing.resize(layers, 0);
  ++waiting.alive;
  for (uint32_t& missing : waiting.missing) {
    ++missing;
  }
  return parts_.size() - 1;
}

void LayerProgress::OnDecoded(size_t part) {
  if (!enabled()) {
    return;
  }
  uint8_t group = 0;
  std::vector<uint32_t> complete;
  {
    MutexLock lock(mutex_);
    Part& done = parts_[part];
    if (done.failed || done.decoded == done.layers) {
      return;
    }
    group = done.group;
    const uint32_t layer = done.decoded++;
    if (--groups_[group].missing[layer] == 0) {
      complete.push_back(layer);
    }
  }
  Report(group, complete);
}

void LayerProgress::OnFailed(size_t part) {
  if (!enabled()) {
    return;
  }
  uint8_t group = 0;
  std::vector<uint32_t> complete;
  {
    MutexLock lock(mutex_);
    Part& lost = parts_[part];
    if (std::exchange(lost.failed, true)) {
      return;
    }
    group = lost.group;
    const bool others = --groups_[group].alive > 0;
    for (uint32_t layer = lost.decoded; layer < lost.layers; ++layer) {
      if (--groups_[group].missing[layer] == 0 && others) {
        complete.push_back(layer);
      }
    }
  }
  Report(group, complete);
}

bool LayerProgress::Started(size_t part) const {
  MutexLock lock(mutex_);
  return parts_[part].decoded > 0;
}

void LayerProgress::Report(uint8_t group, const std::vector<uint32_t>& layers) const {
  for (const uint32_t layer : layers) {
    on_layer_(group, first_layer_ + layer);
  }
}

}  // namespace tokura
