// This finds the endpoints to ask: from a file in the form of Prometheus' file_sd (JSON or YAML), from a URL
// in that of http_sd, from a name server, or from a Prometheus, which knows who speaks for a job
// and where it scrapes them.
//
// Thread: the caller's; whatever asks somebody blocks, within its time limit.
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

// False with the file, and what is wrong in it, in `error`. Labels that say how to scrape are
// heeded (__scheme__, __address__); others are not looked at. What is no address of an endpoint is
// an error: an endpoint that is left out silently would be an all-clear.
bool ReadTargetsFile(const std::string& path, bool otherwise_https, std::vector<Address>* targets,
                     std::string* error);
bool ParseTargets(const std::string& text, bool otherwise_https, std::vector<Address>* targets,
                  std::string* error);

// Reads what a URL answers in the format of http_sd, which is that of the file's JSON.
bool FetchTargets(const Address& url, bool otherwise_https, const FleetClientOptions& options,
                  std::vector<Address>* targets, std::string* error);

// The addresses (A and AAAA records) of "host:port", such as a headless service of Kubernetes has:
// an endpoint at each.
bool ResolveTargets(const std::string& text, bool is_https, uint16_t otherwise_port,
                    std::chrono::milliseconds patience, std::vector<Address>* targets,
                    std::string* error);

struct PrometheusQuestion {
  Address prometheus;
  std::string job_id;               // "": all
  std::optional<uint64_t> comm_id;  // those of its jobs
  bool otherwise_https = false;     // of endpoints whose scheme Prometheus does not say
};

// Who had nccl_communicator_info of the job within the last quarter of an hour: an endpoint that is
// gone since then is asked, too, and does not answer. What is scraped as /metrics is asked where it
// is scraped; where Prometheus does not tell (/api/v1/targets, which other databases may lack), at
// the label `instance`.
bool FindTargets(const PrometheusQuestion& question, const FleetClientOptions& options,
                 std::vector<Address>* targets, std::string* error);

}  // namespace nccl_pulse

#endif  // EXPORTER_FLEET_TARGETS_H_
