#include "cli/nodes_command.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "cli/coordinator_ask.h"
#include "cli/output.h"
#include "cli/table.h"
#include "common/config.h"
#include "common/net/address_option.h"
#include "common/net/transport.h"
#include "common/status_macros.h"
#include "common/time.h"

namespace tokura::cli {
namespace {

struct NodesFlags {
  std::vector<std::string> coordinators;
  Duration timeout = std::chrono::seconds(5);
  bool once = true;
  std::string json_path;
};

const char* StateName(proto::Member::State state) {
  switch (state) {
    case proto::Member::UP:
      return "up";
    case proto::Member::SUSPECT:
      return "suspect";
    case proto::Member::LEAVING:
      return "leaving";
    default:
      return "unknown";
  }
}

double Seconds(uint64_t us) {
  return static_cast<double>(us) / 1e6;
}

Json RowJson(const proto::NodeRow& row) {
  const proto::Member& member = row.member();
  return Json{{"node", member.node()},
              {"state", StateName(member.state())},
              {"incarnation", member.incarnation()},
              {"address", member.address()},
              {"admin", member.admin()},
              {"share", member.share_permille() / 1000.0},
              {"capacity_bytes", member.capacity_bytes()},
              {"used_bytes", row.used_bytes()},
              {"inflight_bytes", row.inflight_bytes()},
              {"blocks", row.blocks()},
              {"complete", row.complete()},
              {"report_age_seconds", Seconds(row.report_age_us())}};
}

std::string NodesText(const proto::NodesReply& reply) {
  using Align = TextTable::Align;
  TextTable table({{"node"},
                   {"state"},
                   {"address"},
                   {"blocks", Align::kRight},
                   {"used", Align::kRight},
                   {"capacity", Align::kRight},
                   {"share", Align::kRight},
                   {"inventory"},
                   {"last report", Align::kRight}});
  for (const proto::NodeRow& row : reply.rows()) {
    const proto::Member& member = row.member();
    table.AddRow({member.node(), StateName(member.state()), member.address(),
                  absl::StrCat(row.blocks()), ReadableBytes(static_cast<double>(row.used_bytes())),
                  ReadableBytes(static_cast<double>(member.capacity_bytes())),
                  FixedPoint(member.share_permille() / 10.0, 0) + " %",
                  row.complete() ? "complete" : "coming",
                  FixedPoint(Seconds(row.report_age_us()), 1) + " s ago"});
  }
  return absl::StrCat(table.ToString(), reply.rows_size() == 0 ? "no nodes\n" : "", "epoch ",
                      reply.epoch(), " at ", reply.coordinator(), "\n");
}

}  // namespace

int RunNodes(const std::vector<std::string>& args) {
  NodesFlags flags;
  OptionTable options("tokura nodes", "Show the cache nodes that a coordinator knows.");
  options.SetDefaultLogLevel("warn");
  options.AddStrings("coordinator", &flags.coordinators,
                     "coordinators, host:port, comma-separated; the first that answers is shown");
  options.AddDuration("timeout", &flags.timeout, "longest wait for an answer");
  options.AddBool("once", &flags.once, "ask once (the only way in this version)");
  options.AddString("json", &flags.json_path, "write the rows to this file; - for stdout alone");
  options.AddExample("tokura nodes --coordinator 127.0.0.1:7420", "a row for each node");
  options.AddCheck([&flags]() -> absl::Status {
    if (flags.coordinators.empty()) {
      return absl::InvalidArgumentError(
          "name a coordinator with --coordinator HOST:PORT (`tokura up` starts one and prints its "
          "address)");
    }
    for (const std::string& coordinator : flags.coordinators) {
      TOKURA_RETURN_IF_ERROR(net::ParseAddressOption("coordinator", coordinator).status());
    }
    if (!flags.once) {
      return absl::InvalidArgumentError(
          "--once false: this version shows the nodes once; use `watch tokura nodes …`");
    }
    return flags.timeout > Duration::zero()
               ? absl::OkStatus()
               : absl::InvalidArgumentError("--timeout must be positive");
  });
  if (const auto outcome = options.Parse(args); !outcome.run) {
    return outcome.exit_code;
  }
  const auto reply = AskForNodes(flags.coordinators, flags.timeout);
  if (!reply.ok()) {
    return Fail("nodes", absl::Status(reply.status().code(),
                                      absl::StrCat(reply.status().message(),
                                                   "; is a coordinator running there? `tokura up` "
                                                   "starts one")));
  }
  const Output output(flags.json_path);
  output.Print(NodesText(*reply));
  Json rows = Json::array();
  for (const proto::NodeRow& row : reply->rows()) {
    rows.push_back(RowJson(row));
  }
  const absl::Status written = output.WriteJson(rows);
  return written.ok() ? kExitOk : Fail("nodes", written);
}

}  // namespace tokura::cli
