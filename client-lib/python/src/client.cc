#include "client.h"

#include <array>
#include <string>
#include <vector>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "errors.h"
#include "names.h"
#include "operation.h"
#include "views.h"

namespace nb = nanobind;

namespace tokura::python {
namespace {

// Memory as operations of the C ABI take it. Valid as long as the views are.
class Memory {
 public:
  // `groups`: views, or None.
  Memory(const nb::list& groups, const Client::Placement& placement) {
    for (nb::handle group : groups) {
      groups_.push_back(group.is_none() ? nullptr : nb::cast<View&>(group).get());
    }
    tokura_sequence_view_init(&view_, sizeof(view_));
    view_.groups = groups_.data();
    view_.groups_count = groups_.size();
    view_.first_shard = std::get<0>(placement);
    view_.shards = std::get<1>(placement);
    view_.first_token = std::get<2>(placement);
  }
  const tokura_sequence_view* get() const { return &view_; }

 private:
  std::vector<const tokura_kv_view*> groups_;
  tokura_sequence_view view_;
};

std::vector<const char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<const char*> pointers;
  for (const std::string& text : texts) {
    pointers.push_back(text.c_str());
  }
  return pointers;
}

tokura_accept_options MakeAccept(const Client::Accept& accept) {
  tokura_accept_options options;
  tokura_accept_options_init(&options, sizeof(options));
  options.max_error = std::get<0>(accept);
  options.allow_summary = std::get<1>(accept) ? 1 : 0;
  options.touch = std::get<2>(accept) ? 1 : 0;
  options.deadline_ns = std::get<3>(accept);
  return options;
}

}  // namespace

Client::Client(const Servers& servers, const Texts& texts, const Profiles& profiles,
               const Counts& counts, const Flags& flags, const Durations& durations) {
  tokura_client_options options;
  tokura_client_options_init(&options, sizeof(options));
  const std::vector<const char*> coordinator_list = Pointers(std::get<0>(servers));
  const std::vector<const char*> node_list = Pointers(std::get<1>(servers));
  const std::vector<const char*> profile_list = Pointers(std::get<0>(profiles));
  options.coordinators = coordinator_list.data();
  options.coordinators_count = coordinator_list.size();
  options.nodes = node_list.data();
  options.nodes_count = node_list.size();
  options.name = std::get<0>(texts).c_str();
  options.ingest_codec = std::get<1>(texts).c_str();
  options.profiles = profile_list.data();
  options.profiles_count = profile_list.size();
  options.profile_dir = std::get<1>(profiles).c_str();
  std::tie(options.ring_bytes, options.window_bytes, options.part_bytes_max,
           options.inline_decode_bytes, options.codec_threads, options.operations_max,
           options.sink_tokens) = counts;
  options.accept_proxy_error = std::get<0>(flags) ? 1 : 0;
  options.wake_spin = std::get<1>(flags) ? 1 : 0;
  std::tie(options.progress_timeout_ns, options.connect_timeout_ns, options.heartbeat_ns,
           options.dead_after_ns, options.breaker_backoff_min_ns, options.breaker_backoff_max_ns,
           options.spin_ns) = durations;
  Error error;
  {
    const nb::gil_scoped_release unlocked;
    handle_ = tokura_client_create(&options, error);
  }
  error.Check(handle_);
}

void Client::Close() {
  tokura_client* const handle = std::exchange(handle_, nullptr);
  const nb::gil_scoped_release unlocked;
  tokura_client_free(handle);
}

tokura_client* Client::get() const {
  if (handle_ == nullptr) {
    Raise(TOKURA_FAILED_PRECONDITION, "the client is closed");
  }
  return handle_;
}

Operation Client::Ready(int64_t timeout_ns) const {
  Error error;
  return Operation(error.Check(tokura_ready_start(get(), timeout_ns, error)), nb::none());
}

Operation Client::Lookup(const Namespace& ns, const Chain& chain, const Accept& accept) const {
  const tokura_accept_options options = MakeAccept(accept);
  Error error;
  return Operation(error.Check(tokura_lookup_start(get(), ns.get(), chain.get(), &options, error)),
                   nb::none());
}

Operation Client::Acquire(const Namespace& ns, const Match& match, const Accept& accept) const {
  const tokura_accept_options options = MakeAccept(accept);
  Error error;
  return Operation(error.Check(tokura_acquire_start(get(), ns.get(), match.get(), &options, error)),
                   nb::none());
}

Operation Client::Get(const Namespace& ns, const Match& match, const View& view,
                      const GetRange& range, const Accept& accept) const {
  const Memory memory(std::get<0>(view), std::get<1>(view));
  tokura_get_options options;
  tokura_get_options_init(&options, sizeof(options));
  std::tie(options.first_block, options.blocks, options.first_layer, options.layers,
           options.track_layers) = range;
  options.max_error = std::get<0>(accept);
  options.allow_summary = std::get<1>(accept) ? 1 : 0;
  options.deadline_ns = std::get<3>(accept);
  Error error;
  return Operation(
      error.Check(tokura_get_start(get(), ns.get(), match.get(), memory.get(), &options, error)),
      std::get<2>(view));
}

Operation Client::Put(const Namespace& ns, const Chain& chain, const View& view,
                      const PutRange& range, const PutChoice& choice) const {
  const Memory memory(std::get<0>(view), std::get<1>(view));
  tokura_put_options options;
  tokura_put_options_init(&options, sizeof(options));
  std::tie(options.first_block, options.blocks, options.deadline_ns) = range;
  const auto& [codec, content_id] = choice;
  options.codec = codec.has_value() ? codec->c_str() : nullptr;
  if (content_id.has_value()) {
    if (content_id->size() != TOKURA_CONTENT_ID_BYTES) {
      Raise(TOKURA_INVALID_ARGUMENT, "content_id_base has 16 bytes");
    }
    options.content_id_base = reinterpret_cast<const uint8_t*>(content_id->c_str());
  }
  Error error;
  return Operation(
      error.Check(tokura_put_start(get(), ns.get(), chain.get(), memory.get(), &options, error)),
      std::get<2>(view));
}

Operation Client::Remove(const Namespace& ns, const nb::bytes& keys) const {
  if (keys.size() % TOKURA_KEY_BYTES != 0) {
    Raise(TOKURA_INVALID_ARGUMENT, "keys have 16 bytes each");
  }
  Error error;
  return Operation(error.Check(tokura_remove_start(get(), ns.get(),
                                                   reinterpret_cast<const uint8_t*>(keys.c_str()),
                                                   keys.size() / TOKURA_KEY_BYTES, error)),
                   nb::none());
}

Operation Client::Stat() const {
  Error error;
  return Operation(error.Check(tokura_stat_start(get(), error)), nb::none());
}

void Client::Renew(const Match& match) const {
  Error error;
  error.Check(tokura_renew(get(), match.get(), error));
}

void Client::Release(const Match& match) const {
  Error error;
  error.Check(tokura_release(get(), match.get(), error));
}

void Client::SetNodes(const std::vector<std::string>& nodes) const {
  const std::vector<const char*> list = Pointers(nodes);
  // With the interpreter lock: it takes microseconds, and Close cannot come in between.
  Error error;
  error.Check(tokura_set_nodes(get(), list.data(), list.size(), error));
}

nb::bytes Client::MetricsText() const {
  Error error;
  return ToBytes(Handle<tokura_bytes>(error.Check(tokura_metrics_text(get(), error))));
}

void BindClient(nb::module_& module) {
  nb::class_<Client>(module, "Client")
      .def(nb::init<const Client::Servers&, const Client::Texts&, const Client::Profiles&,
                    const Client::Counts&, const Client::Flags&, const Client::Durations&>(),
           nb::arg("servers"), nb::arg("texts"), nb::arg("profiles"), nb::arg("counts"),
           nb::arg("flags"), nb::arg("durations"))
      .def("close", &Client::Close)
      .def_prop_ro("closed", &Client::closed)
      .def("ready", &Client::Ready, nb::arg("timeout_ns"))
      .def("lookup", &Client::Lookup, nb::arg("ns"), nb::arg("chain"), nb::arg("accept"))
      .def("acquire", &Client::Acquire, nb::arg("ns"), nb::arg("match"), nb::arg("accept"))
      .def("get", &Client::Get, nb::arg("ns"), nb::arg("match"), nb::arg("view"), nb::arg("range"),
           nb::arg("accept"))
      .def("put", &Client::Put, nb::arg("ns"), nb::arg("chain"), nb::arg("view"), nb::arg("range"),
           nb::arg("choice"))
      .def("remove", &Client::Remove, nb::arg("ns"), nb::arg("keys"))
      .def("stat", &Client::Stat)
      .def("renew", &Client::Renew, nb::arg("match"))
      .def("release", &Client::Release, nb::arg("match"))
      .def("set_nodes", &Client::SetNodes, nb::arg("nodes"))
      .def("metrics_text", &Client::MetricsText);
}

}  // namespace tokura::python
