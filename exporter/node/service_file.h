// A file for Prometheus' file_sd that says where this node's endpoint is, for endpoints whose port
// is not known beforehand.
//
//   <directory>/nccl-pulse-<host>-<port>.json
//   [{"targets": ["node17:9411"], "labels": {"__scheme__": "http", ...}}]
//
// Written beside it and renamed, so that Prometheus never reads half of one. The name is the same
// for whoever serves the port next, so a server that is killed leaves nothing wrong behind for
// long.
//
// Thread: the server's. Cost: a file. Errors: `error` says what the system refused.
#ifndef EXPORTER_NODE_SERVICE_FILE_H_
#define EXPORTER_NODE_SERVICE_FILE_H_

#include <string>

namespace nccl_pulse {

// What the file holds, and /api/v1/http_sd answers: the endpoint at `address` and `port`, with this
// machine's name where it listens on all interfaces. Labels: the scheme, and the name as
// __meta_nccl_pulse_host, for relabelling. "[]" for a Unix socket, which Prometheus can not scrape.
std::string ServiceTargets(const std::string& address, int port, bool https);

class ServiceFile {
 public:
  explicit ServiceFile(std::string directory) : directory_(std::move(directory)) {}

  // Nothing without a directory, and for a Unix socket.
  bool Write(const std::string& address, int port, bool https, std::string* error);
  // Removes what was written, if anything was.
  void Remove();

 private:
  const std::string directory_;
  std::string path_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_SERVICE_FILE_H_
