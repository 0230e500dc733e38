// Runs a server's event loop: waits for clients, events of the entrance (entrance.h), a deadline or
// a wake-up, and handles whatever comes first. Clients and the entrance each have a CPU budget;
// when it is spent, they wait until it refills. The handlers define what is served.
// exporter/endpoint/server.h lists the loop's obligations to its process.
//
// Thread: constructed on the caller's thread, before the server thread starts; all else on the
// server thread.
#ifndef EXPORTER_HTTP_SERVER_LOOP_H_
#define EXPORTER_HTTP_SERVER_LOOP_H_

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "exporter/base/cpu_budget.h"
#include "exporter/base/log.h"
#include "exporter/http/clients.h"
#include "exporter/http/entrance.h"
#include "exporter/http/guard.h"
#include "exporter/http/handler.h"
#include "exporter/http/limits.h"
#include "exporter/http/responder.h"
#include "exporter/http/wake.h"

namespace nccl_pulse {

class ServerLoop {
 public:
  using Time = Connection::Time;

  struct Options {
    std::vector<Handler> handlers;
    std::shared_ptr<Guard> guard;  // null: plain HTTP for everybody
    LogFunction log;
    double cpu_share = kJobCpuShare;  // of one core
    // This thread's CPU time that handlers account for themselves; null: none.
    std::function<std::chrono::nanoseconds()> spent_by_handlers;
    // Signaled when a handler that returned no answer may have one; null: all answer at once.
    const Wake* ready = nullptr;
  };

  // `entrance` must outlive this object.
  ServerLoop(Options options, Entrance* entrance);
  ServerLoop(const ServerLoop&) = delete;
  ServerLoop& operator=(const ServerLoop&) = delete;

  // Waits for events, also for `wake`, calls `on_wake`, then handles the events. If it throws, call
  // StartOver.
  template <typename OnWake>
  void Round(const Wake& wake, const OnWake& on_wake) {
    if (!Wait(wake)) return;
    on_wake();
    HandleRound();
  }
  // Closes all connections and pauses. Call after an exception, most likely out of memory. `what`:
  // its text, for the log.
  void StartOver(std::string_view what) noexcept;
  // See PageCache::Options.
  bool CutOffSlowest(bool in_any_case) { return clients_.CutOffSlowest(in_any_case); }

  // Closes all connections and the entrance.
  void Close();

 private:
  // Indices of one round's entries in polled_, and what they include. 0: no such entry.
  struct PollIndices {
    std::size_t wake = 0;
    std::size_t guard = 0;
    std::size_t ready = 0;
    std::size_t listener = 0;
    std::size_t entrance = 0;
    bool has_clients = false;
    bool was_open = false;
  };

  bool Wait(const Wake& wake);
  void HandleRound();
  bool HasCome(std::size_t index) const { return index != 0 && polled_[index].revents != 0; }
  void Spend(CpuBudget* budget, Time now);

  const Options options_;
  Entrance& entrance_;
  Responder responder_;
  Clients clients_;
  std::vector<pollfd> polled_;  // reused
  PollIndices indices_;
  CpuBudget clients_budget_;
  CpuBudget entrance_budget_;
  std::chrono::nanoseconds cpu_accounted_{0};  // the thread's CPU time charged to budgets so far
  OneWarning failure_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_HTTP_SERVER_LOOP_H_
