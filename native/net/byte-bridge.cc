#include "net/byte-bridge.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include "core/fd.h"

namespace procwire {
namespace {

// A process has one bridge.
constexpr size_t kMaxThreads = 1;
// Bytes moved at once. The default capacity of a pipe applies if the user may not enlarge it.
constexpr int kPipeBytes = 1024 * 1024;

// One direction. Bytes wait in a pipe, because splice(2) moves them only to or from a pipe.
class Direction {
 public:
  Direction(int from, int to) : from_(from), to_(to) {}

  int open() {
    if (!openPipe(readEnd_, writeEnd_)) return errno;
    fcntl(writeEnd_.get(), F_SETPIPE_SZ, kPipeBytes);
    return 0;
  }

  bool isDone() const { return isDone_; }

  // The descriptor to wait for: `from` if no bytes wait, else `to`.
  struct pollfd pollEntry() const {
    if (isDone_) return {-1, 0, 0};
    if (waiting_ == 0) return {from_, POLLIN, 0};
    return {to_, POLLOUT, 0};
  }

  // Moves bytes until a descriptor is not ready.
  void move() {
    while (!isDone_) {
      const bool isFilling = waiting_ == 0;
      const ssize_t count = isFilling ? splice(from_, nullptr, writeEnd_.get(), nullptr, kPipeBytes, kFlags)
                                      : splice(readEnd_.get(), nullptr, to_, nullptr, waiting_, kFlags);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && errno == EAGAIN) return;
      // The end of `from`, or an error of either descriptor.
      if (count <= 0) isDone_ = true;
      else if (isFilling) waiting_ = static_cast<size_t>(count);
      else waiting_ -= static_cast<size_t>(count);
    }
  }

 private:
  static constexpr unsigned kFlags = SPLICE_F_MOVE | SPLICE_F_NONBLOCK;

  int from_;
  int to_;
  UniqueFd readEnd_;
  UniqueFd writeEnd_;
  size_t waiting_ = 0;
  bool isDone_ = false;
};

}  // namespace

void BridgeJob::run() {
  Direction in(input, server);
  Direction out(server, output);
  for (Direction* direction : {&in, &out})
    if ((err_ = direction->open()) != 0) return;
  for (bool hasInput = true;;) {
    in.move();
    if (in.isDone() && hasInput) {
      hasInput = false;
      shutdown(server, SHUT_WR);
    }
    out.move();
    if (out.isDone()) return;
    struct pollfd entries[] = {in.pollEntry(), out.pollEntry()};
    poll(entries, 2, -1);
  }
}

void BridgeJob::deliver(Loop& loop) {
  HandleScope scope(loop.env());
  napi_value argument = toValue(loop.env(), err_);
  napi_value done = onDone.get();
  onDone.reset();
  loop.call(done, 1, &argument);
}

JobQueue& bridgeJobs() {
  static JobQueue* const shared = new JobQueue("procwire-bridge", kMaxThreads);
  return *shared;
}

}  // namespace procwire
