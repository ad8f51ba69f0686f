#pragma once

// Requests of a real client's kind against a node on the simulator: chains of real parts, put, got,
// leased and removed.

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/node/server_testing.h"
#include "tests/unit/node/store_testing.h"

namespace tokura::node {

inline std::vector<absl::StatusCode> Codes(const std::string& statuses) {
  std::vector<absl::StatusCode> codes;
  for (const char status : statuses) {
    codes.push_back(static_cast<absl::StatusCode>(status));
  }
  return codes;
}

inline constexpr auto kOk = absl::StatusCode::kOk;

// What a test puts: `blocks` blocks of a chain with numbers from `first`.
struct Chain {
  uint64_t first = 1;
  uint32_t blocks = 1;
  uint64_t content = 1;
  uint32_t group_mask = 1;
  uint32_t shards = 1;
  uint32_t heads = 1;  // of every part: its size
};

class ServerRequestTest : public ServerTest {
 protected:
  static kernels::PartIdentity Identity(const Chain& chain, uint32_t block, PartId part) {
    return {Space(), Key(chain.first + block), Content(chain.content), part};
  }
  static std::vector<std::byte> Part(const Chain& chain, uint32_t block, PartId part) {
    const uint64_t seed =
        (chain.first + block) * 1000003 + chain.content * 10007 + part.group * 101u + part.shard;
    return MakePart(Identity(chain, block, part), seed, chain.heads);
  }
  // `part` with a bit flipped in its last layer.
  static std::vector<std::byte> Damaged(std::vector<std::byte> part) {
    part[part.size() - 20] ^= std::byte{0x10};
    return part;
  }
  // For connections that move parts of the smallest chain.
  static void OneTransferAtATime(NodeOptions& options) {
    options.part_bytes_max = Part({}, 0, {0, 0}).size();
    options.inflight_bytes_max = 2 * options.part_bytes_max;
  }
  static proto::PutRequest PutMessage(const Chain& chain) {
    proto::PutRequest put;
    put.set_fingerprint(IdBytes(Space()));
    put.set_codec("raw");
    put.set_group_mask(chain.group_mask);
    put.set_shards(chain.shards);
    put.set_shard_count(chain.shards);
    for (uint32_t i = 0; i < chain.blocks; ++i) {
      proto::PutBlock* block = put.add_blocks();
      block->set_key(IdBytes(Key(chain.first + i)));
      if (i > 0) {
        block->set_parent(IdBytes(Key(chain.first + i - 1)));
      }
      block->set_position(i);
      block->set_content_id(IdBytes(Content(chain.content)));
    }
    return put;
  }
  static std::string Keys(const Chain& chain) {
    std::string keys;
    for (uint32_t i = 0; i < chain.blocks; ++i) {
      keys += IdBytes(Key(chain.first + i));
    }
    return keys;
  }
  static proto::GetRequest GetMessage(const Chain& chain) {
    proto::GetRequest get;
    get.set_fingerprint(IdBytes(Space()));
    get.set_keys(Keys(chain));
    return get;
  }
  template <typename Visit>
  static void ForEachPart(const Chain& chain, Visit visit) {
    for (uint32_t block = 0; block < chain.blocks; ++block) {
      for (uint8_t group = 0; group < 8; ++group) {
        for (uint32_t shard = 0; (chain.group_mask >> group & 1) != 0 && shard < chain.shards;
             ++shard) {
          visit(block, PartId{group, static_cast<uint8_t>(shard)});
        }
      }
    }
  }
  TestClient::Sent StartPut(TestClient& client, const Chain& chain,
                            Duration deadline = std::chrono::seconds(5)) {
    const TestClient::Sent sent = client.Send(net::Op::kPut, PutMessage(chain), deadline);
    ForEachPart(chain, [&](uint32_t block, PartId part) {
      client.Offer(sent.id, block, part, Part(chain, block, part));
    });
    return sent;
  }
  // The statuses of a put's blocks once it is answered.
  std::vector<absl::StatusCode> PutCodes(const TestClient::Sent& put) {
    return Codes(Await(put).As<proto::PutReply>().statuses());
  }
  std::vector<absl::StatusCode> Put(TestClient& client, const Chain& chain) {
    return PutCodes(StartPut(client, chain));
  }
  // A put whose parts the node verifies only when its deadline has passed.
  void PutTooLate(TestClient& client, const Chain& chain) {
    node_host_->pool().Pause();
    StartPut(client, chain, std::chrono::milliseconds(100));
    RunFor(std::chrono::milliseconds(200));
    node_host_->pool().Continue();
    RunFor(std::chrono::seconds(1));
  }
  std::vector<absl::StatusCode> GetCodes(TestClient& client, const proto::GetRequest& get) {
    return Codes(Await(client.Send(net::Op::kGet, get)).As<proto::GetReply>().statuses());
  }
  // A get that receives nothing of what it is offered until the test says so.
  static TestClient::Sent StartHeldGet(TestClient& client, const proto::GetRequest& get,
                                       Duration deadline) {
    return client.Send(net::Op::kGet, get, deadline, TestCall::Payloads::kHold);
  }
  uint32_t Lookup(TestClient& client, const Chain& chain) {
    proto::LookupRequest lookup;
    lookup.set_fingerprint(IdBytes(Space()));
    lookup.set_keys(Keys(chain));
    return Await(client.Send(net::Op::kLookup, lookup)).As<proto::LookupReply>().prefix_blocks();
  }
  proto::AcquireReply Acquire(TestClient& client, const Chain& chain) {
    proto::AcquireRequest acquire;
    acquire.set_fingerprint(IdBytes(Space()));
    acquire.set_keys(Keys(chain));
    return Await(client.Send(net::Op::kAcquire, acquire)).As<proto::AcquireReply>();
  }
  bool Renew(TestClient& client, const std::string& lease) {
    proto::RenewRequest renew;
    renew.set_leases(lease);
    return Await(client.Send(net::Op::kRenew, renew)).As<proto::RenewReply>().held(0);
  }
  void Release(TestClient& client, const std::string& lease) {
    proto::ReleaseRequest release;
    release.set_leases(lease);
    EXPECT_TRUE(Await(client.Send(net::Op::kRelease, release)).status().ok());
  }
  void Remove(TestClient& client, const Chain& chain) {
    proto::RemoveRequest remove;
    remove.set_fingerprint(IdBytes(Space()));
    remove.set_keys(Keys(chain));
    EXPECT_TRUE(Await(client.Send(net::Op::kRemove, remove)).status().ok());
  }
  // Every payload of an answered GET arrived and has the bytes that were put.
  void ExpectBytes(TestCall& call, const Chain& chain) {
    EXPECT_TRUE(RunUntil([&] { return Arrived(call); }));
    for (const auto& payload : call.payloads()) {
      const PartId part{static_cast<uint8_t>(payload->frame.group),
                        static_cast<uint8_t>(payload->frame.shard)};
      ASSERT_TRUE(payload->done.has_value());
      EXPECT_TRUE(payload->done->ok()) << *payload->done;
      EXPECT_EQ(payload->bytes, Part(chain, payload->frame.index, part));
    }
  }
  static bool Arrived(TestCall& call) {
    for (const auto& payload : call.payloads()) {
      if (!payload->done) {
        return false;
      }
    }
    return true;
  }
  double PutParts(const std::string& result) {
    return Metric("tokura_node_put_parts_total", {{"result", result}});
  }
  double Requests(const std::string& op, const std::string& result) {
    return Metric("tokura_node_requests_total", {{"op", op}, {"result", result}});
  }
};

}  // namespace tokura::node
