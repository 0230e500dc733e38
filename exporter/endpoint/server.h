// Serves HTTP from one background thread: GET and HEAD for the paths in docs/http-api.md. Serves
// all processes of the node, or hands this process' segment over to the server that does
// (exporter/node/node.h).
//
// The server runs inside a training process, so:
//
//   poll(2), not libevent or another library. libevent calls exit(1) if it gets no descriptor for
//   its loop (signal.c, evsig_init_, 2.1.12), and asserts with abort(). Its HTTP part bounds
//   neither connections nor the time of a client that sends a byte now and then. A forked child
//   cannot find its descriptors. The loop that is needed here has few descriptors and is short.
//
//   Signals. The thread blocks all signals, so no handler of the job runs on it. Writing to a
//   closed connection raises no SIGPIPE (MSG_NOSIGNAL); if it did, the signal would go to this
//   thread, where it is blocked. The process' signal dispositions are not changed.
//
//   Descriptors. All are close-on-exec. At most kMaxConnections + 5, since they count against the
//   job's limit, and two per process that has handed over (exporter/node/peers/peer_table.h). When
//   the job is at its limit, accepting pauses; nothing spins.
//
//   Clients. A request head may have 8 KiB; a body is never read. A connection has 5 s for its
//   request and 10 s for taking the response, in total, not since the last byte. When all
//   connections are taken, a new one replaces the one that has kept the server waiting longest. The
//   old one first gets a grace of 20 ms for a request, 500 ms for a response. So neither silent nor
//   slow clients delay the next scrape. Further clients wait in the kernel's backlog, in order. But
//   a flood of requests can use up the clients' CPU budget (below). Then a scrape may wait behind
//   up to 4096 connections of the backlog.
//
//   Memory. Slow readers of one page share it. exporter/http/page_cache.h bounds the pages that are
//   kept and sent; exporter/exposition/page_share.h bounds what other processes can add to a page.
//
//   CPU time. All work for others has a budget (ServerOptions::cpu_share): making pages
//   (exporter/http/page_cache.h), all other work for clients, and other processes' hand-overs. When
//   one of these budgets is spent, its clients wait in the kernel until it refills; other clients
//   don't. The thread asks for SCHED_BATCH: waking up, it preempts no running thread. It uses
//   neither nice nor SCHED_IDLE: on a busy node it might then not run while it holds a lock that
//   the job's threads wait for. Such locks are the allocator's and the kernel's on the memory map.
//
//   Locale. The thread uses "C", whatever the job sets with setlocale().
//
//   Exceptions of ServerOptions::source, of rendering and of the log become status 500 or a closed
//   connection.
//
//   Exit. The thread uses no object with a static destructor. The process may end at any time
//   without Stop().
//
//   Fork. See ResetAfterFork.
#ifndef EXPORTER_ENDPOINT_SERVER_H_
#define EXPORTER_ENDPOINT_SERVER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "exporter/endpoint/server_options.h"
#include "exporter/http/limits.h"

namespace nccl_pulse {

class ServerThread;

// Not thread-safe: one thread at a time calls its methods.
class Server {
 public:
  // Opens the port, or hands over to the server that has it (Node::Open), and starts the thread.
  // Returns null, with the reason in `error`, if the address is bad or the system refuses a socket
  // or a thread. Waits at most kJoinPatience for a slow server, an agent longer (node_times.h).
  // Restores the caller's signal mask.
  static std::unique_ptr<Server> Start(ServerOptions options, std::string* error);

  // Calls Stop() if necessary.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Returns the port on which the metrics are served, here or by the node's server, as known when
  // Start returned. It differs from the configured port if that was taken; 0 for a Unix socket.
  uint16_t port() const { return port_; }
  // Returns that address: "[::]:9410", "unix:/path"; "" if not known yet (the log reports it later).
  const std::string& address() const { return address_; }

  // Call before the process exits: tells the node's server, or removes the file for Prometheus
  // (node/announcer.h). The thread still answers scrapes afterwards. Returns within 100 ms.
  void SayGoodbye();

  // Closes everything and ends the thread. Returns within about 2 s. A thread that is stuck in
  // ServerOptions::source is abandoned with its memory, and closes its descriptors if it continues.
  void Stop();

  // For pthread_atfork's prepare and parent handlers: between them no server thread opens a
  // descriptor. Microseconds.
  static void PrepareFork();
  static void ParentAfterFork();
  // For the child of a fork, which has servers but not their threads: closes all inherited
  // descriptors of this library. The child must not use the inherited objects: their memory may be
  // in the middle of a change. Async-signal-safe, for pthread_atfork handlers: only close(), no
  // lock, no memory. The parent's server goes on: it has no descriptor, such as epoll's, through which
  // a child could change it. Without PrepareFork before the fork, a descriptor that the thread was
  // opening may stay open until the child executes a program or ends.
  static void ResetAfterFork();

 private:
  Server(ServerThread* thread, uint16_t port, std::string address);

  ServerThread* thread_;
  uint16_t port_;
  std::string address_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_ENDPOINT_SERVER_H_
