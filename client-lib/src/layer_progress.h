#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "common/ids.h"
#include "common/mutex.h"

namespace tokura {

// Tells a caller which layers are complete in all blocks that did not fail. Parts are numbered
// 0…parts-1; the layers of a part are decoded in order. Thread-safe. A layer is reported once, and
// the report runs on the thread that completed it, without a lock.
class LayerProgress {
 public:
  using OnLayer = std::function<void(size_t group, uint32_t layer)>;
  // Without `on_layer` nothing is tracked.
  LayerProgress(OnLayer on_layer, uint32_t first_layer);

  // Before anything is decoded: another part, with `layers` layers of `group`. Returns its number.
  size_t AddPart(uint8_t group, uint32_t layers);
  // The next layer of `part` is decoded.
  void OnDecoded(size_t part);
  // A block failed for good: nobody waits for the layers of `parts`, all the parts it has.
  void OnFailed(std::span<const size_t> parts);
  // Whether a layer of `part` has been decoded, which its caller may have seen.
  bool Started(size_t part) const;
  bool enabled() const { return static_cast<bool>(on_layer_); }

 private:
  struct Part {
    uint8_t group;
    uint32_t layers;
    uint32_t decoded = 0;
    bool failed = false;
  };
  struct Group {
    std::vector<uint32_t> missing;  // parts, by layer
    uint32_t alive = 0;             // parts that did not fail
  };
  void Report(uint8_t group, const std::vector<uint32_t>& layers) const;

  const OnLayer on_layer_;
  const uint32_t first_layer_;
  mutable Mutex mutex_;  // a leaf: no other lock is taken while it is held
  std::vector<Part> parts_ TOKURA_GUARDED_BY(mutex_);
  std::vector<Group> groups_ TOKURA_GUARDED_BY(mutex_);
};

}  // namespace tokura
