// Exchange is one non-blocking request of the client: connect, send, receive.
//
// Thread: the client's.
#ifndef EXPORTER_FLEET_HTTP_EXCHANGE_H_
#define EXPORTER_FLEET_HTTP_EXCHANGE_H_

#include <sys/socket.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "exporter/fleet/http_client.h"

namespace nccl_pulse {

class Exchange {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Tries `addresses` in order: the next one if a connection is refused, or not established within
  // kNextAddressAfter.
  Exchange(const FleetRequest& request, const FleetClientOptions& options,
           std::vector<sockaddr_storage> addresses, Time now);
  ~Exchange();
  Exchange(const Exchange&) = delete;

  static constexpr std::chrono::milliseconds kNextAddressAfter{300};

  int fd() const { return fd_; }  // -1: waits for `wake`
  short poll_events() const;
  Time end() const { return end_; }
  // Returns when to call Go without an event: at a retry, or at the next address.
  Time wake() const { return wake_; }

  // Continues as far as possible. Returns true once there is an answer or an error.
  bool Go(Time now);
  bool is_pausing() const { return state_ == State::kPausing; }
  bool has_ended() const { return state_ == State::kEnded; }
  // Ends the exchange because its time is over. No effect if it has ended.
  void GiveUp();
  // Ends the exchange with this error.
  void Drop(std::string error) { Fail(std::move(error)); }
  std::size_t held_bytes() const { return incoming_.capacity() + answer_.body.capacity(); }
  // Unpacks the answer, within this many bytes.
  FleetAnswer TakeAnswer(std::size_t most_bytes);

 private:
  enum class State { kConnecting, kSending, kReceiving, kPausing, kEnded };

  bool Fail(std::string error);
  bool Open(Time now);
  bool FinishConnect(Time now);
  bool Send();
  bool Receive(Time now);
  bool HasWhole();
  bool Parse(Time now);
  void Close();

  const FleetRequest& request_;
  const FleetClientOptions& options_;
  const std::vector<sockaddr_storage> addresses_;
  Time end_;
  std::size_t next_address_ = 0;
  State state_ = State::kConnecting;
  int fd_ = -1;
  std::unique_ptr<Transport> tls_;
  std::string outgoing_, incoming_;
  std::size_t sent_ = 0;
  std::size_t wanted_ = 0;  // bytes of head and body together; 0: until the server closes
  bool has_head_ = false, is_packed_ = false;
  Time wake_ = Time::max();
  FleetAnswer answer_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_FLEET_HTTP_EXCHANGE_H_
