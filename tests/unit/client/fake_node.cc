#include "tests/unit/client/fake_node.h"

#include <algorithm>
#include <bit>
#include <utility>

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

}  // namespace

FakeNode::FakeNode(sim::SimNetwork& network, Options options)
    : network_(network),
      options_(std::move(options)),
      host_(network.scheduler(), {.name = options_.name, .ip = options_.ip}),
      transport_(network, host_.loop()) {
  host_.loop().Enter([this] {
    auto listener = transport_.Listen(
        {options_.ip, 7000}, {},
        [this](net::Transport& owner, std::unique_ptr<net::Connection> connection) {
          net::ServerChannel::Options channel_options;
          channel_options.node = options_.name;
          channel_options.incarnation = options_.incarnation;
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

FakeNode::~FakeNode() {
  Kill();
  network_.scheduler().RunFor(std::chrono::seconds(1));
  host_.loop().Enter([this] {
    kept_.clear();
    listener_.reset();
  });
  EXPECT_TRUE(channels_.empty());
}

void FakeNode::Goodbye() {
  host_.loop().Enter([this] {
    for (auto& [key, channel] : channels_) {
      channel->SendGoodbye("maintenance");
    }
  });
}

absl::Status FakeNode::OnHello(net::ServerChannel&, const proto::Hello& hello,
                               proto::Welcome* welcome) {
  hellos.push_back(hello);
  welcome->mutable_limits()->set_keys_max(1024);
  welcome->mutable_limits()->set_blocks_max(options_.blocks_max);
  welcome->mutable_limits()->set_requests_max(options_.requests_max);
  return hello_answer;
}

void FakeNode::OnRequest(net::ServerChannel& channel, const net::FrameHeader& frame,
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
    case net::Op::kLookup:
      return OnLookup(channel, frame, Parse<proto::LookupRequest>(body));
    case net::Op::kAcquire:
      return OnAcquire(channel, frame, Parse<proto::AcquireRequest>(body));
    case net::Op::kGet:
      return OnGet(channel, frame, Parse<proto::GetRequest>(body));
    case net::Op::kPut:
      return OnPut(channel, frame, Parse<proto::PutRequest>(body));
    case net::Op::kRemove:
      return OnRemove(channel, frame, Parse<proto::RemoveRequest>(body));
    case net::Op::kStat:
      return OnStat(channel, frame);
    case net::Op::kCancel:
      ++cancelled;
      puts_under_way_.erase({&channel, Parse<proto::CancelRequest>(body).request_id()});
      return;
    case net::Op::kRenew:
      return OnLeases(channel, frame, Parse<proto::RenewRequest>(body).leases());
    case net::Op::kRelease:
      return OnLeases(channel, frame, Parse<proto::ReleaseRequest>(body).leases());
    default:
      FAIL() << net::OpName(frame.op);
  }
}

proto::LookupReply FakeNode::Describe(const std::string& keys) {
  proto::LookupReply reply;
  for (const BlockKey& key : SplitKeys(keys)) {
    const auto found = blocks.find(key);
    if (found == blocks.end() || !found->second.visible) {
      break;
    }
    const Stored& block = found->second;
    proto::Form* form = reply.add_forms();
    form->set_codec(block.codec);
    form->set_group_mask(block.group_mask);
    for (const auto& [part, bytes] : block.parts) {
      form->set_stored_bytes(form->stored_bytes() + bytes.size());
    }
    reply.add_form_of_block(reply.prefix_blocks());
    reply.mutable_content_ids()->append(
        reinterpret_cast<const char*>(block.content_id.bytes.data()), ContentId::kBytes);
    reply.set_prefix_blocks(reply.prefix_blocks() + 1);
  }
  if (describe) {
    describe(&reply);
  }
  return reply;
}

void FakeNode::OnLookup(net::ServerChannel& channel, const net::FrameHeader& frame,
                        const proto::LookupRequest& request) {
  const proto::LookupReply reply = Describe(request.keys());
  channel.Reply(frame, absl::OkStatus(), &reply);
}

void FakeNode::OnAcquire(net::ServerChannel& channel, const net::FrameHeader& frame,
                         const proto::AcquireRequest& request) {
  proto::AcquireReply reply;
  *reply.mutable_held() = Describe(request.keys());
  if (reply.held().prefix_blocks() > 0 || describe) {
    std::string token(LeaseToken::kBytes, 'L');
    token.back() = static_cast<char>(token.back() + leases_granted_++);
    reply.set_lease(token);
    leases[token] = &channel;
  }
  channel.Reply(frame, absl::OkStatus(), &reply);
}

void FakeNode::OnGet(net::ServerChannel& channel, const net::FrameHeader& frame,
                     const proto::GetRequest& request) {
  gets.push_back(request);
  if (!request.lease().empty() && leases.count(request.lease()) == 0) {
    channel.Reply(frame, absl::AbortedError("the lease has ended"));
    return;
  }
  proto::GetReply reply;
  uint32_t index = 0;
  for (const BlockKey& key : SplitKeys(request.keys())) {
    const auto found = blocks.find(key);
    const bool held = found != blocks.end() && found->second.visible &&
                      (request.group_mask() & ~found->second.group_mask) == 0;
    reply.mutable_statuses()->push_back(
        static_cast<char>(held ? absl::StatusCode::kOk : absl::StatusCode::kNotFound));
    for (const auto& [part, stored] : held ? found->second.parts : decltype(Stored::parts)()) {
      const bool asked = (request.group_mask() >> part.group & 1) != 0 &&
                         part.shard >= request.first_shard() &&
                         part.shard < request.first_shard() + request.shard_count();
      if (!asked) {
        continue;
      }
      const auto reader = kernels::PartReader::Open(stored);
      ASSERT_TRUE(reader.ok());
      const auto& offsets = reader->info().layer_offset;
      const uint32_t first = request.first_layer();
      const size_t end =
          request.layer_count() == 0 ? offsets.size() - 1 : first + request.layer_count();
      std::vector<std::byte> bytes(stored.begin(), stored.begin() + reader->info().prefix_bytes);
      bytes.insert(bytes.end(), stored.begin() + offsets[first], stored.begin() + offsets[end]);
      if (tamper && !tamper(key, part, &bytes)) {
        continue;
      }
      auto buffer = MakeBuffer(std::move(bytes));
      const net::RegisteredSpan piece{buffer->region.get(), buffer->bytes.data(),
                                      buffer->bytes.size()};
      channel.SendPayload(frame, index, part, std::span(&piece, 1),
                          [this, buffer](absl::Status status) {
                            rejected_payloads += absl::IsResourceExhausted(status) ? 1 : 0;
                          });
    }
    ++index;
  }
  if (before_get_reply) {
    before_get_reply();
  }
  channel.Reply(frame, absl::OkStatus(), &reply);
}

void FakeNode::OnLeases(net::ServerChannel& channel, const net::FrameHeader& frame,
                        const std::string& tokens) {
  for (size_t at = 0; at < tokens.size(); at += LeaseToken::kBytes) {
    const std::string token = tokens.substr(at, LeaseToken::kBytes);
    if (frame.op == net::Op::kRelease) {
      leases.erase(token);
    } else {
      ++renewals[token];
    }
  }
  const proto::ReleaseReply reply;  // as bytes the same as an empty RenewReply
  channel.Reply(frame, absl::OkStatus(), &reply);
}

void FakeNode::OnPut(net::ServerChannel& channel, const net::FrameHeader& frame,
                     proto::PutRequest request) {
  puts.push_back(request);
  if (request.placement_epoch() < refuse_below_epoch) {
    channel.Reply(frame, absl::FailedPreconditionError("placed by an older membership"));
    return;
  }
  const size_t parts =
      static_cast<size_t>(std::popcount(request.group_mask())) * request.shard_count();
  const size_t missing = parts * static_cast<size_t>(request.blocks_size());
  puts_under_way_.emplace(std::pair(&channel, frame.request_id),
                          Put{frame, std::move(request), missing});
}

void FakeNode::OnPayload(net::ServerChannel& channel, const net::FrameHeader& frame,
                         net::IncomingPayload payload) {
  if (!take_payloads) {
    kept_.push_back(std::move(payload));
    return;
  }
  auto buffer = MakeBuffer(std::vector<std::byte>(payload.size()));
  const net::RegisteredSpan span{buffer->region.get(), buffer->bytes.data(), buffer->bytes.size()};
  payload.Receive(span, [this, frame, buffer, channel = &channel](absl::Status status) {
    const auto put = puts_under_way_.find({channel, frame.request_id});
    if (!status.ok() || put == puts_under_way_.end()) {
      return;
    }
    const proto::PutRequest& request = put->second.request;
    const proto::PutBlock& announced = request.blocks(static_cast<int>(frame.index));
    Stored& block = blocks[SplitKeys(announced.key()).front()];
    block.content_id = ContentId::FromBytes(
        std::as_bytes(std::span(announced.content_id())).first<ContentId::kBytes>());
    block.codec = request.codec();
    block.group_mask = request.group_mask();
    block.parts[{static_cast<uint8_t>(frame.group), static_cast<uint8_t>(frame.shard)}] =
        buffer->bytes;
    block.visible = block.parts.size() ==
                    static_cast<size_t>(std::popcount(request.group_mask())) * request.shards();
    if (--put->second.missing == 0) {
      proto::PutReply reply;
      reply.set_statuses(std::string(static_cast<size_t>(request.blocks_size()), '\0'));
      channel->Reply(put->second.frame, absl::OkStatus(), &reply);
      puts_under_way_.erase(put);
    }
  });
}

void FakeNode::OnRemove(net::ServerChannel& channel, const net::FrameHeader& frame,
                        const proto::RemoveRequest& request) {
  proto::RemoveReply reply;
  for (const BlockKey& key : SplitKeys(request.keys())) {
    reply.mutable_statuses()->push_back(static_cast<char>(
        blocks.erase(key) > 0 ? absl::StatusCode::kOk : absl::StatusCode::kNotFound));
  }
  for (const BlockKey& key : SplitKeys(request.suspects())) {
    suspects.push_back(key);
    const bool gone = damaged.erase(key) > 0 && blocks.erase(key) > 0;
    reply.mutable_statuses()->push_back(
        static_cast<char>(gone ? absl::StatusCode::kOk : absl::StatusCode::kFailedPrecondition));
  }
  channel.Reply(frame, absl::OkStatus(), &reply);
}

void FakeNode::OnStat(net::ServerChannel& channel, const net::FrameHeader& frame) {
  proto::StatReply reply;
  reply.set_node(options_.name);
  reply.set_incarnation(options_.incarnation);
  reply.set_blocks(blocks.size());
  channel.Reply(frame, absl::OkStatus(), &reply);
}

void FakeNode::OnClosed(net::ServerChannel& channel, absl::Status) {
  --open_channels;
  std::erase_if(leases, [&channel](const auto& lease) { return lease.second == &channel; });
  const auto found = channels_.find(&channel);
  host_.loop().Post([gone = std::move(found->second)] {});
  channels_.erase(found);
}

std::shared_ptr<FakeNode::Buffer> FakeNode::MakeBuffer(std::vector<std::byte> bytes) {
  auto buffer = std::make_shared<Buffer>(0);
  buffer->bytes = std::move(bytes);
  buffer->region = std::move(*transport_.Register(buffer->bytes));
  return buffer;
}

}  // namespace tokura
