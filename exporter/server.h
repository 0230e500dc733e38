// The HTTP endpoint: one background thread that answers GET and HEAD for /metrics, /healthz and /.
//
// It lives inside somebody's training process, and that decides its shape.
//
//   Why poll(2) and not libevent or another server library. libevent ends the process, exit(1),
//   when a descriptor for its loop cannot be had (signal.c, evsig_init_, 2.1.12), and asserts with
//   abort(); its HTTP part bounds neither connections nor the time of a client that sends a byte
//   now and then, and keeps descriptors that a forked child cannot find. What is needed of it is a
//   loop over at most 34 descriptors, and that is short.
//
//   Signals. The thread blocks all of them, so no handler of the job runs on it. Writing to a
//   closed connection raises none: MSG_NOSIGNAL. If it did, SIGPIPE goes to the thread that wrote,
//   where it is blocked. The process' signal dispositions are not touched.
//
//   Descriptors. All close-on-exec. At most kMaxConnections + 4, since they count against the job's
//   limit. When the job itself is at that limit, accepting pauses; nothing spins.
//
//   Clients. A request head has 8 KiB, a body is never read. A connection has 5 s for its request
//   and 10 s for taking the response, by the clock and not since the last byte. When all
//   connections are taken, the next one takes the place of that which has made us wait longest: 20
//   ms of grace for a request, 500 ms for a response. So neither silent nor slow clients hold up
//   the next scrape, and what does not fit waits in the kernel's backlog.
//
//   Memory. Slow readers of one page share it; more than kMaxPages different pages are not kept.
//
//   Exceptions, of the source, of rendering, of the log, end as an answer with status 500 or as a
//   closed connection.
//
//   Exit. The thread uses no object with a static destructor. The process may end at any moment
//   without Stop().
//
//   Fork. See AbandonAfterFork.
#ifndef EXPORTER_SERVER_H_
#define EXPORTER_SERVER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "exporter/families.h"

namespace nccl_pulse {

inline constexpr int kMaxConnections = 32;
inline constexpr int kMaxRequestHeadBytes = 8192;
inline constexpr int kMaxPages = 4;
inline constexpr std::chrono::milliseconds kRequestTimeout{5000};
inline constexpr std::chrono::milliseconds kResponseTimeout{10000};
inline constexpr std::chrono::milliseconds kPageLifetime{250};

enum class LogLevel { kInfo, kWarning };

struct ServerOptions {
  std::string listen_address = ":9410";  // as ParseListenAddress takes it
  StaticLabels static_labels;
  // Called on the server's thread, at most once per kPageLifetime. May throw.
  std::function<SnapshotSet()> source;
  // Called on the server's thread. May be empty.
  std::function<void(LogLevel, const std::string&)> log;
};

// Not thread-safe: one thread at a time calls its methods.
class Server {
 public:
  // Opens the port (or the next free one, see OpenListener) and starts the thread. Null, with the
  // reason in `error`, when the address is bad or the system refuses a socket or a thread. Bounded:
  // some system calls, microseconds. The caller's signal mask is as before when this returns.
  static std::unique_ptr<Server> Start(ServerOptions options, std::string* error);

  // Stops, if that was not done.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // The port that was bound; not the wanted one if that was in use.
  uint16_t port() const { return port_; }
  // "[::]:9410"
  const std::string& address() const { return address_; }

  // Closes everything and ends the thread. Returns within about 2 s: a thread that is stuck in the
  // source is left behind with its memory, and closes its descriptors should it ever come back.
  void Stop();

  // For the child of a fork, which has this object but not its thread: closes the inherited
  // descriptors and makes the object empty, so that destroying it does nothing. Async-signal-safe,
  // so it may run in a pthread_atfork handler: close() only, no lock, no memory. The parent's
  // server is not affected: there is no descriptor, such as epoll's, whose state the two would
  // share. The thread's memory stays allocated, since it may be in the middle of a change. A
  // connection that the thread was just accepting or closing may stay open in the child until that
  // executes a program or ends.
  void AbandonAfterFork();

 private:
  class Thread;

  Server(Thread* thread, uint16_t port, std::string address);

  Thread* thread_;
  uint16_t port_;
  std::string address_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_SERVER_H_
