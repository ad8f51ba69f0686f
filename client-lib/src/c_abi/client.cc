// The C ABI's client: its options, its life, and what it does without an operation.

#include <sstream>
#include <utility>

#include <prometheus/text_serializer.h>

#include "client-lib/src/c_abi/boundary.h"
#include "client-lib/src/c_abi/handles.h"
#include "common/status_macros.h"

using tokura::c_abi::CheckNotNull;
using tokura::c_abi::Guarded;
using tokura::c_abi::GuardedMake;
using tokura::c_abi::GuardedQuietly;

namespace tokura::c_abi {
namespace {

absl::StatusOr<std::vector<std::string>> ReadList(const char* const* items, size_t count,
                                                  const char* name) {
  std::vector<std::string> list;
  if (count > 0) {
    TOKURA_RETURN_IF_ERROR(CheckNotNull(items, name));
  }
  for (size_t i = 0; i < count; ++i) {
    TOKURA_RETURN_IF_ERROR(CheckNotNull(items[i], name));
    list.emplace_back(items[i]);
  }
  return list;
}

absl::StatusOr<Duration> ReadDuration(int64_t nanoseconds, const char* name) {
  if (nanoseconds < 0) {
    return absl::InvalidArgumentError(absl::StrCat(name, " is negative"));
  }
  return Duration(nanoseconds);
}

absl::Status ReadDurations(const tokura_client_options& theirs, ClientOptions* ours) {
  TOKURA_ASSIGN_OR_RETURN(ours->progress_timeout,
                          ReadDuration(theirs.progress_timeout_ns, "progress_timeout"));
  TOKURA_ASSIGN_OR_RETURN(ours->connect_timeout,
                          ReadDuration(theirs.connect_timeout_ns, "connect_timeout"));
  TOKURA_ASSIGN_OR_RETURN(ours->heartbeat, ReadDuration(theirs.heartbeat_ns, "heartbeat"));
  TOKURA_ASSIGN_OR_RETURN(ours->dead_after, ReadDuration(theirs.dead_after_ns, "dead_after"));
  TOKURA_ASSIGN_OR_RETURN(ours->breaker_backoff_min,
                          ReadDuration(theirs.breaker_backoff_min_ns, "breaker_backoff_min"));
  TOKURA_ASSIGN_OR_RETURN(ours->breaker_backoff_max,
                          ReadDuration(theirs.breaker_backoff_max_ns, "breaker_backoff_max"));
  TOKURA_ASSIGN_OR_RETURN(ours->spin, ReadDuration(theirs.spin_ns, "spin"));
  return absl::OkStatus();
}

absl::StatusOr<ClientOptions> ReadOptions(const tokura_client_options* theirs) {
  tokura_client_options options{};
  TOKURA_RETURN_IF_ERROR(ReadStruct(theirs, "tokura_client_options", &options));
  ClientOptions ours;
  TOKURA_ASSIGN_OR_RETURN(ours.coordinators, ReadList(options.coordinators,
                                                      options.coordinators_count, "coordinators"));
  TOKURA_ASSIGN_OR_RETURN(ours.nodes, ReadList(options.nodes, options.nodes_count, "nodes"));
  TOKURA_RETURN_IF_ERROR(CheckNotNull(options.name, "name"));
  TOKURA_RETURN_IF_ERROR(CheckNotNull(options.ingest_codec, "ingest_codec"));
  ours.name = options.name;
  ours.ingest_codec = options.ingest_codec;
  ours.ring_bytes = options.ring_bytes;
  ours.window_bytes = options.window_bytes;
  ours.part_bytes_max = options.part_bytes_max;
  ours.inline_decode_bytes = options.inline_decode_bytes;
  ours.codec_threads = options.codec_threads;
  ours.operations_max = options.operations_max;
  ours.sink_tokens = options.sink_tokens;
  ours.accept_proxy_error = options.accept_proxy_error != 0;
  TOKURA_ASSIGN_OR_RETURN(ours.profiles.files,
                          ReadList(options.profiles, options.profiles_count, "profiles"));
  ours.profiles.directory = options.profile_dir == nullptr ? "" : options.profile_dir;
  ours.wake = options.wake_spin != 0 ? ClientOptions::Wake::kSpin : ClientOptions::Wake::kSleep;
  TOKURA_RETURN_IF_ERROR(ReadDurations(options, &ours));
  return ours;
}

}  // namespace
}  // namespace tokura::c_abi

extern "C" {

tokura_client* tokura_client_create(const tokura_client_options* options, tokura_error* error) {
  return GuardedMake<tokura_client>(error, [&]() -> absl::StatusOr<std::unique_ptr<tokura_client>> {
    TOKURA_ASSIGN_OR_RETURN(tokura::ClientOptions ours, tokura::c_abi::ReadOptions(options));
    TOKURA_RETURN_IF_ERROR(tokura::c_abi::CheckFirstUseAfterFork());
    auto made = std::make_unique<tokura_client>();
    made->registry = std::make_shared<prometheus::Registry>();
    TOKURA_ASSIGN_OR_RETURN(made->client, tokura::Client::Create(std::move(ours), made->registry));
    made->route = std::make_shared<tokura::c_abi::Route>(*made->client);
    return made;
  });
}

void tokura_client_free(tokura_client* client) {
  GuardedQuietly([client] {
    if (client == nullptr || client->stamp.forked()) {
      return;  // in a forked child the client's threads do not exist, so nothing can be ended
    }
    client->route->Close();
    delete client;
  });
}

tokura_code tokura_set_nodes(tokura_client* client, const char* const* nodes, size_t nodes_count,
                             tokura_error* error) {
  return Guarded(error, [&]() -> absl::Status {
    TOKURA_RETURN_IF_ERROR(CheckNotNull(client, "client"));
    TOKURA_RETURN_IF_ERROR(client->stamp.Check());
    TOKURA_ASSIGN_OR_RETURN(const std::vector<std::string> list,
                            tokura::c_abi::ReadList(nodes, nodes_count, "nodes"));
    return client->client->SetNodes(list);
  });
}

tokura_bytes* tokura_metrics_text(tokura_client* client, tokura_error* error) {
  return GuardedMake<tokura_bytes>(error, [&]() -> absl::StatusOr<std::unique_ptr<tokura_bytes>> {
    TOKURA_RETURN_IF_ERROR(CheckNotNull(client, "client"));
    TOKURA_RETURN_IF_ERROR(client->stamp.Check());
    auto made = std::make_unique<tokura_bytes>();
    std::ostringstream out;
    prometheus::TextSerializer().Serialize(out, client->registry->Collect());
    made->data = out.str();
    return made;
  });
}

tokura_code tokura_renew(tokura_client* client, const tokura_match* held, tokura_error* error) {
  return Guarded(error, [&]() -> absl::Status {
    TOKURA_RETURN_IF_ERROR(CheckNotNull(client, "client"));
    TOKURA_RETURN_IF_ERROR(CheckNotNull(held, "match"));
    return client->route->Submit(
        [match = held->match](tokura::ClientCore& core) { core.Renew(match); });
  });
}

tokura_code tokura_release(tokura_client* client, const tokura_match* held, tokura_error* error) {
  return Guarded(error, [&]() -> absl::Status {
    TOKURA_RETURN_IF_ERROR(CheckNotNull(client, "client"));
    TOKURA_RETURN_IF_ERROR(CheckNotNull(held, "match"));
    return client->route->Submit(
        [match = held->match](tokura::ClientCore& core) { core.Release(match); });
  });
}

}  // extern "C"
