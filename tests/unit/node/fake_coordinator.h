#pragma once

// A coordinator just real enough for a node's tests: it takes registrations, reports and inventory
// over the simulated network, and answers as the test says.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/net/channel.h"
#include "proto/cluster.pb.h"
#include "tests/sim/host.h"
#include "tests/sim/transport.h"
#include "tests/unit/node/inventory_model.h"

namespace tokura::node {

class FakeCoordinator final : public net::ServerChannelOwner {
 public:
  struct Options {
    std::string name = "coordinator-0";
    std::string ip = "10.0.1.1";
  };
  FakeCoordinator(sim::SimNetwork& network, Options options);
  ~FakeCoordinator() override;

  net::Address address() const { return {options_.ip, 7400}; }
  sim::SimHost& host() { return host_; }
  // Break every connection; the process goes on.
  void Disconnect();
  // As a new process that knows nothing.
  void Forget() {
    Disconnect();
    ++incarnation_;
    model = InventoryModel();
  }

  // Answer the registration that was kept, as if it had been the last.
  bool has_kept() const { return kept_ != nullptr; }
  void AnswerKept(const absl::Status& status);

  // What came, in order.
  std::vector<proto::Hello> hellos;
  std::vector<proto::RegisterRequest> registers;
  std::vector<proto::ReportRequest> reports;
  std::vector<proto::InventoryBatch> batches;
  InventoryModel model;
  int connections = 0;  // open

  // How it answers.
  bool holder = true;
  uint64_t epoch = 1;
  uint64_t refuse_below = 0;
  Duration report_interval = std::chrono::milliseconds(100);
  // The incarnation that it hands out where it is higher than what was asked for.
  uint64_t hand_out = 0;
  std::optional<absl::Status> refuse_register;
  std::vector<net::Op> silent;             // never answered
  bool keep_register = false;              // the next one is answered by AnswerKept
  std::vector<proto::TouchBatch> touches;  // for the next report
  std::vector<proto::OrphanBatch> orphans;
  bool ask_for_snapshot = false;  // by the next report
  bool forgotten = false;         // the node is not registered: by the next report

  absl::Status OnHello(net::ServerChannel& channel, const proto::Hello& hello,
                       proto::Welcome* welcome) override;
  void OnRequest(net::ServerChannel& channel, const net::FrameHeader& frame,
                 std::span<const std::byte> body) override;
  void OnPayload(net::ServerChannel&, const net::FrameHeader&, net::IncomingPayload) override {}
  void OnClosed(net::ServerChannel& channel, absl::Status why) override;

 private:
  void OnRegister(net::ServerChannel& channel, const net::FrameHeader& frame,
                  std::span<const std::byte> body);
  void OnReport(net::ServerChannel& channel, const net::FrameHeader& frame,
                std::span<const std::byte> body);

  sim::SimNetwork& network_;
  const Options options_;
  sim::SimHost host_;
  sim::SimTransport transport_;
  uint64_t incarnation_ = 1;
  net::ServerChannel* kept_ = nullptr;  // of channels_, which the test does not close
  net::FrameHeader kept_frame_;
  std::map<net::ServerChannel*, std::unique_ptr<net::ServerChannel>> channels_;
  std::unique_ptr<net::Listener> listener_;
};

}  // namespace tokura::node
