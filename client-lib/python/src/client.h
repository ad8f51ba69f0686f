#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>

#include "names.h"
#include "operation.h"
#include "tokura.h"

namespace tokura::python {

// The client, and how its operations start. The interpreter lock serialises its use; what waits
// does so without it. Options come as tuples: the Python package gives them names and defaults.
class Client {
 public:
  // coordinators, nodes
  using Servers = std::tuple<std::vector<std::string>, std::vector<std::string>>;
  using Texts = std::tuple<std::string, std::string>;                  // name, ingest_codec
  using Profiles = std::tuple<std::vector<std::string>, std::string>;  // files, directory or ""
  // ring_bytes, window_bytes, part_bytes_max, inline_decode_bytes, codec_threads, operations_max,
  // sink_tokens
  using Counts = std::tuple<uint64_t, uint64_t, uint64_t, uint64_t, uint32_t, uint32_t, uint32_t>;
  using Flags = std::tuple<bool, bool>;  // accept_proxy_error, wake_spin
  // progress_timeout, connect_timeout, heartbeat, dead_after, breaker_backoff_min,
  // breaker_backoff_max, spin; nanoseconds
  using Durations = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t>;
  // max_error, allow_summary, touch, deadline in nanoseconds
  using Accept = std::tuple<double, bool, bool, int64_t>;
  using Placement = std::tuple<uint32_t, uint32_t, uint64_t>;  // first_shard, shards, first_token
  // views or None, placement, and what the operation keeps alive
  using View = std::tuple<nanobind::list, Placement, nanobind::object>;
  // first_block, blocks, first_layer, layers, track_layers
  using GetRange = std::tuple<uint32_t, uint32_t, uint32_t, uint32_t, uint32_t>;
  using PutRange = std::tuple<uint32_t, uint32_t, int64_t>;  // first_block, blocks, deadline
  using PutChoice = std::tuple<std::optional<std::string>, std::optional<nanobind::bytes>>;

  Client(const Servers& servers, const Texts& texts, const Profiles& profiles, const Counts& counts,
         const Flags& flags, const Durations& durations);
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client() { Close(); }

  // End every operation and the client; twice does nothing.
  void Close();
  bool closed() const { return handle_ == nullptr; }

  Operation Ready(int64_t timeout_ns) const;
  Operation Lookup(const Namespace& ns, const Chain& chain, const Accept& accept) const;
  Operation Acquire(const Namespace& ns, const Match& match, const Accept& accept) const;
  Operation Get(const Namespace& ns, const Match& match, const View& view, const GetRange& range,
                const Accept& accept) const;
  Operation Put(const Namespace& ns, const Chain& chain, const View& view, const PutRange& range,
                const PutChoice& choice) const;
  // `keys`: joined.
  Operation Remove(const Namespace& ns, const nanobind::bytes& keys) const;
  Operation Stat() const;
  void Renew(const Match& match) const;
  void Release(const Match& match) const;
  void SetNodes(const std::vector<std::string>& nodes) const;
  nanobind::bytes MetricsText() const;

 private:
  // Raises FailedPrecondition once closed.
  tokura_client* get() const;
  tokura_client* handle_ = nullptr;
};

void BindClient(nanobind::module_& module);

}  // namespace tokura::python
