#include "exporter/fleet/http_exchange.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "exporter/base/error_text.h"
#include "exporter/base/gzip.h"

namespace nccl_pulse {
namespace {

constexpr std::size_t kMostHeadBytes = 64 << 10;

// Returns the value of a header, without spaces around it, or "". `head` is in lower case.
std::string_view Header(std::string_view head, std::string_view name) {
  const std::string start = absl::StrCat("\r\n", name, ":");
  const std::size_t at = head.find(start);
  if (at == head.npos) return "";
  const std::string_view rest = head.substr(at + start.size());
  return absl::StripAsciiWhitespace(rest.substr(0, rest.find("\r\n")));
}

int64_t SecondsOf(std::string_view text) {
  int64_t seconds = 0;
  return absl::SimpleAtoi(text, &seconds) && seconds >= 0 ? std::min<int64_t>(seconds, 1000000000)
                                                          : 0;
}

}  // namespace

Exchange::Exchange(const FleetRequest& request, const FleetClientOptions& options,
                   std::vector<sockaddr_storage> addresses, Time now)
    : request_(request),
      options_(options),
      addresses_(std::move(addresses)),
      end_(now + options.patience) {}

Exchange::~Exchange() { Close(); }

void Exchange::Close() {
  tls_ = nullptr;
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

short Exchange::poll_events() const {
  if (state_ == State::kConnecting) return POLLOUT;
  if (tls_ != nullptr) return tls_->poll_events();
  return state_ == State::kSending ? POLLOUT : POLLIN;
}

bool Exchange::Fail(std::string error) {
  Close();
  incoming_ = std::string();
  state_ = State::kEnded;
  const bool is_connected = answer_.is_connected;
  answer_ = FleetAnswer();
  answer_.is_connected = is_connected;
  answer_.error = std::move(error);
  return true;
}

void Exchange::GiveUp() {
  switch (state_) {
    case State::kConnecting:
      Fail("no connection in time");
      break;
    case State::kSending:
      Fail("it accepts connections, but did not read the request in time");
      break;
    case State::kReceiving:
      Fail(incoming_.empty() ? "it accepts connections, but does not answer in time"
                             : "its answer did not end in time");
      break;
    case State::kPausing:
      Fail("it is busy (503): its CPU budget for requests is spent");
      break;
    case State::kEnded:
      break;
  }
}

// Returns false if all addresses have failed; the answer then has the error.
bool Exchange::Open(Time now) {
  std::string error = "no address";
  while (next_address_ < addresses_.size()) {
    sockaddr_storage address = addresses_[next_address_++];
    const uint16_t port = htons(request_.address.port);
    socklen_t size = sizeof(sockaddr_un);
    if (address.ss_family == AF_INET6) {
      reinterpret_cast<sockaddr_in6*>(&address)->sin6_port = port;
      size = sizeof(sockaddr_in6);
    } else if (address.ss_family == AF_INET) {
      reinterpret_cast<sockaddr_in*>(&address)->sin_port = port;
      size = sizeof(sockaddr_in);
    }
    fd_ = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd_ >= 0 &&
        (connect(fd_, reinterpret_cast<sockaddr*>(&address), size) == 0 || errno == EINPROGRESS)) {
      state_ = State::kConnecting;
      wake_ = next_address_ < addresses_.size() ? now + kNextAddressAfter : Time::max();
      return true;
    }
    error = ErrorText(errno);
    Close();
  }
  Fail(std::move(error));
  return false;
}

// Returns false if connecting has failed. Another address may then be tried.
bool Exchange::FinishConnect(Time now) {
  int problem = 0;
  socklen_t size = sizeof(problem);
  getsockopt(fd_, SOL_SOCKET, SO_ERROR, &problem, &size);
  if (problem != 0) {
    Close();
    if (next_address_ < addresses_.size()) return Open(now);
    Fail(ErrorText(problem));
    return false;
  }
  wake_ = Time::max();
  answer_.is_connected = true;
  answer_.had_credentials = !options_.authorization.empty();
  const Address& address = request_.address;
  if (address.is_https) tls_ = options_.tls->Connect(fd_, address.host);
  outgoing_ =
      absl::StrCat("GET ", address.path, request_.target, " HTTP/1.0\r\nHost: ", address.name(),
                   "\r\nAccept-Encoding: gzip\r\nUser-Agent: pulse\r\nConnection: close\r\n",
                   options_.authorization.empty()
                       ? ""
                       : absl::StrCat("Authorization: ", options_.authorization, "\r\n"),
                   options_.header, options_.header.empty() ? "" : "\r\n", "\r\n");
  sent_ = 0;
  state_ = State::kSending;
  return true;
}

bool Exchange::Go(Time now) {
  if (state_ == State::kPausing && now < wake_) return false;
  if (fd_ < 0 && !Open(now)) return true;
  if (state_ == State::kConnecting) {
    pollfd polled = {fd_, POLLOUT, 0};
    if (poll(&polled, 1, 0) <= 0) {
      if (now < wake_) return false;
      Close();
      return !Open(now);
    }
    if (!FinishConnect(now)) return true;
    if (state_ == State::kConnecting) return false;
  }
  if (state_ == State::kSending && !Send()) return state_ == State::kEnded;
  return state_ == State::kReceiving ? Receive(now) : state_ == State::kEnded;
}

// Returns true once the whole request has been sent.
bool Exchange::Send() {
  while (sent_ < outgoing_.size()) {
    const char* data = outgoing_.data() + sent_;
    const std::size_t left = outgoing_.size() - sent_;
    const ssize_t size =
        tls_ != nullptr ? tls_->Send(data, left) : send(fd_, data, left, MSG_NOSIGNAL);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (size <= 0) {
      Fail(tls_ != nullptr && !tls_->problem().empty() ? tls_->problem() : ErrorText(errno));
      return false;
    }
    sent_ += static_cast<std::size_t>(size);
  }
  incoming_.clear();
  has_head_ = false;
  wanted_ = 0;
  state_ = State::kReceiving;
  return true;
}

bool Exchange::Receive(Time now) {
  while (true) {
    std::array<char, 16384> buffer;
    const ssize_t size = tls_ != nullptr ? tls_->Receive(buffer.data(), buffer.size())
                                         : recv(fd_, buffer.data(), buffer.size(), 0);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (size < 0) {
      return Fail(tls_ != nullptr && !tls_->problem().empty() ? tls_->problem() : ErrorText(errno));
    }
    if (size == 0) return Parse(now);
    incoming_.append(buffer.data(), static_cast<std::size_t>(size));
    if (incoming_.size() > options_.most_bytes) {
      return Fail(absl::StrCat("its answer is larger than ", options_.most_bytes >> 20, " MiB"));
    }
    if (HasWhole()) return Parse(now);
  }
}

bool Exchange::HasWhole() {
  if (!has_head_) {
    const std::size_t head_end = incoming_.find("\r\n\r\n");
    if (head_end == incoming_.npos) return incoming_.size() > kMostHeadBytes;
    has_head_ = true;
    const std::string head = absl::AsciiStrToLower(std::string_view(incoming_).substr(0, head_end));
    uint64_t length = 0;
    if (absl::SimpleAtoi(Header(head, "content-length"), &length) &&
        length <= options_.most_bytes) {
      wanted_ = head_end + 4 + length;
    }
  }
  return wanted_ != 0 && incoming_.size() >= wanted_;
}

bool Exchange::Parse(Time now) {
  if (incoming_.empty()) return Fail("it closed the connection without an answer");
  const std::size_t head_end = incoming_.find("\r\n\r\n");
  const std::string_view text = incoming_;
  int status = 0;
  if (head_end == text.npos || !absl::StartsWith(text, "HTTP/1.") || text.size() < 12 ||
      !absl::SimpleAtoi(text.substr(9, 3), &status)) {
    return Fail("its answer is not HTTP");
  }
  const std::string head = absl::AsciiStrToLower(text.substr(0, head_end));
  // A truncated answer must not pass for the whole.
  uint64_t length = 0;
  const bool has_length = absl::SimpleAtoi(Header(head, "content-length"), &length);
  if (has_length && length > options_.most_bytes) {
    return Fail(absl::StrCat("its answer is larger than ", options_.most_bytes >> 20, " MiB"));
  }
  if (has_length && text.size() < head_end + 4 + length) return Fail("its answer ended too early");
  // A server of another version may send no Retry-After.
  const std::chrono::seconds again(
      std::max<int64_t>(SecondsOf(Header(head, "retry-after")), options_.retry_until ? 1 : 0));
  if (status == 503 && again.count() > 0 && now + again < options_.retry_until.value_or(end_)) {
    Close();
    incoming_ = std::string();
    has_head_ = false;
    wanted_ = 0;
    next_address_ = 0;
    wake_ = now + again;
    if (options_.retry_until) end_ = wake_ + options_.patience;
    state_ = State::kPausing;
    return false;
  }
  answer_.status = status;
  answer_.age = std::chrono::seconds(SecondsOf(Header(head, "age")));
  is_packed_ = Header(head, "content-encoding") == "gzip";
  Close();
  if (has_length) incoming_.resize(head_end + 4 + length);
  incoming_.erase(0, head_end + 4);
  answer_.body = std::exchange(incoming_, std::string());
  state_ = State::kEnded;
  return true;
}

FleetAnswer Exchange::TakeAnswer(std::size_t most_bytes) {
  if (!std::exchange(is_packed_, false)) return std::move(answer_);
  most_bytes = std::min(most_bytes, options_.most_unpacked_bytes);
  std::optional<WorkBudget::Share> share;
  if (options_.budget != nullptr) share.emplace(options_.budget);
  std::optional<std::string> unpacked =
      GunzipAtMost(answer_.body, most_bytes, share ? &*share : nullptr);
  if (unpacked) {
    answer_.body = *std::move(unpacked);
  } else if (share && share->IsOver()) {
    Fail("its answer takes too long to unpack");
  } else {
    Fail(
        absl::StrCat("its answer cannot be unpacked, or has more than ", most_bytes >> 20, " MiB"));
  }
  return std::move(answer_);
}

}  // namespace nccl_pulse
