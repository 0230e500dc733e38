// Maintains an endpoint's file for Prometheus (service_file.h) on a separate thread. The folder may
// be on an unresponsive file system, for which neither a job's `init` nor the server may wait.
//
// Thread: as Node (node.h). The first call with work starts the other thread. That thread outlives
// this object if a file system blocks it.
#ifndef EXPORTER_NODE_ANNOUNCER_H_
#define EXPORTER_NODE_ANNOUNCER_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace nccl_pulse {

class ServiceFile;

class Announcer {
 public:
  // Longest time that a call waits. After that, work in progress continues, and other work is
  // dropped.
  static constexpr std::chrono::milliseconds kPatience{250};

  explicit Announcer(const std::string& directory);
  ~Announcer();
  Announcer(const Announcer&) = delete;
  Announcer& operator=(const Announcer&) = delete;

  // As ServiceFile::Write. Returns "", or an error for the log.
  std::string Announce(const std::string& address, int port, bool https);
  // Restores the file if it was deleted. Removes files that ended processes left, if asked to.
  std::string KeepUp(bool removes_abandoned);
  void Withdraw();

 private:
  struct State;
  std::string Do(std::function<std::string(ServiceFile& file)> work);

  const std::string directory_;
  const std::shared_ptr<State> state_;
  bool is_started_ = false;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_ANNOUNCER_H_
