// A file for Prometheus' file-based service discovery (file_sd). It says where this node's endpoint
// is, where the port is not known beforehand.
//
//   <directory>/nccl-pulse-<host>-<port>.json
//   [{"targets": ["node17:9411"], "labels": {"__scheme__": "http", ...}}]
//
// It is written under another name and then renamed, so that Prometheus never reads half of it. Its
// process keeps it locked (flock) as long as it lives. What a killed one leaves behind is unlocked,
// and removed by whoever writes there next, at any port, and by an agent from time to time. A lock
// says nothing about a process of another host, where the folder is shared: a label has the id of
// the boot, and only files of this host and boot are looked at. PID namespaces do not matter.
//
// Thread: the Announcer's, one at a time; all of it may block. Cost: a file, and a look at those of this host.
// Errors: `error` says what the system refused.
#ifndef EXPORTER_NODE_SERVICE_FILE_H_
#define EXPORTER_NODE_SERVICE_FILE_H_

#include <string>

#include "metrics/shared_descriptor.h"

namespace nccl_pulse {

// What the file holds, and /api/v1/http_sd answers: the endpoint at `address` and `port`, with this
// machine's name where it listens on all interfaces. Labels: the scheme, and the name as
// __meta_nccl_pulse_host, for relabelling. "[]" for a Unix socket, which Prometheus cannot scrape.
// `boot`: as __meta_nccl_pulse_boot, if that is not empty.
std::string ServiceTargets(const std::string& address, int port, bool https,
                           const std::string& boot = "");

class ServiceFile {
 public:
  explicit ServiceFile(std::string directory) : directory_(std::move(directory)) {}

  // Nothing without a directory, and for a Unix socket.
  bool Write(const std::string& address, int port, bool https, std::string* error);
  // Removes what processes of this host have left behind.
  void RemoveAbandoned() const;
  // Removes what was written, if anything was, and nobody else has replaced it.
  void Remove();

 private:
  const std::string directory_;
  std::string path_;
  SharedDescriptor file_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_SERVICE_FILE_H_
