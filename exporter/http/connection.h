// Holds one client's connection: its descriptor, its unread input and its unsent response.
//
// Thread: server thread only.
#ifndef EXPORTER_HTTP_CONNECTION_H_
#define EXPORTER_HTTP_CONNECTION_H_

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "exporter/http/http.h"
#include "exporter/http/transport.h"
#include "metrics/shared_descriptor.h"

namespace nccl_pulse {

class Connection {
 public:
  using Time = std::chrono::steady_clock::time_point;

  enum class State {
    kFree,     // no client
    kReading,  // waiting for a request or the rest of one
    kParked,   // request waits for the guard's verdict (guard.h) or a handler's answer
    kWriting,  // sending the response
    kDraining  // response sent, discarding input: closing at once would make
               // the kernel reset the connection, and the client lose the response
  };

  bool in_use() const { return state_ != State::kFree; }
  State state() const { return state_; }
  int fd() const { return descriptor_.get(); }
  short poll_events() const;
  // Returns the time at which the connection is closed unless its state changes.
  Time deadline() const;
  // Returns the time from which a new client may replace this one.
  Time replaceable_from() const;
  // Returns the body being sent; null if there is none.
  const std::shared_ptr<const std::string>& body() const { return body_; }

  void Open(int fd, Time now);
  // Call right after Open() if the bytes are encoded (TLS).
  void SetTransport(std::unique_ptr<Transport> transport) { transport_ = std::move(transport); }
  void Close();

  // Receives some of the available input. Returns false if the connection has ended or failed.
  bool Receive(Time now);
  // Parses the first request of the input if its head is complete. The request stays in the input
  // until Consume removes it. Returns kBad also if the head is too long.
  ParseResult NextRequest(HttpRequest* request);
  const std::string& input() const { return input_; }
  void Consume(std::size_t bytes) { input_.erase(0, bytes); }
  bool head_too_long() const;

  // Keeps a request until it can be answered. Parking it again does not extend its deadline.
  void Park(const HttpRequest& request, Time now);
  const HttpRequest& parked() const { return parked_; }

  // Starts a response. Without `keep_alive`, the connection ends after it.
  void Respond(std::string head, std::shared_ptr<const std::string> body, bool keep_alive,
               Time now);
  // Makes the current response, if any, the last one.
  void EndAfterResponse() { keep_alive_ = false; }
  // Sends as much as the socket takes. Returns false if the connection has ended or failed.
  bool Send(Time now);

 private:
  void Enter(State state, Time now);
  ssize_t ReceiveSome(char* buffer, std::size_t size);
  ssize_t SendSome();

  SharedDescriptor descriptor_;
  std::unique_ptr<Transport> transport_;
  State state_ = State::kFree;
  Time since_;  // when the state was entered
  std::string input_;
  HttpRequest parked_;
  std::size_t drained_bytes_ = 0;
  std::string head_;
  std::shared_ptr<const std::string> body_;
  std::size_t sent_bytes_ = 0;  // of head and body
  bool keep_alive_ = false;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_HTTP_CONNECTION_H_
