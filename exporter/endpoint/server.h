// The HTTP endpoint: one background thread that answers GET and HEAD for /metrics, /healthz,
// /api/v1/communicators, /api/v1/snapshots, /api/v1/http_sd and /. It serves all processes of the
// node, or hands this process' segment over to the server that does (exporter/node/node.h).
//
// It lives inside somebody's training process, and that decides its shape.
//
//   Why poll(2) and not libevent or another server library. libevent ends the process, exit(1),
//   when a descriptor for its loop cannot be had (signal.c, evsig_init_, 2.1.12), and asserts with
//   abort(); its HTTP part bounds neither connections nor the time of a client that sends a byte
//   now and then, and keeps descriptors that a forked child cannot find. What is needed of it is a
//   loop over few descriptors, and that is short.
//
//   Signals. The thread blocks all of them, so no handler of the job runs on it. Writing to a
//   closed connection raises none: MSG_NOSIGNAL. If it did, SIGPIPE goes to the thread that wrote,
//   where it is blocked. The process' signal dispositions are not touched.
//
//   Descriptors. All close-on-exec. At most kMaxConnections + 5, since they count against the job's
//   limit, and two for each process that has handed over (exporter/node/peer_table.h). When the job
//   itself is at that limit, accepting pauses; nothing spins.
//
//   Clients. A request head has 8 KiB, a body is never read. A connection has 5 s for its request
//   and 10 s for taking the response, by the clock and not since the last byte. When all
//   connections are taken, the next one takes the place of that which has made us wait longest: 20
//   ms of grace for a request, 500 ms for a response. So neither silent nor slow clients hold up
//   the next scrape, and what does not fit waits in the kernel's backlog, in order: under a flood
//   of connections that costs all of the time for clients (below), a scrape waits behind up to
//   4096.
//
//   Memory. Slow readers of one page share it; exporter/http/page_cache.h bounds what is kept and
//   sent of pages, exporter/exposition/page_share.h what other processes can put onto one.
//
//   Processor time. Everything that can be asked for has a budget (ServerOptions::cpu_share): for
//   making pages (exporter/http/page_cache.h); for all else that clients cost, from accepting to
//   sending; for what other processes hand over. When one is spent, whoever would cost more of it
//   waits in the kernel until it has earned something again, and the others do not. The thread asks
//   for SCHED_BATCH: when it wakes it takes no core from a thread that runs. It does not ask for
//   less (nice, SCHED_IDLE): on a busy node it could then be kept from running while it holds a
//   lock that the job's threads wait for, the allocator's or the kernel's on its memory map.
//
//   Locale. The thread has "C", whatever setlocale() of the job says.
//
//   Exceptions, of the source, of rendering, of the log, end as an answer with status 500 or as a
//   closed connection.
//
//   Exit. The thread uses no object with a static destructor. The process may end at any moment
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
  // Opens the port or hands over to who has it (see Node::Open), and starts the thread. Null, with
  // the reason in `error`, when the address is bad or the system refuses a socket or a thread.
  // Bounded: some system calls, and at most kJoinPatience for a server that takes its time. The
  // caller's signal mask is as before when this returns.
  static std::unique_ptr<Server> Start(ServerOptions options, std::string* error);

  // Stops, if that was not done.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Where the metrics were served when this returned: here, or by the node's server. Not the wanted
  // port if that was somebody else's; 0 for a Unix socket.
  uint16_t port() const { return port_; }
  // "[::]:9410", "unix:/path"; "" when that was not known yet: the log says it when it is.
  const std::string& address() const { return address_; }

  // For a process that ends in order: tells the node's server so, and takes back what is announced.
  // The thread goes on, for what is still counted until the end. Returns within 100 ms.
  void SayGoodbye();

  // Closes everything and ends the thread. Returns within about 2 s: a thread that is stuck in the
  // source is left behind with its memory, and closes its descriptors should it ever come back.
  void Stop();

  // For pthread_atfork, parent and child: no server's thread opens a descriptor between the first
  // and the second. Microseconds.
  static void PrepareFork();
  static void ParentAfterFork();
  // For the child of a fork, which has servers but not their threads: closes all inherited
  // descriptors of this library. The child must leave the inherited objects alone, whose memory may
  // be in the middle of a change. Async-signal-safe, so it may run in a pthread_atfork handler:
  // close() only, no lock, no memory. The parent's server is not affected: there is no descriptor,
  // such as epoll's, whose state the two would share. Where PrepareFork was called before the fork,
  // nothing stays open; without it, a descriptor that the thread was just opening may, until the
  // child executes a program or ends.
  static void ResetAfterFork();

 private:
  Server(ServerThread* thread, uint16_t port, std::string address);

  ServerThread* thread_;
  uint16_t port_;
  std::string address_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_ENDPOINT_SERVER_H_
