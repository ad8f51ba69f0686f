#include "cache-node/server_lookup.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cache-node/server_wire.h"
#include "common/status_macros.h"
#include "proto/tokura.pb.h"

namespace tokura::node {
namespace {

std::string Bytes(std::span<const std::byte> bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

absl::StatusOr<ReplyBody> Lookup(ServerContext& context, const Caller& caller,
                                 std::span<const std::byte> body) {
  proto::LookupRequest request;
  TOKURA_RETURN_IF_ERROR(ParseRequest(body, &request));
  TOKURA_ASSIGN_OR_RETURN(const Fingerprint fingerprint, ReadFingerprint(request.fingerprint()));
  TOKURA_ASSIGN_OR_RETURN(const std::vector<BlockKey> keys,
                          ReadKeys(request.keys(), context.options.keys_max));
  TOKURA_ASSIGN_OR_RETURN(const AcceptRule accept, ReadAccept(request.accept()));
  auto reply = std::make_unique<proto::LookupReply>();
  LookupReplyBuilder builder(*context.store, reply.get());
  const Touch touch = request.touch() ? Touch::kYes : Touch::kNo;
  for (const FormInfo& info : context.store->Find(fingerprint, keys, accept, touch, caller.now)) {
    if (!builder.Add(info)) {
      break;  // A lookup is a hint: a shorter prefix is a correct answer.
    }
  }
  context.metrics.LookedUp(reply->prefix_blocks(), keys.size() - reply->prefix_blocks());
  return reply;
}

absl::StatusOr<ReplyBody> Acquire(ServerContext& context, const Caller& caller,
                                  std::span<const std::byte> body) {
  proto::AcquireRequest request;
  TOKURA_RETURN_IF_ERROR(ParseRequest(body, &request));
  PinQuery query;
  TOKURA_ASSIGN_OR_RETURN(query.fingerprint, ReadFingerprint(request.fingerprint()));
  TOKURA_ASSIGN_OR_RETURN(const std::vector<BlockKey> keys,
                          ReadKeys(request.keys(), context.options.keys_max));
  TOKURA_ASSIGN_OR_RETURN(const std::vector<ContentId> content_ids,
                          ReadContentIds(request.content_ids(), keys.size()));
  TOKURA_ASSIGN_OR_RETURN(query.accept, ReadAccept(request.accept()));
  query.keys = keys;
  query.content_ids = content_ids;
  query.gaps = Gaps::kCut;
  std::vector<FormPin> pins = context.store->Pin(query, caller.now);

  auto reply = std::make_unique<proto::AcquireReply>();
  LookupReplyBuilder builder(*context.store, reply->mutable_held());
  size_t held = 0;
  while (held < pins.size() && builder.Add(pins[held].info())) {
    ++held;
  }
  pins.resize(held);  // The lease holds exactly what the reply names.
  if (held > 0) {
    auto lease =
        context.leases.Acquire(caller.tenant, caller.connection, std::move(pins), caller.now);
    if (!lease.ok()) {
      if (absl::IsResourceExhausted(lease.status())) {
        context.metrics.Rejected(FullQueue::kLeases);
      }
      return lease.status();
    }
    reply->set_lease(Bytes(lease->span()));
  }
  return reply;
}

// The leases that a renew or a release names.
template <typename Request>
absl::StatusOr<std::vector<LeaseToken>> ParseLeases(const ServerContext& context,
                                                    std::span<const std::byte> body) {
  Request request;
  TOKURA_RETURN_IF_ERROR(ParseRequest(body, &request));
  return ReadLeases(request.leases(), context.options.keys_max);
}

absl::StatusOr<ReplyBody> Renew(ServerContext& context, const Caller& caller,
                                std::span<const std::byte> body) {
  TOKURA_ASSIGN_OR_RETURN(const std::vector<LeaseToken> leases,
                          ParseLeases<proto::RenewRequest>(context, body));
  auto reply = std::make_unique<proto::RenewReply>();
  for (const LeaseToken& lease : leases) {
    reply->add_held(context.leases.Renew(lease, caller.tenant, caller.now));
  }
  return reply;
}

absl::StatusOr<ReplyBody> Release(ServerContext& context, const Caller& caller,
                                  std::span<const std::byte> body) {
  TOKURA_ASSIGN_OR_RETURN(const std::vector<LeaseToken> leases,
                          ParseLeases<proto::ReleaseRequest>(context, body));
  for (const LeaseToken& lease : leases) {
    // A lease that has ended already is what the caller wants.
    context.leases.Release(lease, caller.tenant, caller.now);
  }
  return std::make_unique<proto::ReleaseReply>();
}

absl::StatusOr<ReplyBody> Remove(ServerContext& context, const Caller& caller,
                                 std::span<const std::byte> body) {
  proto::RemoveRequest request;
  TOKURA_RETURN_IF_ERROR(ParseRequest(body, &request));
  TOKURA_ASSIGN_OR_RETURN(const Fingerprint fingerprint, ReadFingerprint(request.fingerprint()));
  TOKURA_ASSIGN_OR_RETURN(const std::vector<BlockKey> keys,
                          ReadKeys(request.keys(), context.options.keys_max));
  auto reply = std::make_unique<proto::RemoveReply>();
  for (const BlockKey& key : keys) {
    const bool removed = context.store->Remove(fingerprint, key, caller.now);
    const absl::StatusCode status = removed ? absl::StatusCode::kOk : absl::StatusCode::kNotFound;
    reply->mutable_statuses()->push_back(static_cast<char>(status));
  }
  return reply;
}

// The node's totals; with keys also every form of each.
absl::StatusOr<ReplyBody> Stat(ServerContext& context, std::span<const std::byte> body) {
  constexpr size_t kStatBytesMax = net::kMessageBytesMax / 2;
  proto::StatRequest request;
  TOKURA_RETURN_IF_ERROR(ParseRequest(body, &request));
  auto reply = std::make_unique<proto::StatReply>();
  const StoreStats stats = context.store->stats();
  reply->set_node(context.options.name);
  reply->set_incarnation(context.incarnation.load());
  reply->set_blocks(stats.blocks);
  reply->set_forms(stats.forms);
  reply->set_bytes_stored(stats.stored_bytes);
  reply->set_bytes_logical(stats.logical_bytes);
  reply->set_capacity_bytes(stats.capacity_bytes);
  reply->set_largest_free_bytes(stats.largest_free_bytes);
  reply->set_pinned_bytes(stats.pinned_bytes);
  reply->set_leases(context.leases.stats().leases);
  if (request.keys().empty()) {
    return reply;
  }
  TOKURA_ASSIGN_OR_RETURN(const Fingerprint fingerprint, ReadFingerprint(request.fingerprint()));
  TOKURA_ASSIGN_OR_RETURN(const std::vector<BlockKey> keys,
                          ReadKeys(request.keys(), context.options.blocks_max));
  size_t bytes = 0;
  for (const BlockKey& key : keys) {
    proto::BlockStat* block = reply->add_block_stats();
    block->set_key(Bytes(key.span()));
    for (const FormInfo& info : context.store->Forms(fingerprint, key)) {
      proto::Form form = MakeForm(*context.store, info);
      form.set_content_id(Bytes(info.content_id.span()));
      *block->add_forms() = std::move(form);
    }
    bytes += block->ByteSizeLong();
    if (bytes > kStatBytesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("the forms of ", keys.size(), " blocks exceed one reply; ask for fewer"));
    }
  }
  return reply;
}

}  // namespace

absl::StatusOr<ReplyBody> AnswerSimple(ServerContext& context, const Caller& caller, net::Op op,
                                       std::span<const std::byte> body) {
  switch (op) {
    case net::Op::kLookup:
      return Lookup(context, caller, body);
    case net::Op::kAcquire:
      return Acquire(context, caller, body);
    case net::Op::kRenew:
      return Renew(context, caller, body);
    case net::Op::kRelease:
      return Release(context, caller, body);
    case net::Op::kRemove:
      return Remove(context, caller, body);
    case net::Op::kStat:
      return Stat(context, body);
    default:
      return absl::UnimplementedError(absl::StrCat("op ", net::OpName(op), " is not served here"));
  }
}

}  // namespace tokura::node
