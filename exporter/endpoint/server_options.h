// What a server serves, where, and within which limits.
#ifndef EXPORTER_ENDPOINT_SERVER_OPTIONS_H_
#define EXPORTER_ENDPOINT_SERVER_OPTIONS_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "exporter/base/log_level.h"
#include "exporter/diagnosis/diagnosis.h"
#include "exporter/diagnosis/snapshot_set.h"
#include "exporter/exposition/exposition.h"
#include "exporter/exposition/static_labels.h"
#include "exporter/http/guard.h"
#include "exporter/http/limits.h"
#include "exporter/node/peer_table.h"

namespace nccl_pulse {

struct ServerOptions {
  std::string listen_address = ":9410";  // as ParseListenAddress takes it
  StaticLabels static_labels;
  Exposition exposition;
  // Called on the server's thread, for each kind of page at most once per kPageLifetime. May throw.
  std::function<SnapshotSet(const ReadWish& wish)> source;
  LogFunction log;
  // This process' segment, to be handed over to the node's server; null, or empty: it serves
  // itself, on the next free port when another serves. Must outlive the server.
  const SharedDescriptor* memory = nullptr;
  PeerOptions peers;
  // A communicator with work in flight and no progress for this long is suspected to hang.
  std::chrono::milliseconds hang_after = Diagnosis::kDefaultHangAfter;
  // The same where it can change, asked on the server's thread; null: hang_after.
  std::function<std::chrono::milliseconds()> hang_after_now;
  // By what paces of processes are measured, for tests; null: the clock.
  std::function<int64_t()> pace_clock;
  double cpu_share = kJobCpuShare;  // of one core, for all that is asked of the server
  std::string service_directory;    // see exporter/node/service_file.h; "": none
  std::shared_ptr<Guard> guard;     // null: plain HTTP for everybody
};

}  // namespace nccl_pulse

#endif  // EXPORTER_ENDPOINT_SERVER_OPTIONS_H_
