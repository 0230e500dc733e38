// Options of a server: its data, its address and its limits.
#ifndef EXPORTER_ENDPOINT_SERVER_OPTIONS_H_
#define EXPORTER_ENDPOINT_SERVER_OPTIONS_H_

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "exporter/base/log.h"
#include "exporter/diagnosis/diagnosis.h"
#include "exporter/diagnosis/facts/snapshot_set.h"
#include "exporter/exposition/exposition.h"
#include "exporter/exposition/json/communicators_json.h"
#include "exporter/exposition/static_labels.h"
#include "exporter/http/guard.h"
#include "exporter/http/limits.h"
#include "exporter/node/peers/peer_table.h"

namespace nccl_pulse {

struct ServerOptions {
  std::string listen_address = ":9410";  // in the syntax of ParseListenAddress
  StaticLabels static_labels;
  Exposition exposition;
  // Reads the snapshots. Called on the server thread, at most once per kPageLifetime for each kind
  // of page. May throw.
  std::function<SnapshotSet(const ReadWish& wish)> source;
  // Returns the processes of this host that use NCCL without the plugin; nothing if not known.
  // Called like `source`. Null: such processes are not searched for.
  std::function<std::optional<std::vector<ProcessWithoutPlugin>>()> without_plugin;
  LogFunction log;
  // This process' segment, to hand over to the node's server. Null or empty: serves itself, on the
  // next free port if another process serves. Must outlive the server.
  const SharedDescriptor* memory = nullptr;
  PeerOptions peers;
  // The user's threshold for hangs at this endpoint; called on the server thread. 0 or null: none
  // was set, and each job has its own or the default.
  std::function<std::chrono::milliseconds()> hang_after;
  // Clock for the paces of processes, for tests; null: the real clock.
  std::function<int64_t()> pace_clock;
  double cpu_share = kJobCpuShare;  // of one core, for all work on requests
  std::string service_directory;    // see exporter/node/service_file.h; "": none
  std::shared_ptr<Guard> guard;     // null: plain HTTP for everybody
};

}  // namespace nccl_pulse

#endif  // EXPORTER_ENDPOINT_SERVER_OPTIONS_H_
