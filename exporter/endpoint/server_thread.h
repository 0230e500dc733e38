// Starts and stops the background thread "pulse-http", and passes it the requests to stop and to
// say goodbye from the process' other threads.
//
// The Server owns this object until the thread is known to have ended. A stuck thread is abandoned
// with the object, and deletes it if it continues.
//
// Thread: the caller's, one at a time.
#ifndef EXPORTER_ENDPOINT_SERVER_THREAD_H_
#define EXPORTER_ENDPOINT_SERVER_THREAD_H_

#include <pthread.h>

#include <atomic>
#include <string>
#include <utility>

#include "exporter/endpoint/endpoint_loop.h"
#include "exporter/endpoint/server_options.h"
#include "exporter/http/wake.h"

namespace nccl_pulse {

class ServerThread {
 public:
  explicit ServerThread(ServerOptions options) : loop_(std::move(options)) {}
  ~ServerThread() { loop_.Close(); }
  ServerThread(const ServerThread&) = delete;
  ServerThread& operator=(const ServerThread&) = delete;

  bool Open(std::string* error) { return loop_.Open(error); }
  const Node& node() const { return loop_.node(); }
  bool Start(std::string* error);
  void SayGoodbye();
  // Returns false if the thread did not end in time; it then owns this object.
  bool Stop();

 private:
  static void* Main(void* self);
  void Run();
  void SayGoodbyeIfAsked();

  EndpointLoop loop_;
  pthread_t thread_{};
  // Set by Stop() before it signals wake_, read in each round. Releases the caller's earlier
  // writes.
  std::atomic<bool> stopping_{false};
  std::atomic<bool> leaving_{false};  // as stopping_, but set by SayGoodbye()
  // Set by the thread with a release, so that the caller sees all its writes.
  std::atomic<bool> said_goodbye_{false};
  std::atomic<bool> ended_{false};  // the thread is about to return
  // Set by Stop() when it gives the thread up, and by the thread when it ends. The second to set it
  // deletes this object.
  std::atomic<bool> left_behind_{false};
  Wake wake_;  // signaled when a flag above has changed
};

}  // namespace nccl_pulse

#endif  // EXPORTER_ENDPOINT_SERVER_THREAD_H_
