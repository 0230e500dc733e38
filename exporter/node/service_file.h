// Writes a file for Prometheus' file-based service discovery (file_sd). It gives the address of
// this node's endpoint, whose port may not be known beforehand.
//
//   <directory>/nccl-pulse-<host>-<port>.json
//   [{"targets": ["node17:9411"], "labels": {"__scheme__": "http", ...}}]
//
// The file is written under a temporary name and then renamed, so that Prometheus never reads half
// of it. Its process keeps it locked (flock). A killed process leaves it unlocked. The next writer,
// at any port, removes it, and so does an agent periodically. Locks do not cover other hosts of a
// shared folder. So a label has the boot id, and only files of this host and boot are checked. PID
// namespaces do not matter.
//
// Thread: the Announcer's, one at a time; every call may block. Cost: writing one file, and reading
// this host's files. Errors: `error` has the system's reason.
#ifndef EXPORTER_NODE_SERVICE_FILE_H_
#define EXPORTER_NODE_SERVICE_FILE_H_

#include <string>

#include "metrics/shared_descriptor.h"

namespace nccl_pulse {

std::string HostName();

// Returns the content of the file and of /api/v1/http_sd: the endpoint at `address` and `port`,
// with this machine's name if it listens on all interfaces. Labels: the scheme, and the name as
// __meta_nccl_pulse_host, for relabeling. "[]" for a Unix socket, which Prometheus cannot scrape.
// `boot`: the label __meta_nccl_pulse_boot, unless empty.
std::string ServiceTargets(const std::string& address, int port, bool https,
                           const std::string& boot = "");

class ServiceFile {
 public:
  explicit ServiceFile(std::string directory) : directory_(std::move(directory)) {}

  // Writes the file. Does nothing without a directory, or for a Unix socket.
  bool Write(const std::string& address, int port, bool https, std::string* error);
  // Writes the file again if it was deleted. Returns false as Write does, with the reason in
  // `error`.
  bool Restore(std::string* error);
  // Removes files that this host's processes have left behind.
  void RemoveAbandoned() const;
  // Removes this object's file, unless another process has replaced it.
  void Remove();

 private:
  const std::string directory_;
  std::string path_;
  SharedDescriptor file_;
  // The endpoint in the written file.
  std::string address_;
  int port_ = 0;
  bool is_https_ = false;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_SERVICE_FILE_H_
