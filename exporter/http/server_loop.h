// What the server's thread does. It waits for a client, another process, a deadline or a wake-up,
// whichever comes first, and handles it. Clients and hand-overs each have a budget of processor
// time; the one that has spent its own has to wait until the budget fills again.
//
// Thread: Open on the caller's, before there is another; CloseDescriptors in the child of a fork;
// all else on the server's.
#ifndef EXPORTER_HTTP_SERVER_LOOP_H_
#define EXPORTER_HTTP_SERVER_LOOP_H_

#include <poll.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/http/clients.h"
#include "exporter/http/cpu_budget.h"
#include "exporter/http/one_warning.h"
#include "exporter/http/pages.h"
#include "exporter/http/responder.h"
#include "exporter/http/server_options.h"
#include "exporter/http/wake.h"
#include "exporter/node/node.h"

namespace nccl_pulse {

class ServerLoop {
 public:
  using Time = Connection::Time;

  explicit ServerLoop(ServerOptions options);
  ServerLoop(const ServerLoop&) = delete;
  ServerLoop& operator=(const ServerLoop&) = delete;

  bool Open(std::string* error) { return node_.Open(error); }
  const Node& node() const { return node_; }

  // Waits, and handles what came. `on_wake` is called in each round, before what came is handled.
  // May throw: then StartOver is next.
  template <typename OnWake>
  void Round(const Wake& wake, const OnWake& on_wake) {
    if (!Wait(wake)) return;
    on_wake();
    HandleRound();
  }
  // Memory ran out, in all likelihood: goes on with nothing, and not at once.
  void StartOver(std::string_view what) noexcept;

  void SayGoodbye() { node_.SayGoodbye(); }
  void Close();
  // Async-signal-safe.
  void CloseDescriptors();

 private:
  // Where the entries of one round stand in polled_.
  struct Places {
    std::size_t wake = 0;
    std::size_t listener = 0;  // 0: not polled
    std::size_t node = 0;
    bool has_clients = false;
    bool was_serving = false;
  };

  bool Wait(const Wake& wake);
  void HandleRound();
  void Spend(CpuBudget* budget, Time now);

  const ServerOptions options_;
  Node node_;
  Pages pages_;
  Responder responder_;
  Clients clients_;
  std::vector<pollfd> polled_;  // reused
  Places places_;
  CpuBudget clients_budget_;
  CpuBudget handover_budget_;
  std::chrono::nanoseconds cpu_accounted_{0};  // of what the thread has used
  OneWarning failure_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_HTTP_SERVER_LOOP_H_
