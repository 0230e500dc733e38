// Finds endpoints: in a file of Prometheus' file_sd (JSON or YAML), at a URL of http_sd, by DNS, or
// in a Prometheus that scrapes them.
//
// Thread: the caller's. Requests block, within their time limit.
#ifndef EXPORTER_FLEET_TARGETS_H_
#define EXPORTER_FLEET_TARGETS_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "exporter/fleet/address.h"
#include "exporter/fleet/http_client.h"

namespace nccl_pulse {

// On failure returns false, and sets `error`, which has the file's name. Uses the labels __scheme__
// and __address__, and ignores others. `otherwise_https`: whether addresses without scheme are
// https. A bad address is an error: an endpoint that is silently left out would look healthy.
bool ReadTargetsFile(const std::string& path, bool otherwise_https, std::vector<Address>* targets,
                     std::string* error);
bool ParseTargets(const std::string& text, bool otherwise_https, std::vector<Address>* targets,
                  std::string* error);

// Fetches the targets from a URL in http_sd's format, the same JSON as in the file.
bool FetchTargets(const Address& url, bool otherwise_https, const FleetClientOptions& options,
                  std::vector<Address>* targets, std::string* error);

// Resolves "host:port" to its addresses (A and AAAA records), such as those of a headless service
// in Kubernetes. Each address is an endpoint.
bool ResolveTargets(const std::string& text, bool is_https, uint16_t otherwise_port,
                    std::chrono::milliseconds patience, std::vector<Address>* targets,
                    std::string* error);

struct PrometheusQuestion {
  Address prometheus;
  std::string job_id;               // job to find; "": by `comm_id`, or all jobs
  std::optional<uint64_t> comm_id;  // a communicator of the job; ignored with a `job_id`
  bool otherwise_https = false;     // whether addresses without scheme are https
};

// Finds the endpoints that had nccl_communicator_info of the job within the last 15 minutes. An
// endpoint that ended since then is included, and will not answer. Addresses come from
// /api/v1/targets (path /metrics), or from the label `instance` in databases without it.
bool FindTargets(const PrometheusQuestion& question, const FleetClientOptions& options,
                 std::vector<Address>* targets, std::string* error);

}  // namespace nccl_pulse

#endif  // EXPORTER_FLEET_TARGETS_H_
