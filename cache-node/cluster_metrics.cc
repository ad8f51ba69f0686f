#include "cache-node/cluster_metrics.h"

#include <utility>

#include "common/metrics.h"

namespace tokura::node {
namespace {

constexpr const char* kRegisterNames[kRegisterResults] = {"admitted", "adopted", "superseded",
                                                          "failed"};
constexpr const char* kBatchNames[kBatchKinds] = {"changes", "snapshot"};
constexpr const char* kLifeNames[kNoteLives] = {"this", "other"};

prometheus::Family<prometheus::Counter>& Counters(prometheus::Registry& registry, const char* name,
                                                  const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}

}  // namespace

ClusterMetrics::ClusterMetrics(std::shared_ptr<prometheus::Registry> registry)
    : registry_(std::move(registry)) {
  prometheus::Registry& to = *registry_;
  links_ = &prometheus::BuildGauge()
                .Name("tokura_node_coordinators_registered")
                .Help("Coordinators that this node is registered with.")
                .Register(to)
                .Add({});
  lag_ = &prometheus::BuildGauge()
              .Name("tokura_node_inventory_lag_changes")
              .Help("Changes that the coordinator which lags most has not been told of.")
              .Register(to)
              .Add({});
  auto& registrations = Counters(to, "tokura_node_registrations_total",
                                 "Answers to asking a coordinator to register this node.");
  for (size_t i = 0; i < kRegisterResults; ++i) {
    registrations_[i] = &registrations.Add({{"result", kRegisterNames[i]}});
  }
  auto& batches = Counters(to, "tokura_node_inventory_batches_total",
                           "Inventory batches that coordinators have taken.");
  auto& records = Counters(to, "tokura_node_inventory_records_total",
                           "Keys in inventory batches that coordinators have taken.");
  for (size_t i = 0; i < kBatchKinds; ++i) {
    batches_[i] = &batches.Add({{"kind", kBatchNames[i]}});
    records_[i] = &records.Add({{"kind", kBatchNames[i]}});
  }
  snapshots_ =
      &Counters(to, "tokura_node_inventory_snapshots_total", "Full inventories begun.").Add({});
  auto& touches = Counters(to, "tokura_node_touches_total",
                           "Keys that coordinators said are in use, by the life of this node "
                           "that they are about.");
  auto& orphans = Counters(to, "tokura_node_orphans_total",
                           "Keys whose prefix coordinators said is held nowhere, by the life of "
                           "this node that they are about.");
  for (size_t i = 0; i < kNoteLives; ++i) {
    touches_[i] = &touches.Add({{"life", kLifeNames[i]}});
    orphans_[i] = &orphans.Add({{"life", kLifeNames[i]}});
  }
  placements_refused_ = &Counters(to, "tokura_node_placements_refused_total",
                                  "Puts refused because an older membership placed them.")
                             .Add({});
}

void ClusterMetrics::BatchDelivered(BatchKind kind, size_t records) {
  batches_[static_cast<size_t>(kind)]->Increment();
  records_[static_cast<size_t>(kind)]->Increment(static_cast<double>(records));
}

}  // namespace tokura::node
