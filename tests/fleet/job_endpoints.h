// The endpoints of a made-up job, to be asked without a network.
#ifndef TESTS_FLEET_JOB_ENDPOINTS_H_
#define TESTS_FLEET_JOB_ENDPOINTS_H_

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "exporter/diagnosis/diagnosis.h"
#include "exporter/diagnosis/testing/simulated_job.h"
#include "exporter/exposition/json/summary_json.h"
#include "exporter/exposition/snapshot_message.h"
#include "exporter/fleet/http_client.h"

namespace nccl_pulse {

class JobEndpoints {
 public:
  // node_of: of each process. The job may go on; the processes' identities are as they are now.
  JobEndpoints(SimulatedJob* job, std::vector<int> node_of)
      : job_(*job), node_of_(std::move(node_of)) {
    for (std::size_t i = 0; i < node_of_.size(); ++i) {
      ProcessSnapshot& process = job_.process(static_cast<int>(i));
      process.hostname = "node-" + std::to_string(node_of_[i]);
      if (process.job_id.empty()) process.job_id = "4711";
      process.static_labels = "";
      process.start_realtime_ns = job_.now() - 3600 * kSecond;
    }
  }

  int64_t hang_after_ns = 10 * kSecond;
  std::map<int, int64_t> hang_after_of;           // nodes with another one
  std::set<int> silent;                           // nodes
  std::vector<std::string> asked;                 // for snapshots, by host
  std::map<int, std::string> garbage;             // what nodes say in place of a summary
  std::map<int, std::vector<OutsideNote>> notes;  // by node

  std::vector<Address> addresses() const {
    const std::set<int> nodes(node_of_.begin(), node_of_.end());
    std::vector<Address> all;
    for (const int node : nodes) {
      all.emplace_back();
      all.back().host = "node-" + std::to_string(node);
      all.back().port = 9410;
    }
    return all;
  }

  AskFunction ask() {
    return [this](const auto& requests, const auto&, const auto& done) {
      for (std::size_t i = 0; i < requests.size(); ++i) done(i, Answer(requests[i]));
    };
  }

 private:
  FleetAnswer Answer(const FleetRequest& request) {
    const std::lock_guard<std::mutex> lock(mutex_);  // a watcher polls several jobs at a time
    const int node = std::stoi(request.address.host.substr(5));
    FleetAnswer answer;
    if (silent.count(node) != 0) {
      answer.error = "no connection in time";
      return answer;
    }
    const auto own = hang_after_of.find(node);
    const int64_t hang_after = own == hang_after_of.end() ? hang_after_ns : own->second;
    SnapshotSet set;
    for (std::size_t i = 0; i < node_of_.size(); ++i) {
      if (node_of_[i] != node) continue;
      set.processes.push_back(job_.process(static_cast<int>(i)));
      set.processes.back().hang_after_ns = hang_after;
    }
    set.outside_notes = notes[node];
    answer.status = 200;
    if (request.target == "/api/v1/summary") {
      answer.body = SummaryJson(set, Diagnosis().Update(set, job_.now()), job_.now());
      if (garbage.count(node) != 0) answer.body = garbage[node];
    } else {
      asked.push_back(request.address.host);
      answer.body = WriteSnapshots(set, job_.now(), 0);
    }
    return answer;
  }

  std::mutex mutex_;
  SimulatedJob& job_;
  const std::vector<int> node_of_;
};

}  // namespace nccl_pulse

#endif  // TESTS_FLEET_JOB_ENDPOINTS_H_
