// The C ABI's operations: how they start.

#include <algorithm>
#include <optional>
#include <utility>

#include "client-lib/src/c_abi/boundary.h"
#include "client-lib/src/c_abi/handles.h"
#include "client-lib/src/c_abi/read_view.h"
#include "client-lib/src/deadline.h"
#include "client-lib/src/sequence_plan.h"
#include "common/status_macros.h"
#include "kernels/codec.h"

using tokura::ClientCore;
using tokura::c_abi::CheckNotNull;
using tokura::c_abi::GuardedMake;
using tokura::c_abi::OperationState;

namespace tokura::c_abi {
namespace {

// Owners of a state: the operation's handle and the client's callbacks.
using StateRef = std::shared_ptr<OperationState>;
using MadeOperation = absl::StatusOr<std::unique_ptr<tokura_operation>>;

// Start what `start` does on the client's progress thread; it returns the operation's id there.
MadeOperation Launch(const tokura_client& client, OperationState::Kind kind,
                     absl::AnyInvocable<ClientCore::OperationId(ClientCore&, StateRef)> start) {
  auto made = std::make_unique<tokura_operation>();
  made->route = client.route;
  made->state = std::make_shared<OperationState>(kind);
  TOKURA_RETURN_IF_ERROR(client.route->Submit(
      [state = made->state, start = std::move(start)](ClientCore& core) mutable {
        state->OnStarted(core, start(core, state));
      }));
  return made;
}

std::optional<Duration> OptionalDuration(int64_t nanoseconds) {
  return nanoseconds < 0 ? std::nullopt : std::make_optional(Duration(nanoseconds));
}

AcceptOptions MakeAccept(double max_error, uint32_t allow_summary) {
  AcceptOptions accept;
  accept.max_error = max_error < 0 ? std::nullopt : std::make_optional(max_error);
  accept.allow_summary = allow_summary != 0;
  return accept;
}

absl::StatusOr<LookupOptions> ReadAccept(const tokura_accept_options* maybe_theirs) {
  tokura_accept_options options{};
  tokura_accept_options_init(&options, sizeof(options));
  if (maybe_theirs != nullptr) {
    TOKURA_RETURN_IF_ERROR(ReadStruct(maybe_theirs, "tokura_accept_options", &options));
  }
  LookupOptions ours;
  ours.accept = MakeAccept(options.max_error, options.allow_summary);
  ours.touch = options.touch != 0;
  ours.deadline = OptionalDuration(options.deadline_ns);
  return ours;
}

struct AskedGet {
  GetOptions options;
  bool track_layers = false;
};

absl::StatusOr<AskedGet> ReadGetOptions(const tokura_get_options* maybe_theirs) {
  tokura_get_options options{};
  tokura_get_options_init(&options, sizeof(options));
  if (maybe_theirs != nullptr) {
    TOKURA_RETURN_IF_ERROR(ReadStruct(maybe_theirs, "tokura_get_options", &options));
  }
  AskedGet asked;
  asked.options.accept = MakeAccept(options.max_error, options.allow_summary);
  asked.options.first_block = options.first_block;
  asked.options.blocks = options.blocks;
  asked.options.first_layer = options.first_layer;
  asked.options.layers = options.layers;
  asked.options.deadline = OptionalDuration(options.deadline_ns);
  asked.track_layers = options.track_layers != 0;
  return asked;
}

absl::StatusOr<PutOptions> ReadPutOptions(const tokura_put_options* maybe_theirs) {
  tokura_put_options options{};
  tokura_put_options_init(&options, sizeof(options));
  if (maybe_theirs != nullptr) {
    TOKURA_RETURN_IF_ERROR(ReadStruct(maybe_theirs, "tokura_put_options", &options));
  }
  PutOptions ours;
  if (options.codec != nullptr) {
    TOKURA_RETURN_IF_ERROR(kernels::FindCodec(options.codec).status());
    ours.codec = options.codec;
  }
  ours.first_block = options.first_block;
  ours.blocks = options.blocks;
  ours.deadline = OptionalDuration(options.deadline_ns);
  if (options.content_id_base != nullptr) {
    ours.content_id_base = ContentId::FromBytes(std::as_bytes(
        std::span<const uint8_t, ContentId::kBytes>(options.content_id_base, ContentId::kBytes)));
  }
  return ours;
}

// What a caller got wrong is said at once, and not block by block at the end.
absl::Status CheckGet(const Namespace& ns, const Match& match, const SequenceView& view,
                      const GetOptions& options) {
  if (match.fingerprint != ns.fingerprint() && match.blocks() > 0) {
    return absl::InvalidArgumentError("the match belongs to another namespace");
  }
  const uint64_t end = uint64_t{options.first_block} + options.blocks;
  if (end > match.blocks()) {
    return absl::InvalidArgumentError(absl::StrCat("blocks [", options.first_block, ", ", end,
                                                   ") of a match of ", match.blocks()));
  }
  const uint64_t rest = match.blocks() - options.first_block;
  const BlockRange range{options.first_block, options.blocks == 0 ? rest : options.blocks};
  return range.count == 0 ? absl::OkStatus() : CheckSequenceView(ns, view, range, ViewUse::kWrite);
}

absl::Status CheckPut(const Namespace& ns, const TokenChain& chain, const SequenceView& view,
                      const PutOptions& options) {
  if (chain.fingerprint() != ns.fingerprint()) {
    return absl::InvalidArgumentError("the chain belongs to another namespace");
  }
  const PutRange range = RangeOfPut(ns, chain.blocks(), view, options);
  TOKURA_RETURN_IF_ERROR(range.status);
  return range.range.count == 0 ? absl::OkStatus()
                                : CheckSequenceView(ns, view, range.range, ViewUse::kRead);
}

absl::Status CheckHandles(const tokura_client* client, const tokura_namespace* ns) {
  TOKURA_RETURN_IF_ERROR(CheckNotNull(client, "client"));
  return CheckNotNull(ns, "namespace");
}

MadeOperation StartGet(tokura_client* client, const tokura_namespace* ns, const tokura_match* match,
                       const tokura_sequence_view* view, const tokura_get_options* options) {
  TOKURA_RETURN_IF_ERROR(CheckHandles(client, ns));
  TOKURA_RETURN_IF_ERROR(CheckNotNull(match, "match"));
  TOKURA_ASSIGN_OR_RETURN(SequenceView memory,
                          ReadSequenceView(*ns->ns, view, MemoryUse::kWritten));
  TOKURA_ASSIGN_OR_RETURN(AskedGet asked, ReadGetOptions(options));
  TOKURA_RETURN_IF_ERROR(CheckGet(*ns->ns, match->match, memory, asked.options));
  return Launch(*client, OperationState::Kind::kGet,
                [ns = ns->ns, match = match->match, memory = std::move(memory),
                 asked = std::move(asked)](ClientCore& core, StateRef state) mutable {
                  if (asked.track_layers) {
                    asked.options.on_layer = [state](size_t group, uint32_t layer) {
                      state->OnLayer(group, layer);
                    };
                  }
                  return core.Get(ns, match, std::move(memory), std::move(asked.options),
                                  [state](GetResult got) { state->OnEnded(std::move(got)); });
                });
}

MadeOperation StartPut(tokura_client* client, const tokura_namespace* ns, const tokura_chain* chain,
                       const tokura_sequence_view* view, const tokura_put_options* options) {
  TOKURA_RETURN_IF_ERROR(CheckHandles(client, ns));
  TOKURA_RETURN_IF_ERROR(CheckNotNull(chain, "chain"));
  TOKURA_ASSIGN_OR_RETURN(SequenceView memory, ReadSequenceView(*ns->ns, view, MemoryUse::kRead));
  TOKURA_ASSIGN_OR_RETURN(PutOptions ours, ReadPutOptions(options));
  TokenChain snapshot = chain->Snapshot();
  TOKURA_RETURN_IF_ERROR(CheckPut(*ns->ns, snapshot, memory, ours));
  return Launch(*client, OperationState::Kind::kPut,
                [ns = ns->ns, snapshot = std::move(snapshot), memory = std::move(memory),
                 ours = std::move(ours)](ClientCore& core, StateRef state) mutable {
                  return core.Put(
                      ns, snapshot, std::move(memory), std::move(ours),
                      [state] { state->OnReleased(); },
                      [state](PutResult put) { state->OnEnded(std::move(put)); });
                });
}

}  // namespace
}  // namespace tokura::c_abi

extern "C" {

tokura_operation* tokura_ready_start(tokura_client* client, int64_t timeout_ns,
                                     tokura_error* error) {
  return GuardedMake<tokura_operation>(error, [&]() -> tokura::c_abi::MadeOperation {
    TOKURA_RETURN_IF_ERROR(CheckNotNull(client, "client"));
    const tokura::TimePoint deadline = tokura::After(
        client->client->executor().Now(), tokura::Duration(std::max<int64_t>(timeout_ns, 0)));
    return tokura::c_abi::Launch(
        *client, OperationState::Kind::kReady,
        [deadline](ClientCore& core, const tokura::c_abi::StateRef& state) {
          core.WhenReady(deadline,
                         [state](absl::Status ready) { state->OnEnded(std::move(ready)); });
          return ClientCore::OperationId{0};
        });
  });
}

tokura_operation* tokura_lookup_start(tokura_client* client, const tokura_namespace* ns,
                                      const tokura_chain* chain,
                                      const tokura_accept_options* options, tokura_error* error) {
  return GuardedMake<tokura_operation>(error, [&]() -> tokura::c_abi::MadeOperation {
    TOKURA_RETURN_IF_ERROR(tokura::c_abi::CheckHandles(client, ns));
    TOKURA_RETURN_IF_ERROR(CheckNotNull(chain, "chain"));
    TOKURA_ASSIGN_OR_RETURN(tokura::LookupOptions ours, tokura::c_abi::ReadAccept(options));
    if (chain->ns->fingerprint() != ns->ns->fingerprint()) {
      return absl::InvalidArgumentError("the chain belongs to another namespace");
    }
    return tokura::c_abi::Launch(
        *client, OperationState::Kind::kMatch,
        [ns = ns->ns, snapshot = chain->Snapshot(), ours = std::move(ours)](
            ClientCore& core, const tokura::c_abi::StateRef& state) {
          return core.Lookup(ns, snapshot, ours, [state](absl::StatusOr<tokura::Match> match) {
            state->OnEnded(std::move(match));
          });
        });
  });
}

tokura_operation* tokura_acquire_start(tokura_client* client, const tokura_namespace* ns,
                                       const tokura_match* match,
                                       const tokura_accept_options* options, tokura_error* error) {
  return GuardedMake<tokura_operation>(error, [&]() -> tokura::c_abi::MadeOperation {
    TOKURA_RETURN_IF_ERROR(tokura::c_abi::CheckHandles(client, ns));
    TOKURA_RETURN_IF_ERROR(CheckNotNull(match, "match"));
    TOKURA_ASSIGN_OR_RETURN(tokura::LookupOptions ours, tokura::c_abi::ReadAccept(options));
    return tokura::c_abi::Launch(*client, OperationState::Kind::kMatch,
                                 [ns = ns->ns, match = match->match, accept = ours.accept](
                                     ClientCore& core, const tokura::c_abi::StateRef& state) {
                                   return core.Acquire(ns, match, accept,
                                                       [state](absl::StatusOr<tokura::Match> held) {
                                                         state->OnEnded(std::move(held));
                                                       });
                                 });
  });
}

tokura_operation* tokura_get_start(tokura_client* client, const tokura_namespace* ns,
                                   const tokura_match* match, const tokura_sequence_view* view,
                                   const tokura_get_options* options, tokura_error* error) {
  return GuardedMake<tokura_operation>(
      error, [&] { return tokura::c_abi::StartGet(client, ns, match, view, options); });
}

tokura_operation* tokura_put_start(tokura_client* client, const tokura_namespace* ns,
                                   const tokura_chain* chain, const tokura_sequence_view* view,
                                   const tokura_put_options* options, tokura_error* error) {
  return GuardedMake<tokura_operation>(
      error, [&] { return tokura::c_abi::StartPut(client, ns, chain, view, options); });
}

tokura_operation* tokura_remove_start(tokura_client* client, const tokura_namespace* ns,
                                      const uint8_t* keys, size_t keys_count, tokura_error* error) {
  return GuardedMake<tokura_operation>(error, [&]() -> tokura::c_abi::MadeOperation {
    TOKURA_RETURN_IF_ERROR(tokura::c_abi::CheckHandles(client, ns));
    TOKURA_RETURN_IF_ERROR(keys_count > 0 ? CheckNotNull(keys, "keys") : absl::OkStatus());
    std::vector<tokura::BlockKey> list(keys_count);
    for (size_t i = 0; i < keys_count; ++i) {
      std::copy_n(keys + i * TOKURA_KEY_BYTES, TOKURA_KEY_BYTES, list[i].bytes.begin());
    }
    return tokura::c_abi::Launch(*client, OperationState::Kind::kRemove,
                                 [ns = ns->ns, list = std::move(list)](
                                     ClientCore& core, const tokura::c_abi::StateRef& state) {
                                   return core.Remove(ns, list,
                                                      [state](tokura::RemoveResult removed) {
                                                        state->OnEnded(std::move(removed));
                                                      });
                                 });
  });
}

tokura_operation* tokura_stat_start(tokura_client* client, tokura_error* error) {
  return GuardedMake<tokura_operation>(error, [&]() -> tokura::c_abi::MadeOperation {
    TOKURA_RETURN_IF_ERROR(CheckNotNull(client, "client"));
    return tokura::c_abi::Launch(
        *client, OperationState::Kind::kStat,
        [](ClientCore& core, const tokura::c_abi::StateRef& state) {
          return core.Stat([state](std::vector<absl::StatusOr<tokura::NodeStat>> stats) {
            state->OnEnded(std::move(stats));
          });
        });
  });
}

}  // extern "C"
