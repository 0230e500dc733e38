// Keeps an endpoint's file for Prometheus (service_file.h) up to date, on a thread of its own: the
// folder may be on a file system that does not answer, and neither a job's `init` nor the server waits
// for that.
//
// Thread: the server's. The other thread is started by the first call that has something to do, and
// outlives this object if a file system holds it.
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
  // How long each call waits at most. What takes longer goes on, unless it has not begun.
  static constexpr std::chrono::milliseconds kPatience{250};

  explicit Announcer(const std::string& directory);
  ~Announcer();
  Announcer(const Announcer&) = delete;
  Announcer& operator=(const Announcer&) = delete;

  // As ServiceFile::Write. Return "" or what went wrong, for the log.
  std::string Announce(const std::string& address, int port, bool https);
  void RemoveAbandoned();
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
