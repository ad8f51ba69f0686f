#pragma once

// A coordinator just real enough for the client's tests: it finds blocks by looking into fake
// nodes, places segments in turn, and misbehaves on request.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/net/channel.h"
#include "proto/cluster.pb.h"
#include "tests/sim/host.h"
#include "tests/sim/transport.h"
#include "tests/unit/client/fake_node.h"

namespace tokura {

class FakeCoordinator final : public net::ServerChannelOwner {
 public:
  struct Options {
    std::string name = "coordinator-0";
    std::string ip = "10.0.2.1";
    uint32_t keys_max = 1024;
  };
  FakeCoordinator(sim::SimNetwork& network, Options options);
  ~FakeCoordinator() override;

  std::string address() const { return listener_->address().ToString(); }
  sim::SimHost& host() { return host_; }
  void Kill() { network_.Kill(host_, sim::SimNetwork::Death::kProcess); }
  // What is current from now on; those who watch hear of it.
  void Publish(proto::ClusterState state);
  // Add a node as a member, with the next epoch.
  void AddMember(FakeNode& node);
  const proto::ClusterState& state() const { return state_; }
  // What a LOCATE of these keys finds, by the blocks that the nodes hold now.
  proto::LocateReply Locate(const proto::LocateRequest& request) const;

  std::map<net::Op, int> requests;
  std::vector<proto::LocateRequest> locates;
  std::vector<proto::PlanRequest> plans;
  std::vector<proto::WatchRequest> watches;

  // Misbehaviour. Ops listed here are never answered.
  std::vector<net::Op> silent;
  std::map<net::Op, absl::Status> refuse;
  // May change an answer before it is sent.
  std::function<void(proto::LocateReply*)> change_locate;
  std::function<void(proto::PlanReply*)> change_plan;
  // Nodes that a plan puts every segment on, besides the one whose turn it is.
  bool plan_replicas = false;
  // What plans are said to be made by; 0: the current epoch.
  uint64_t plan_epoch = 0;
  int open_channels = 0;

  // net::ServerChannelOwner
  absl::Status OnHello(net::ServerChannel& channel, const proto::Hello& hello,
                       proto::Welcome* welcome) override;
  void OnRequest(net::ServerChannel& channel, const net::FrameHeader& frame,
                 std::span<const std::byte> body) override;
  void OnPayload(net::ServerChannel& channel, const net::FrameHeader& frame,
                 net::IncomingPayload payload) override;
  void OnClosed(net::ServerChannel& channel, absl::Status why) override;

 private:
  struct Watcher {
    net::ServerChannel* channel;
    net::FrameHeader frame;
  };
  void OnWatch(net::ServerChannel& channel, const net::FrameHeader& frame,
               const proto::WatchRequest& request);
  proto::PlanReply Plan(const proto::PlanRequest& request) const;
  bool HeldSomewhere(const BlockKey& key) const;

  sim::SimNetwork& network_;
  const Options options_;
  sim::SimHost host_;
  sim::SimTransport transport_;
  proto::ClusterState state_;
  std::vector<FakeNode*> nodes_;  // members, in the order of state_
  std::vector<Watcher> watchers_;
  std::map<net::ServerChannel*, std::unique_ptr<net::ServerChannel>> channels_;
  std::unique_ptr<net::Listener> listener_;
};

}  // namespace tokura
