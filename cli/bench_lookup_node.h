#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/bench_lookup_blocks.h"
#include "cli/polled_session.h"
#include "common/executor.h"
#include "common/net/transport.h"
#include "common/net/ucx_transport.h"
#include "proto/cluster.pb.h"

namespace tokura::cli {

// A cache node as a coordinator sees it: registers, reports, sends inventory; holds nothing. Owned
// by the thread that polls the transport, and silent while nobody does.
class MadeNode {
 public:
  // Connect to the coordinator and register. `transport` outlives the node.
  static absl::StatusOr<std::unique_ptr<MadeNode>> Join(net::UcxTransport& transport,
                                                        const net::Address& coordinator,
                                                        const std::string& name);
  ~MadeNode();
  MadeNode(const MadeNode&) = delete;
  MadeNode& operator=(const MadeNode&) = delete;

  MadeInventory& inventory() { return *inventory_; }
  const proto::NodeRef& ref() const { return inventory_->node(); }
  // Send one batch and poll until it is taken. INTERNAL: the coordinator wants a snapshot instead.
  absl::Status Send(const proto::InventoryBatch& batch);
  // Send batches one after the other, each once the one before is taken; `done` is called when the
  // last one is, or one is not. The batches stay valid until then. One at a time.
  void StartSending(const std::vector<proto::InventoryBatch>& batches,
                    std::function<void(absl::Status)> done);

 private:
  explicit MadeNode(net::UcxTransport& transport) : transport_(transport) {}
  absl::Status Register(const net::Address& coordinator, const std::string& name);
  void ReportLater();
  void Report();
  void SendFrom(size_t index);

  net::UcxTransport& transport_;
  std::unique_ptr<PolledSession> session_;
  std::unique_ptr<MadeInventory> inventory_;
  Duration report_interval_{};
  TimerId report_timer_ = 0;
  absl::Status reported_;  // the first failure
  const std::vector<proto::InventoryBatch>* maybe_batches_ = nullptr;
  std::function<void(absl::Status)> sent_;
};

}  // namespace tokura::cli
