#include "names.h"

#include <algorithm>

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"

namespace nb = nanobind;

namespace tokura::python {
namespace {

const uint8_t* Data(const nb::bytes& bytes) {
  return reinterpret_cast<const uint8_t*>(bytes.c_str());
}

}  // namespace

nb::bytes ToBytes(const Handle<tokura_bytes>& bytes) {
  return nb::bytes(tokura_bytes_data(bytes.get()), tokura_bytes_size(bytes.get()));
}

nb::list ToList(const uint8_t* data, size_t size, size_t count) {
  nb::list list;
  for (size_t i = 0; i < count; ++i) {
    list.append(nb::bytes(data + i * size, size));
  }
  return list;
}

Namespace::Namespace(const Texts& texts, const Numbers& numbers, const std::vector<Group>& groups) {
  std::vector<tokura_layer_group> described(groups.size());
  std::vector<const tokura_layer_group*> pointers;
  for (size_t i = 0; i < groups.size(); ++i) {
    tokura_layer_group& group = described[i];
    tokura_layer_group_init(&group, sizeof(group));
    const std::vector<uint32_t>& layers = std::get<2>(groups[i]);
    group.kind = std::get<0>(groups[i]);
    group.window = std::get<1>(groups[i]);
    group.layers = layers.data();
    group.layers_count = layers.size();
    group.kv_heads = std::get<3>(groups[i]);
    group.k_head_dim = std::get<4>(groups[i]);
    group.v_head_dim = std::get<5>(groups[i]);
    pointers.push_back(&group);
  }
  tokura_namespace_spec spec;
  tokura_namespace_spec_init(&spec, sizeof(spec));
  spec.tenant = std::get<0>(texts).c_str();
  spec.model = std::get<1>(texts).c_str();
  spec.model_revision = std::get<2>(texts).c_str();
  spec.lora_digest = std::get<3>(texts).c_str();
  spec.salt = std::get<4>(texts).c_str();
  spec.dtype = std::get<0>(numbers);
  spec.rope = std::get<1>(numbers);
  spec.head_shards = std::get<2>(numbers);
  spec.block_tokens = std::get<3>(numbers);
  spec.groups = pointers.data();
  spec.groups_count = pointers.size();
  Error error;
  handle_.reset(error.Check(tokura_namespace_create(&spec, error)));
}

nb::bytes Namespace::fingerprint() const {
  return nb::bytes(tokura_namespace_fingerprint(handle_.get()), TOKURA_FINGERPRINT_BYTES);
}

void Chain::AppendTokens(nb::handle tokens,
                         const std::vector<std::pair<uint32_t, nb::bytes>>& extras) {
  const std::vector<uint32_t> ids = ReadIntegers(tokens, "tokens");
  std::vector<tokura_key_extra> items;
  for (const auto& [kind, hash] : extras) {
    if (kind > UINT8_MAX) {
      Raise(TOKURA_INVALID_ARGUMENT, "an extra's kind must be 0 to 255");
    }
    items.push_back({static_cast<uint8_t>(kind), Data(hash), hash.size()});
  }
  Error error;
  error.Check(tokura_chain_append_tokens(handle_.get(), ids.data(), ids.size(), items.data(),
                                         items.size(), error));
}

void Chain::AppendEngineHash(const nb::bytes& hash) {
  Error error;
  error.Check(tokura_chain_append_engine_hash(handle_.get(), Data(hash), hash.size(), error));
}

void Chain::AppendKeys(const nb::bytes& keys) {
  if (keys.size() % TOKURA_KEY_BYTES != 0) {
    Raise(TOKURA_INVALID_ARGUMENT, "keys have 16 bytes each");
  }
  Error error;
  error.Check(
      tokura_chain_append_keys(handle_.get(), Data(keys), keys.size() / TOKURA_KEY_BYTES, error));
}

Chain Chain::Copy() const {
  Error error;
  return Chain(error.Check(tokura_chain_copy(handle_.get(), error)));
}

nb::bytes Chain::Keys(size_t count) const {
  return nb::bytes(tokura_chain_keys(handle_.get()), std::min(count, blocks()) * TOKURA_KEY_BYTES);
}

Match::Match(tokura_match* handle, double seconds) : handle_(handle), seconds_(seconds) {
  info_.struct_size = sizeof(info_);
  Error error;
  error.Check(tokura_match_describe(handle_.get(), &info_, error));
}

Match Match::FromBytes(const nb::bytes& data) {
  Error error;
  return Match(error.Check(tokura_match_from_bytes(Data(data), data.size(), error)), 0);
}

nb::bytes Match::Serialize() const {
  Error error;
  return ToBytes(Handle<tokura_bytes>(error.Check(tokura_match_to_bytes(handle_.get(), error))));
}

nb::list Match::Runs() const {
  nb::list runs;
  for (size_t i = 0; i < info_.runs_count; ++i) {
    runs.append(nb::make_tuple(info_.runs[i].node, info_.runs[i].first, info_.runs[i].count));
  }
  return runs;
}

nb::list Match::Codecs() const {
  nb::list codecs;
  for (size_t i = 0; info_.codecs != nullptr && i < info_.blocks; ++i) {
    codecs.append(info_.codecs[i]);
  }
  return codecs;
}

nb::list Match::StoredBytes() const {
  nb::list sizes;
  for (size_t i = 0; info_.stored_bytes != nullptr && i < info_.blocks; ++i) {
    sizes.append(info_.stored_bytes[i]);
  }
  return sizes;
}

void BindNames(nb::module_& module) {
  nb::class_<Namespace>(module, "Namespace")
      .def(nb::init<const Namespace::Texts&, const Namespace::Numbers&,
                    const std::vector<Namespace::Group>&>(),
           nb::arg("texts"), nb::arg("numbers"), nb::arg("groups"))
      .def_prop_ro("fingerprint", &Namespace::fingerprint)
      .def_prop_ro("block_bytes", &Namespace::block_bytes);
  nb::class_<Chain>(module, "Chain")
      .def(nb::init<const Namespace&>(), nb::arg("ns"))
      .def("append_tokens", &Chain::AppendTokens, nb::arg("tokens"), nb::arg("extras"))
      .def("append_engine_hash", &Chain::AppendEngineHash, nb::arg("hash"))
      .def("append_keys", &Chain::AppendKeys, nb::arg("keys"))
      .def("copy", &Chain::Copy)
      .def("joined_keys", &Chain::Keys, nb::arg("count"))
      .def("keys",
           [](const Chain& chain) {
             return ToList(tokura_chain_keys(chain.get()), TOKURA_KEY_BYTES, chain.blocks());
           })
      .def_prop_ro("blocks", &Chain::blocks)
      .def_prop_ro("tokens", &Chain::tokens);
  nb::class_<Match>(module, "Match")
      .def_static("from_bytes", &Match::FromBytes, nb::arg("data"))
      .def("to_bytes", &Match::Serialize)
      .def("keys",
           [](const Match& match) {
             return ToList(match.info().keys, TOKURA_KEY_BYTES, match.info().blocks);
           })
      .def("runs", &Match::Runs)
      .def("codecs", &Match::Codecs)
      .def("stored_bytes", &Match::StoredBytes)
      .def_prop_ro("blocks", [](const Match& match) { return match.info().blocks; })
      .def_prop_ro("block_tokens", [](const Match& match) { return match.info().block_tokens; })
      .def_prop_ro("held", [](const Match& match) { return match.info().held != 0; })
      .def_prop_ro("fingerprint",
                   [](const Match& match) {
                     return nb::bytes(match.info().fingerprint, TOKURA_FINGERPRINT_BYTES);
                   })
      .def_prop_ro("seconds", &Match::seconds);
}

}  // namespace tokura::python
