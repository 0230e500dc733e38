#include "exporter/http/connection.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <utility>

#include "exporter/http/limits.h"

namespace nccl_pulse {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kDrainTimeout{1000};
constexpr std::size_t kMaxDrainBytes = 1 << 20;
constexpr std::size_t kReceiveBytes = 4096;

// See "Clients" in server.h.
constexpr milliseconds kRequestGrace{20};
constexpr milliseconds kResponseGrace{500};

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

short Connection::poll_events() const {
  if (state_ == State::kParked) return 0;
  if (transport_ != nullptr && state_ != State::kDraining) return transport_->poll_events();
  return state_ == State::kWriting ? POLLOUT : POLLIN;
}

Connection::Time Connection::deadline() const {
  switch (state_) {
    case State::kReading:
      return since_ + kRequestTimeout;
    case State::kParked:
      return since_ + kParkedTimeout;
    case State::kWriting:
      return since_ + kResponseTimeout;
    case State::kDraining:
      return since_ + kDrainTimeout;
    case State::kFree:
      break;
  }
  return Time::max();
}

Connection::Time Connection::replaceable_from() const {
  switch (state_) {
    case State::kReading:
      return since_ + kRequestGrace;
    case State::kParked:
    case State::kWriting:
      return since_ + kResponseGrace;
    case State::kDraining:
      return since_;
    case State::kFree:
      break;
  }
  return Time::max();
}

void Connection::Enter(State state, Time now) {
  state_ = state;
  since_ = now;
}

void Connection::Open(int fd, Time now) {
  descriptor_.Set(fd);
  Enter(State::kReading, now);
}

void Connection::Close() {
  transport_.reset();
  descriptor_.Close();
  state_ = State::kFree;
  input_ = std::string();
  parked_ = HttpRequest();
  head_ = std::string();
  body_.reset();
  sent_bytes_ = drained_bytes_ = 0;
}

// Receives input, decoded by the transport. Discarded input is not decoded.
ssize_t Connection::ReceiveSome(char* buffer, std::size_t size) {
  if (transport_ == nullptr || state_ == State::kDraining) return recv(fd(), buffer, size, 0);
  return transport_->Receive(buffer, size);
}

bool Connection::Receive(Time now) {
  std::array<char, kReceiveBytes> buffer;
  do {
    const ssize_t size = ReceiveSome(buffer.data(), buffer.size());
    if (size < 0) return WouldBlock();
    if (size == 0) return false;
    if (state_ == State::kDraining) {
      drained_bytes_ += static_cast<std::size_t>(size);
      return drained_bytes_ < kMaxDrainBytes;
    }
    // A kept-open connection gets the full time for its next request once that has begun.
    if (input_.empty()) Enter(State::kReading, now);
    input_.append(buffer.data(), static_cast<std::size_t>(size));
  } while (transport_ != nullptr && transport_->has_pending());
  return true;
}

bool Connection::head_too_long() const { return input_.size() > kMaxRequestHeadBytes; }

ParseResult Connection::NextRequest(HttpRequest* request) {
  const ParseResult result = ParseRequest(input_, request);
  if (result == ParseResult::kOk && request->head_bytes > kMaxRequestHeadBytes) {
    return ParseResult::kBad;
  }
  return result == ParseResult::kIncomplete && head_too_long() ? ParseResult::kBad : result;
}

void Connection::Park(const HttpRequest& request, Time now) {
  if (state_ == State::kParked) return;
  parked_ = request;
  Enter(State::kParked, now);
}

void Connection::Respond(std::string head, std::shared_ptr<const std::string> body, bool keep_alive,
                         Time now) {
  head_ = std::move(head);
  body_ = std::move(body);
  sent_bytes_ = 0;
  keep_alive_ = keep_alive;
  Enter(State::kWriting, now);
}

ssize_t Connection::SendSome() {
  const std::size_t body_bytes = body_ != nullptr ? body_->size() : 0;
  std::array<iovec, 2> parts;
  std::size_t count = 0;
  if (sent_bytes_ < head_.size()) {
    parts[count++] = {head_.data() + sent_bytes_, head_.size() - sent_bytes_};
  }
  const std::size_t sent_of_body = sent_bytes_ > head_.size() ? sent_bytes_ - head_.size() : 0;
  if (sent_of_body < body_bytes) {
    // sendmsg only reads it. iovec is not const because it also serves readv.
    char* body = const_cast<char*>(body_->data());
    parts[count++] = {body + sent_of_body, body_bytes - sent_of_body};
  }
  if (transport_ != nullptr) {
    return transport_->Send(static_cast<const char*>(parts[0].iov_base), parts[0].iov_len);
  }
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = count;
  return sendmsg(fd(), &message, MSG_NOSIGNAL);
}

bool Connection::Send(Time now) {
  const std::size_t total = head_.size() + (body_ != nullptr ? body_->size() : 0);
  while (sent_bytes_ < total) {
    const ssize_t size = SendSome();
    if (size < 0) return WouldBlock();
    sent_bytes_ += static_cast<std::size_t>(size);
  }
  body_.reset();
  head_.clear();
  if (keep_alive_) {
    Enter(State::kReading, now);
    return true;
  }
  input_.clear();
  Enter(State::kDraining, now);
  if (transport_ != nullptr) transport_->Finish();
  return shutdown(fd(), SHUT_WR) == 0;
}

}  // namespace nccl_pulse
