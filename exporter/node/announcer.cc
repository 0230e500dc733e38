#include "exporter/node/announcer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "exporter/base/patient_thread.h"
#include "exporter/node/service_file.h"

namespace nccl_pulse {

struct Announcer::State : PatientThread {
  explicit State(const std::string& directory) : file(directory) {}

  void Run() {
    std::unique_lock<std::mutex> lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return is_stopping || work != nullptr; });
      if (is_stopping) return;
      const auto doing = std::move(work);
      work = nullptr;
      lock.unlock();
      std::string problem = doing(file);
      lock.lock();
      error = std::move(problem);
      is_busy = false;
      changed.notify_all();
    }
  }

  ServiceFile file;  // used by the thread only
  // Guarded by `mutex`.
  bool is_busy = false;  // from the time that work is set until it is done
  std::function<std::string(ServiceFile& file)> work;
  std::string error;  // of the last work
};

Announcer::Announcer(const std::string& directory)
    : directory_(directory), state_(std::make_shared<State>(directory)) {}

Announcer::~Announcer() { state_->Stop(std::chrono::milliseconds(0)); }

std::string Announcer::Do(std::function<std::string(ServiceFile& file)> work) {
  if (directory_.empty()) return "";
  if (!is_started_) {
    const std::string error = PatientThread::Start(state_, [](State& its) { its.Run(); });
    if (!error.empty()) return absl::StrCat("cannot write into ", directory_, ": ", error);
    is_started_ = true;
  }
  std::unique_lock<std::mutex> lock(state_->mutex);
  const auto is_idle = [this] { return !state_->is_busy; };
  const auto end = std::chrono::steady_clock::now() + kPatience;
  bool is_in_time = state_->changed.wait_until(lock, end, is_idle);
  if (is_in_time) {
    state_->is_busy = true;
    state_->work = std::move(work);
    state_->changed.notify_all();
    is_in_time = state_->changed.wait_until(lock, end, is_idle);
  }
  return is_in_time ? state_->error
                    : absl::StrCat("the folder ", directory_,
                                   " does not answer; is its file system gone?");
}

std::string Announcer::Announce(const std::string& address, int port, bool https) {
  if (port == 0) return "";
  return Do([address, port, https](ServiceFile& file) {
    std::string error;
    file.Write(address, port, https, &error);
    return error;
  });
}

std::string Announcer::KeepUp(bool removes_abandoned) {
  return Do([removes_abandoned](ServiceFile& file) {
    std::string error;
    file.Restore(&error);
    if (removes_abandoned) file.RemoveAbandoned();
    return error;
  });
}

void Announcer::Withdraw() {
  if (!is_started_) return;
  Do([](ServiceFile& file) {
    file.Remove();
    return std::string();
  });
}

}  // namespace nccl_pulse
