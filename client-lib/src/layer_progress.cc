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

void LayerProgress::OnFailed(std::span<const size_t> parts) {
  if (!enabled()) {
    return;
  }
  // By group: a block's parts fail together, so that none of them speaks for the others.
  std::vector<std::vector<uint32_t>> complete;
  {
    MutexLock lock(mutex_);
    complete.resize(groups_.size());
    for (const size_t part : parts) {
      Part& lost = parts_[part];
      if (std::exchange(lost.failed, true)) {
        continue;
      }
      Group& group = groups_[lost.group];
      --group.alive;
      for (uint32_t layer = lost.decoded; layer < lost.layers; ++layer) {
        if (--group.missing[layer] == 0) {
          complete[lost.group].push_back(layer);
        }
      }
    }
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (groups_[g].alive == 0) {
        complete[g].clear();
      }
    }
  }
  for (size_t g = 0; g < complete.size(); ++g) {
    std::sort(complete[g].begin(), complete[g].end());
    Report(static_cast<uint8_t>(g), complete[g]);
  }
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
