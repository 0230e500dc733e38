#include "exporter/http/clients.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "exporter/base/error_text.h"
#include "exporter/base/time.h"
#include "exporter/http/page_cache.h"
#include "metrics/shared_descriptor.h"

namespace nccl_pulse {
namespace {

// New clients per round. Between rounds, existing clients are served.
constexpr int kAcceptsPerRound = 8;
// Pause in accepting when no descriptor is left, or after an unexpected failure.
constexpr std::chrono::milliseconds kAcceptPause{100};

}  // namespace

Clients::Clients(Guard* guard, Responder* responder, LogFunction log)
    : guard_(guard), responder_(*responder), accept_failure_(std::move(log)) {}

void Clients::AppendPolled(std::vector<pollfd>* polled, Time* next) {
  polled_.clear();
  for (Connection& connection : connections_) {
    if (!connection.in_use()) continue;
    polled_.push_back(&connection);
    polled->push_back({connection.fd(), connection.poll_events(), 0});
    *next = std::min(*next, connection.deadline());
  }
}

void Clients::Handle(const pollfd* polled, Time now) {
  for (std::size_t i = 0; i < polled_.size(); ++i) {
    if (!polled_[i]->in_use()) continue;  // closed to make room for another client's page
    if (polled[i].revents != 0) {
      Serve(polled_[i], polled[i].revents, now);
    } else if (polled_[i]->deadline() <= now) {
      polled_[i]->Close();
    }
  }
  polled_.clear();
}

void Clients::Serve(Connection* connection, short events, Time now) {
  const bool writing = connection->state() == Connection::State::kWriting;
  // POLLHUP and POLLERR are always reported; the next call returns what they mean. A parked
  // connection is polled for nothing else.
  const bool open = (events & POLLNVAL) == 0 && connection->state() != Connection::State::kParked &&
                    (writing ? connection->Send(now) : connection->Receive(now));
  if (!open || connection->deadline() <= now) {
    connection->Close();
    return;
  }
  responder_.AnswerRequests(connection, now);
}

bool Clients::CutOffSlowest(bool in_any_case) {
  Connection* slowest = nullptr;
  for (Connection& connection : connections_) {
    if (connection.body() == nullptr) continue;
    if (slowest == nullptr || connection.deadline() < slowest->deadline()) slowest = &connection;
  }
  if (slowest == nullptr) return false;
  const Time started = slowest->deadline() - kResponseTimeout;
  if (!in_any_case && MonotonicNow() - started < kPageGrace) return false;
  slowest->Close();
  return true;
}

void Clients::Accept(int listener, Time now) {
  for (int i = 0; i < kAcceptsPerRound; ++i) {
    Connection* connection = SlotForClient(now);
    if (connection == nullptr) return;
    if (!AcceptInto(connection, listener, now)) {
      // Network errors of a pending client (accept(2)) are gone in the next round.
      const bool descriptors_or_memory =
          errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      const bool broken = errno == EBADF || errno == EINVAL || errno == ENOTSOCK;
      if (descriptors_or_memory || broken) {
        accept_from_ = now + kAcceptPause;
        accept_failure_.Give("HTTP endpoint cannot accept connections, retrying: ",
                             ErrorText(errno));
      }
      return;
    }
    // Without this, the end of a page waits for the client's delayed acknowledgement of its
    // beginning.
    const int on = 1;
    const int fd = connection->fd();
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (guard_ != nullptr) connection->SetTransport(guard_->MakeTransport(fd));
  }
}

bool Clients::AcceptInto(Connection* connection, int listener, Time now) {
  const ForkGuard guard;
  const int fd = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) return false;
  connection->Close();
  connection->Open(fd, now);
  return true;
}

// Returns a free connection, or one that a new client may replace. Returns null if there is none,
// and stops accepting until the first becomes replaceable.
Connection* Clients::SlotForClient(Time now) {
  Connection* slot = &connections_[0];
  for (Connection& connection : connections_) {
    if (!connection.in_use()) return &connection;
    if (connection.replaceable_from() < slot->replaceable_from()) slot = &connection;
  }
  if (slot->replaceable_from() <= now) return slot;
  accept_from_ = slot->replaceable_from();
  return nullptr;
}

void Clients::AnswerParked(Time now) {
  for (Connection& connection : connections_) responder_.AnswerParked(&connection, now);
}

void Clients::Leave() {
  for (Connection& connection : connections_) {
    if (connection.state() == Connection::State::kReading ||
        connection.state() == Connection::State::kParked) {
      connection.Close();
    }
    connection.EndAfterResponse();
  }
}

void Clients::CloseAll() {
  for (Connection& connection : connections_) connection.Close();
}

}  // namespace nccl_pulse
