#include "tests/unit/client/fake_coordinator.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "kernels/part.h"

namespace tokura {
namespace {

template <typename T>
T Parse(std::span<const std::byte> body) {
  T message;
  EXPECT_TRUE(message.ParseFromArray(body.data(), static_cast<int>(body.size())));
  return message;
}

std::vector<BlockKey> SplitKeys(const std::string& bytes) {
  std::vector<BlockKey> keys;
  const auto all = std::as_bytes(std::span(bytes));
  for (size_t at = 0; at + BlockKey::kBytes <= all.size(); at += BlockKey::kBytes) {
    keys.push_back(BlockKey::FromBytes(all.subspan(at).first<BlockKey::kBytes>()));
  }
  return keys;
}

const FakeNode::Stored* Held(const FakeNode& node, const BlockKey& key) {
  const auto found = node.blocks.find(key);
  return found != node.blocks.end() && found->second.visible ? &found->second : nullptr;
}

uint64_t Bytes(const FakeNode::Stored& block) {
  uint64_t bytes = 0;
  for (const auto& [part, stored] : block.parts) {
    bytes += stored.size();
  }
  return bytes;
}

// Add one block to the runs; every node has a class of its own per codec and groups.
void Append(uint32_t node, uint32_t index, const FakeNode::Stored& block, proto::LocateReply* reply,
            google::protobuf::RepeatedPtrField<proto::Run>* runs) {
  int form = 0;
  while (form < reply->classes_size() && (reply->classes(form).codec() != block.codec ||
                                          reply->classes(form).group_mask() != block.group_mask)) {
    ++form;
  }
  if (form == reply->classes_size()) {
    reply->add_classes()->set_codec(block.codec);
    reply->mutable_classes(form)->set_group_mask(block.group_mask);
  }
  proto::Run* last = runs->empty() ? nullptr : &(*runs)[runs->size() - 1];
  const bool continues = last != nullptr && last->node() == node &&
                         last->form_class() == static_cast<uint32_t>(form) &&
                         last->first() + last->count() == index;
  if (!continues) {
    last = runs->Add();
    last->set_node(node);
    last->set_first(index);
    last->set_form_class(static_cast<uint32_t>(form));
  }
  last->set_count(last->count() + 1);
  last->set_stored_bytes(last->stored_bytes() + Bytes(block));
}

}  // namespace

FakeCoordinator::FakeCoordinator(sim::SimNetwork& network, Options options)
    : network_(network),
      options_(std::move(options)),
      host_(network.scheduler(), {.name = options_.name, .ip = options_.ip}),
      transport_(network, host_.loop()) {
  state_.set_epoch(1);
  state_.set_policy_version(1);
  state_.set_segment_blocks(4);
  state_.set_holder(options_.name);
  host_.loop().Enter([this] {
    auto listener = transport_.Listen(
        {options_.ip, 7001}, {},
        [this](net::Transport& owner, std::unique_ptr<net::Connection> connection) {
          net::ServerChannel::Options channel_options;
          channel_options.node = options_.name;
          channel_options.incarnation = 1;
          channel_options.format_version = kernels::FormatVersionString();
          auto channel = net::ServerChannel::Accept(owner, std::move(connection),
                                                    std::move(channel_options), *this);
          net::ConnectionHandler* handler = &channel->handler();
          net::ServerChannel* key = channel.get();
          channels_.emplace(key, std::move(channel));
          ++open_channels;
          return handler;
        });
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = std::move(*listener);
  });
}

FakeCoordinator::~FakeCoordinator() {
  Kill();
  network_.scheduler().RunFor(std::chrono::seconds(1));
  host_.loop().Enter([this] { listener_.reset(); });
  EXPECT_TRUE(channels_.empty());
}

void FakeCoordinator::Publish(proto::ClusterState state) {
  state_ = std::move(state);
  host_.loop().Enter([this] {
    for (const Watcher& watcher : std::exchange(watchers_, {})) {
      watcher.channel->Reply(watcher.frame, absl::OkStatus(), &state_);
    }
  });
}

void FakeCoordinator::AddMember(FakeNode& node) {
  nodes_.push_back(&node);
  proto::ClusterState state = state_;
  state.set_epoch(state.epoch() + 1);
  proto::Member* member = state.add_members();
  member->set_node(node.options().name);
  member->set_incarnation(node.options().incarnation);
  member->set_address(node.address());
  member->set_share_permille(1000);
  Publish(std::move(state));
}

absl::Status FakeCoordinator::OnHello(net::ServerChannel&, const proto::Hello&,
                                      proto::Welcome* welcome) {
  welcome->mutable_limits()->set_keys_max(options_.keys_max);
  return absl::OkStatus();
}

void FakeCoordinator::OnRequest(net::ServerChannel& channel, const net::FrameHeader& frame,
                                std::span<const std::byte> body) {
  ++requests[frame.op];
  if (std::find(silent.begin(), silent.end(), frame.op) != silent.end()) {
    return;
  }
  if (const auto refused = refuse.find(frame.op); refused != refuse.end()) {
    channel.Reply(frame, refused->second);
    return;
  }
  switch (frame.op) {
    case net::Op::kLocate: {
      locates.push_back(Parse<proto::LocateRequest>(body));
      proto::LocateReply reply = Locate(locates.back());
      if (change_locate) {
        change_locate(&reply);
      }
      return channel.Reply(frame, absl::OkStatus(), &reply);
    }
    case net::Op::kPlan: {
      plans.push_back(Parse<proto::PlanRequest>(body));
      proto::PlanReply reply = Plan(plans.back());
      if (change_plan) {
        change_plan(&reply);
      }
      return channel.Reply(frame, absl::OkStatus(), &reply);
    }
    case net::Op::kWatch:
      return OnWatch(channel, frame, Parse<proto::WatchRequest>(body));
    case net::Op::kCancel:
      return;
    default:
      FAIL() << net::OpName(frame.op);
  }
}

void FakeCoordinator::OnWatch(net::ServerChannel& channel, const net::FrameHeader& frame,
                              const proto::WatchRequest& request) {
  watches.push_back(request);
  const bool current = request.known_epoch() == state_.epoch() &&
                       request.known_policy_version() == state_.policy_version();
  if (current) {
    watchers_.push_back({&channel, frame});
    return;
  }
  channel.Reply(frame, absl::OkStatus(), &state_);
}

proto::LocateReply FakeCoordinator::Locate(const proto::LocateRequest& request) const {
  proto::LocateReply reply;
  reply.set_epoch(state_.epoch());
  for (const FakeNode* node : nodes_) {
    proto::NodeRef* ref = reply.add_nodes();
    ref->set_node(node->options().name);
    ref->set_incarnation(node->options().incarnation);
  }
  const auto avoided = [&](size_t n) {
    return std::find(request.avoid().begin(), request.avoid().end(), nodes_[n]->options().name) !=
           request.avoid().end();
  };
  size_t last = nodes_.size();
  for (const BlockKey& key : SplitKeys(request.keys())) {
    std::vector<size_t> holders;
    for (size_t n = 0; n < nodes_.size(); ++n) {
      if (Held(*nodes_[n], key) != nullptr) {
        holders.push_back(n);
      }
    }
    if (holders.empty()) {
      break;
    }
    std::stable_sort(holders.begin(), holders.end(), [&](size_t a, size_t b) {
      return std::pair(avoided(a), a != last) < std::pair(avoided(b), b != last);
    });
    last = holders.front();
    const uint32_t index = reply.prefix_blocks();
    Append(static_cast<uint32_t>(last), index, *Held(*nodes_[last], key), &reply,
           reply.mutable_runs());
    if (holders.size() > 1) {
      Append(static_cast<uint32_t>(holders[1]), index, *Held(*nodes_[holders[1]], key), &reply,
             reply.mutable_alternates());
    }
    reply.set_prefix_blocks(index + 1);
  }
  return reply;
}

bool FakeCoordinator::HeldSomewhere(const BlockKey& key) const {
  return std::any_of(nodes_.begin(), nodes_.end(),
                     [&key](const FakeNode* node) { return Held(*node, key) != nullptr; });
}

proto::PlanReply FakeCoordinator::Plan(const proto::PlanRequest& request) const {
  EXPECT_EQ(request.first_position() % state_.segment_blocks(), 0u);
  proto::PlanReply reply;
  reply.set_epoch(plan_epoch != 0 ? plan_epoch : state_.epoch());
  for (const proto::Member& member : state_.members()) {
    proto::NodeRef* ref = reply.add_nodes();
    ref->set_node(member.node());
    ref->set_incarnation(member.incarnation());
  }
  const std::vector<BlockKey> keys = SplitKeys(request.keys());
  for (uint32_t i = request.first_block(); i < keys.size() && reply.nodes_size() > 0; ++i) {
    if (HeldSomewhere(keys[i])) {
      continue;
    }
    const uint32_t segment = (request.first_position() + i) / state_.segment_blocks();
    const auto nodes = static_cast<uint32_t>(reply.nodes_size());
    for (uint32_t replica = 0; replica < (plan_replicas ? 2u : 1u); ++replica) {
      proto::PlanRun* run = reply.add_runs();
      run->set_node((segment + replica) % nodes);
      run->set_first(i);
      run->set_count(1);
    }
  }
  return reply;
}

void FakeCoordinator::OnPayload(net::ServerChannel&, const net::FrameHeader&,
                                net::IncomingPayload) {
  FAIL() << "coordinators take no payloads";
}

void FakeCoordinator::OnClosed(net::ServerChannel& channel, absl::Status) {
  --open_channels;
  std::erase_if(watchers_,
                [&channel](const Watcher& watcher) { return watcher.channel == &channel; });
  const auto found = channels_.find(&channel);
  host_.loop().Post([gone = std::move(found->second)] {});
  channels_.erase(found);
}

}  // namespace tokura
