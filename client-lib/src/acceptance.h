#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/part.h"
#include "proto/tokura.pb.h"
#include "tokura/types.h"

namespace tokura {

// What an operation accepts once caller, client and policy have had their say.
struct Acceptance {
  std::optional<double> max_error;  // unset: any; 0: exact
  bool allow_summary = false;
  bool accept_proxy_error = false;
};

// The same as the wire says it.
proto::Accept MakeAccept(const Acceptance& acceptance);

// Adds up the error records of the parts of one block: heads of a shard join their layer, layers of
// groups follow one another. Thread-compatible.
class BlockFidelity {
 public:
  void Add(const kernels::PartInfo& info);
  // Mean over layers of sqrt(error / size); 0 for exact forms, +infinity for lossy ones whose error
  // nobody measured or whose record is no number: it is never taken for exact.
  double Mean() const;
  bool proxy() const { return proxy_; }
  // Whether an operation that accepts so much may have this block: the client's own check, whatever
  // the node judged.
  bool Acceptable(const Acceptance& acceptance) const;

 private:
  std::vector<std::vector<kernels::ErrorRecord::Layer>> groups_;  // by group, then layer
  kernels::Fidelity worst_ = kernels::Fidelity::kExact;
  bool proxy_ = false;
  bool measured_ = true;
};

}  // namespace tokura
