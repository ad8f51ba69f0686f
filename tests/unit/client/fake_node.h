#pragma once

// A cache node just real enough for the client's tests: it stores parts in plain memory over the
// simulated network and misbehaves on request.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "common/net/channel.h"
#include "proto/tokura.pb.h"
#include "tests/sim/host.h"
#include "tests/sim/transport.h"

namespace tokura {

class FakeNode final : public net::ServerChannelOwner {
 public:
  struct Options {
    std::string name = "node-0";
    std::string ip = "10.0.0.1";
    uint64_t incarnation = 100;
    uint32_t blocks_max = 0;
    uint32_t requests_max = 256;
  };
  struct Stored {
    ContentId content_id;
    std::string codec;
    uint32_t group_mask = 0;
    std::map<PartId, std::vector<std::byte>> parts;
    bool visible = false;
  };

  FakeNode(sim::SimNetwork& network, Options options);
  ~FakeNode() override;

  std::string address() const { return listener_->address().ToString(); }
  const Options& options() const { return options_; }
  sim::SimHost& host() { return host_; }
  // The process dies: its connections break.
  void Kill() { network_.Kill(host_, sim::SimNetwork::Death::kProcess); }
  void Goodbye();

  // What the node holds, by key; tests read and change it.
  std::map<BlockKey, Stored> blocks;
  // Requests seen, by op, and those cancelled.
  std::map<net::Op, int> requests;
  int cancelled = 0;
  int rejected_payloads = 0;
  std::vector<proto::GetRequest> gets;
  std::vector<proto::PutRequest> puts;
  std::vector<proto::Hello> hellos;
  std::vector<BlockKey> suspects;  // that it was asked to check
  int open_channels = 0;
  // Leases that are held, with the connection that owns each, and how often each was renewed.
  std::map<std::string, net::ServerChannel*> leases;
  std::map<std::string, int> renewals;

  // Misbehaviour. Ops listed here are never answered; payloads of puts are never taken.
  std::vector<net::Op> silent;
  bool take_payloads = true;
  // Called with every part before it is offered; may change the bytes. False: do not offer it.
  std::function<bool(const BlockKey& key, PartId part, std::vector<std::byte>* bytes)> tamper;
  // Blocks that a check finds damaged.
  std::set<BlockKey> damaged;
  // Status of a whole request instead of an answer.
  std::map<net::Op, absl::Status> refuse;
  // Puts placed by an older epoch are refused.
  uint64_t refuse_below_epoch = 0;
  // Answer to HELLO.
  absl::Status hello_answer;
  // Called with what a lookup or acquire is told; may change it.
  std::function<void(proto::LookupReply*)> describe;
  // Answer gets only after this many further requests of any kind. 0: at once.
  std::function<void()> before_get_reply;

  // net::ServerChannelOwner
  absl::Status OnHello(net::ServerChannel& channel, const proto::Hello& hello,
                       proto::Welcome* welcome) override;
  void OnRequest(net::ServerChannel& channel, const net::FrameHeader& frame,
                 std::span<const std::byte> body) override;
  void OnPayload(net::ServerChannel& channel, const net::FrameHeader& frame,
                 net::IncomingPayload payload) override;
  void OnClosed(net::ServerChannel& channel, absl::Status why) override;

 private:
  struct Put {
    net::FrameHeader frame;
    proto::PutRequest request;
    size_t missing = 0;
  };
  // Memory of one payload under way.
  struct Buffer {
    explicit Buffer(size_t size) : bytes(size) {}
    std::vector<std::byte> bytes;
    std::unique_ptr<net::MemoryRegion> region;
  };

  void OnLookup(net::ServerChannel& channel, const net::FrameHeader& frame,
                const proto::LookupRequest& request);
  void OnAcquire(net::ServerChannel& channel, const net::FrameHeader& frame,
                 const proto::AcquireRequest& request);
  void OnGet(net::ServerChannel& channel, const net::FrameHeader& frame,
             const proto::GetRequest& request);
  void OnPut(net::ServerChannel& channel, const net::FrameHeader& frame, proto::PutRequest request);
  void OnRemove(net::ServerChannel& channel, const net::FrameHeader& frame,
                const proto::RemoveRequest& request);
  void OnStat(net::ServerChannel& channel, const net::FrameHeader& frame);
  void OnLeases(net::ServerChannel& channel, const net::FrameHeader& frame,
                const std::string& tokens);
  proto::LookupReply Describe(const std::string& keys);
  void OnPart(uint64_t channel, const net::FrameHeader& frame, std::vector<std::byte> bytes);
  std::shared_ptr<Buffer> MakeBuffer(std::vector<std::byte> bytes);

  sim::SimNetwork& network_;
  const Options options_;
  sim::SimHost host_;
  sim::SimTransport transport_;
  std::map<net::ServerChannel*, std::unique_ptr<net::ServerChannel>> channels_;
  // By connection and request id.
  std::map<std::pair<net::ServerChannel*, uint64_t>, Put> puts_under_way_;
  int leases_granted_ = 0;
  std::vector<net::IncomingPayload> kept_;  // never taken: the sender's memory stays busy
  std::unique_ptr<net::Listener> listener_;
};

}  // namespace tokura
