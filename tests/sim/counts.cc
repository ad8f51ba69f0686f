#include "tests/sim/counts.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tokura::sim {
namespace {

struct NamedCount {
  const char* name;
  uint64_t ClusterSimCounts::*member;
};

constexpr NamedCount kCounts[] = {
    {"runs", &ClusterSimCounts::runs},
    {"events", &ClusterSimCounts::events},
    {"operations", &ClusterSimCounts::operations},
    {"faults", &ClusterSimCounts::faults},
    {"two_loop_runs", &ClusterSimCounts::two_loop_runs},
    {"direct_runs", &ClusterSimCounts::direct_runs},
    {"blocks_verified", &ClusterSimCounts::blocks_verified},
    {"joint_verified", &ClusterSimCounts::joint_verified},
    {"sharded_puts", &ClusterSimCounts::sharded_puts},
    {"half_puts", &ClusterSimCounts::half_puts},
    {"contested_puts", &ClusterSimCounts::contested_puts},
    {"shared_leases", &ClusterSimCounts::shared_leases},
    {"carried_gets", &ClusterSimCounts::carried_gets},
    {"parts_audited", &ClusterSimCounts::parts_audited},
    {"writers_gone", &ClusterSimCounts::writers_gone},
    {"wire_flips", &ClusterSimCounts::wire_flips},
    {"memory_flips", &ClusterSimCounts::memory_flips},
    {"memory_flips_met", &ClusterSimCounts::memory_flips_met},
    {"blocks_healed", &ClusterSimCounts::blocks_healed},
    {"probes", &ClusterSimCounts::probes},
    {"leases_probed", &ClusterSimCounts::leases_probed},
    {"snapshots", &ClusterSimCounts::snapshots},
    {"snapshot_chunks", &ClusterSimCounts::snapshot_chunks},
    {"orphans_told", &ClusterSimCounts::orphans_told},
    {"touches_told", &ClusterSimCounts::touches_told},
    {"incarnations_raised", &ClusterSimCounts::incarnations_raised},
    {"old_placements", &ClusterSimCounts::old_placements},
    {"superseded", &ClusterSimCounts::superseded},
};

std::string FormatStatuses(const char* what, const Statuses& statuses) {
  std::string text = absl::StrFormat("%-20s", what);
  for (size_t code = 0; code < statuses.size(); ++code) {
    if (statuses[code] > 0) {
      absl::StrAppend(&text, " ", absl::StatusCodeToString(static_cast<absl::StatusCode>(code)),
                      " ", statuses[code]);
    }
  }
  return text + "\n";
}

}  // namespace

void ClusterSimCounts::Add(const ClusterSimCounts& other) {
  for (const NamedCount& count : kCounts) {
    this->*count.member += other.*count.member;
  }
  for (size_t code = 0; code < puts.size(); ++code) {
    puts[code] += other.puts[code];
    gets[code] += other.gets[code];
  }
  for (size_t fault = 0; fault < kFaults; ++fault) {
    for (size_t stage = 0; stage < kStages; ++stage) {
      coverage[fault][stage] += other.coverage[fault][stage];
    }
  }
}

std::string ClusterSimCounts::Format() const {
  std::string text;
  for (const NamedCount& count : kCounts) {
    absl::StrAppendFormat(&text, "%-20s%12d\n", count.name, this->*count.member);
  }
  absl::StrAppend(&text, FormatStatuses("blocks put", puts), FormatStatuses("blocks got", gets));
  absl::StrAppendFormat(&text, "%-20s", "fault x state");
  for (size_t stage = 0; stage < kStages; ++stage) {
    absl::StrAppendFormat(&text, "%9s", StageName(static_cast<Stage>(stage)));
  }
  text += "\n";
  for (size_t fault = 0; fault < kFaults; ++fault) {
    absl::StrAppendFormat(&text, "%-20s", FaultName(static_cast<Fault>(fault)));
    for (size_t stage = 0; stage < kStages; ++stage) {
      absl::StrAppendFormat(&text, "%9d", coverage[fault][stage]);
    }
    text += "\n";
  }
  return text;
}

std::vector<std::string> ClusterSimCounts::Missing() const {
  std::vector<std::string> missing;
  for (const NamedCount& count : kCounts) {
    if (this->*count.member == 0) {
      missing.push_back(count.name);
    }
  }
  for (size_t fault = 0; fault < kFaults; ++fault) {
    for (size_t stage = 0; stage < kStages; ++stage) {
      if (coverage[fault][stage] == 0) {
        missing.push_back(absl::StrCat(FaultName(static_cast<Fault>(fault)), " x ",
                                       StageName(static_cast<Stage>(stage))));
      }
    }
  }
  return missing;
}

}  // namespace tokura::sim
