#include <array>
#include <string>
#include <vector>

#include "cli/bench_command.h"
#include "cli/bench_soak.h"
#include "cli/bench_transport.h"
#include "cli/codec_commands.h"
#include "cli/command.h"
#include "cli/demo.h"
#include "cli/demo_worker.h"
#include "cli/kv_commands.h"
#include "cli/nodes_command.h"
#include "cli/profile_command.h"
#include "cli/up_command.h"

int main(int argc, char** argv) {
  using tokura::cli::Command;
  using tokura::cli::CommandKind;
  static constexpr std::array kCommands = {
      Command{"up", "run a coordinator and a cache node in this process", tokura::cli::RunUp},
      Command{"demo", "watch workers share a real model's KV through nodes that come and go",
              tokura::cli::RunDemo},
      Command{"put", "store the blocks of a captured sequence", tokura::cli::RunPut},
      Command{"get", "fetch the longest held prefix of a captured sequence", tokura::cli::RunGet},
      Command{"stat", "show what nodes hold", tokura::cli::RunStat},
      Command{"nodes", "show the nodes of a cluster", tokura::cli::RunNodes},
      Command{"rm", "remove the blocks of a captured sequence", tokura::cli::RunRemove},
      Command{"codec list", "list the codecs", tokura::cli::RunCodecList},
      Command{"codec eval", "measure what a codec does to captured KV", tokura::cli::RunCodecEval},
      Command{"profile", "make a model's profile from captured KV", tokura::cli::RunProfile},
      Command{"profile show", "show what is in a profile", tokura::cli::RunProfileShow},
      Command{"bench codec", "encode and decode against memcpy", tokura::cli::RunBenchCodec},
      Command{"bench transport", "move blocks against raw UCX", tokura::cli::RunBenchTransport},
      Command{"bench lookup", "find prefixes among many blocks against Redis",
              tokura::cli::RunBenchLookup},
      Command{"bench soak", "use nodes from many threads and check every byte",
              tokura::cli::RunBenchSoak},
      Command{"bench-transport-peer", "", tokura::cli::RunBenchTransportPeer,
              CommandKind::kInternal},
      Command{"demo-worker", "", tokura::cli::RunDemoWorker, CommandKind::kInternal},
  };
  return tokura::cli::RunCommand(kCommands, std::vector<std::string>(argv + 1, argv + argc));
}
