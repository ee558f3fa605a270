#include "comm/zmq_context.h"

#include <zmq.h>

#include <cerrno>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace coppice::comm {

std::shared_ptr<void> SharedZmqContext() {
  static std::mutex mutex;
  static std::weak_ptr<void> shared;
  std::lock_guard<std::mutex> lock(mutex);
  std::shared_ptr<void> context = shared.lock();
  if (context == nullptr) {
    context = std::shared_ptr<void>(zmq_ctx_new(), [](void* ended) {
      while (zmq_ctx_term(ended) != 0 && errno == EINTR) {
      }
    });
    COPPICE_CHECK(context != nullptr);
    zmq_ctx_set(context.get(), ZMQ_BLOCKY, 0);
    shared = context;
  }
  return context;
}

ZmqSocket::ZmqSocket(int type)
    : context_(SharedZmqContext()), socket_(zmq_socket(context_.get(), type)) {
  COPPICE_CHECK_MSG(socket_ != nullptr, zmq_strerror(errno));
  SetOption(ZMQ_LINGER, 0);
}

ZmqSocket::~ZmqSocket() { zmq_close(socket_); }

void ZmqSocket::SetOption(int option, int value) {
  COPPICE_CHECK_MSG(zmq_setsockopt(socket_, option, &value, sizeof(value)) == 0,
                    absl::StrCat("option ", option, ": ", zmq_strerror(errno)));
}

void ZmqSocket::SetOption(int option, const std::string& value) {
  COPPICE_CHECK_MSG(zmq_setsockopt(socket_, option, value.data(), value.size()) == 0,
                    absl::StrCat("option ", option, ": ", zmq_strerror(errno)));
}

absl::Status ZmqError(const char* what, const std::string& endpoint) {
  const int error = errno;
  const std::string message = absl::StrCat(what, " '", endpoint, "': ", zmq_strerror(error));
  if (error == EINVAL || error == EPROTONOSUPPORT || error == ENODEV || error == ENOCOMPATPROTO) {
    return absl::InvalidArgumentError(message);
  }
  return absl::UnavailableError(message);
}

}  // namespace coppice::comm
