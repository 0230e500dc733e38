#include "plugin/runtime/endpoint.h"

#include <unistd.h>

#include <chrono>
#include <stdexcept>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "metrics/segment_reader.h"
#include "plugin/runtime/identity.h"

namespace nccl_pulse {
namespace {

// Reads this process' own segment in the same way as the segments of other processes are read.
SnapshotSet ReadOwnSegment(const Segment& segment, const ReadWish& wish) {
  SnapshotSet set(std::vector<ProcessSnapshot>(1));
  std::string error;
  if (ReadSegment(segment.base(), segment.bytes(), &set.processes.front(), &error, {}, nullptr,
                  wish)) {
    ProcessSnapshot& own = set.processes.front();
    set.server_labels = own.static_labels;
    own.seen_pid = own.pid;
    own.seen_in = own.pid_namespace;
    own.user = geteuid();
    return set;
  }
  throw std::runtime_error("this process' own segment: " + error);
}

// Returns "http://node17:9410/metrics", for example. If the server listens on all interfaces, the
// URL has the host's name.
std::string MetricsUrl(const Server& server, const std::string& hostname) {
  const std::string& address = server.address();
  if (address.empty()) {
    return "no endpoint on this node yet; its address will be logged";
  }
  if (absl::StartsWith(address, "unix:")) return address;
  const bool all_interfaces =
      absl::StartsWith(address, "[::]:") || absl::StartsWith(address, "0.0.0.0:");
  return all_interfaces ? absl::StrCat("http://", hostname, ":", server.port(), "/metrics")
                        : absl::StrCat("http://", address, "/metrics");
}

ServerOptions OptionsOf(Process& process) {
  const Settings& settings = process.settings;
  ServerOptions options;
  options.listen_address = settings.listen;
  options.memory = &process.segment->memory();
  options.service_directory = settings.file_sd_directory;
  options.exposition = settings.exposition;
  options.source = [&process](const ReadWish& wish) {
    return ReadOwnSegment(*process.segment, wish);
  };
  options.log = [&process](LogLevel level, const std::string& message) {
    // This is the server's own thread: NCCL's logger may be gone by then.
    if (level == LogLevel::kWarning) {
      process.log.Warn(nullptr, message);
    } else {
      process.log.Info(nullptr, message);
    }
  };
  return options;
}

}  // namespace

std::string Endpoint::Start(Process* process, abi::DebugLogger logger) {
  if (process->settings.listen == "off") return "metrics are not served (NCCL_PULSE_LISTEN=off)";
  std::string error;
  server_ = Server::Start(OptionsOf(*process), &error);
  if (server_ != nullptr) return MetricsUrl(*server_, FindProcessIdentity().hostname);
  process->log.Warn(
      logger, absl::StrCat("metrics cannot be served (NCCL_PULSE_LISTEN=", process->settings.listen,
                           "): ", error, ". The job continues without an endpoint"));
  return "metrics are not served";
}

}  // namespace nccl_pulse
