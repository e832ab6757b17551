// The life of a child, and the order of its events: all output of the leader, then `exit`, then output of its
// descendants, then `close`.
#include "process/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "core/fd.h"
#include "process/process-table.h"
#include "process/supervisor-channel.h"
#include "process/wait-thread.h"

namespace procwire {
namespace {

// Maximum bytes that a terminal can hold when its leader exits: 4 KiB in the line discipline, 64 KiB in front of it,
// and some margin.
constexpr size_t kTerminalDrainBytes = 128 * 1024;

}  // namespace

Child::Child(Loop* loop, SpawnRequest& request)
    : loop_(loop),
      callbacks_(std::move(request.callbacks)),
      pid_(request.pid),
      startTime_(request.startTime),
      lease_(request.lease),
      terminal_(request.terminal),
      pipeStdin_(request.pipeStdin),
      ptySlave_(std::move(request.ptySlaveFd)),
      segment_(std::move(request.stateSegment)),
      limits_(inputLimits()),
      writeIds_(limits_.writeIds, limits_.writeIdBytes) {
  // The supervisor reports the exit of a persistent process through its wake descriptor.
  if (segment_) {
    request.exitFd.reset();
    in_.borrow(segment_->serverWakeFd());
  } else {
    exit_.open(std::move(request.exitFd));
    in_.open(std::move(request.stdinFd));
  }
  openOutput(std::move(request.stdoutFd), std::move(request.stderrFd));
}

Child::Child(Loop* loop, RestoredProcess& restored, std::unique_ptr<StateSegment> segment, ChildCallbacks callbacks)
    : loop_(loop),
      callbacks_(std::move(callbacks)),
      pid_(segment->header().pid),
      startTime_(segment->header().start_time),
      lease_(segment->header().tree_tag),
      terminal_(segment->header().is_terminal != 0),
      pipeStdin_(!terminal_ && segment->header().has_stdin != 0),
      ptySlave_(std::move(restored.fds[PERSIST_PTY_SLAVE])),
      segment_(std::move(segment)),
      limits_(inputLimits()),
      writeIds_(limits_.writeIds, limits_.writeIdBytes) {
  in_.borrow(segment_->serverWakeFd());
  reaped_ = exitEmitted_ = segment_->isExitEmitted();
  closed_ = segment_->isCloseEmitted();
  if (closed_) {
    loop_ = nullptr;
    in_.close();
  }
  stdinEnding_ = segment_->header().in_closing != 0;
  openOutput(std::move(restored.fds[PERSIST_STDOUT]), std::move(restored.fds[PERSIST_STDERR]));
}

void Child::openOutput(UniqueFd stdoutFd, UniqueFd stderrFd) {
  out_[0].watch.open(std::move(stdoutFd));
  out_[0].name = terminal_ ? "pty" : "stdout";
  out_[0].terminal = terminal_;
  out_[1].watch.open(std::move(stderrFd));
  out_[1].name = "stderr";
  for (Watch* watch : {&exit_, &in_, &out_[0].watch, &out_[1].watch}) watch->owner = this;
}

void Child::begin() {
  if (!loop_) return;
  loop_->arm(exit_, EPOLLIN);
  if (segment_) loop_->arm(in_, EPOLLIN);
  for (OutputStream& stream : out_) armOutput(stream);
  if (exitEmitted_) loop_->deferSettle(this);
  loop_->scheduleIdle(this);
}

// Read when it is needed, or when the response to the start was sent: it takes longer than all other bookkeeping of a
// start. Until the process is reaped, no other process gets its pid. The supervisor reaps a persistent process at any
// time, so only the spawner thread reads its start time.
uint64_t Child::startTime() {
  ProcessEntry entry;
  if (startTime_ == 0 && !reaped_ && !segment_ && readEntry(pid_, entry)) startTime_ = entry.startTime;
  return startTime_;
}

// ---- events of the loop

void Child::onReady(Watch& watch, uint32_t events) {
  // The child may close and reset `loop_` meanwhile. The scope has its own reference to the environment.
  HandleScope scope(loop_->env());
  bool hungUp = events & (EPOLLHUP | EPOLLERR);
  if (&watch == &exit_) {
    onExit();
  } else if (&watch == &in_) {
    if (segment_) onSupervisorWake();
    else flush(hungUp);
  } else {
    // A terminal has one descriptor for both directions.
    bool reading = watch.armed & EPOLLIN;
    if (watch.armed & EPOLLOUT) flush(hungUp);
    if (reading && watch.fd >= 0 && ((events & EPOLLIN) || hungUp)) readOnce(*findOutputStream(watch));
  }
}

void Child::onDelayElapsed(Watch& watch) {
  if (&watch == &exit_) return loop_->arm(exit_, EPOLLIN);
  OutputStream& stream = *findOutputStream(watch);
  if (paused_) return;
  HandleScope scope(loop_->env());
  readOnce(stream);
}

OutputStream* Child::findOutputStream(Watch& watch) { return &watch == &out_[0].watch ? &out_[0] : &out_[1]; }

// ---- exit

void Child::onExit() {
  startTime();
  siginfo_t info = {};
  if (segment_) {
    segmentExitStatus(info);
  } else if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG) < 0) {
    if (errno == EINTR) return;
    // Other code has reaped the process, so its exit status is unknown.
    info.si_code = CLD_EXITED;
    info.si_status = -1;
  } else if (info.si_pid == 0) {
    waitForTracer();
    return;
  }
  reaped_ = true;
  loop_->noteInteractive();
  loop_->arm(exit_, 0);
  exit_.close();
  // From now on the terminal may hang up when its last holder closes it.
  ptySlave_.reset();

  // All output of the leader is in the kernel by now. Reads that much and no more, because descendants may write
  // forever.
  size_t pending[2] = {0, 0};
  for (int at = 0; at < 2; at++) {
    int available = 0;
    if (out_[at].watch.fd < 0) continue;
    if (terminal_) pending[at] = kTerminalDrainBytes;
    else if (ioctl(out_[at].watch.fd, FIONREAD, &available) == 0) pending[at] = static_cast<size_t>(available);
  }
  retain();
  for (int at = 0; at < 2; at++) drainAtExit(out_[at], pending[at]);
  if (loop_) {
    bool bySignal = info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED;
    exitEmitted_ = true;
    const char* const field = bySignal ? "signal" : "code";
    loop_->emit(callbacks_.onEvent, "exit", {{field, toValue(loop_->env(), info.si_status)}});
    settle();
  }
  release();
}

// Waits for a tracer that holds the exit status of the ended process. Until the tracer detaches, the pidfd stays
// readable, and polling it would keep a processor busy.
void Child::waitForTracer() {
  loop_->arm(exit_, 0);
  UniqueFd readEnd, writeEnd;
  if (openPipe(readEnd, writeEnd) && watchExitBlocking(pid_, std::move(writeEnd))) {
    exit_.open(std::move(readEnd));
    loop_->arm(exit_, EPOLLIN);
    return;
  }
  // No thread or descriptor is available: retry after the delay.
  loop_->delay(exit_);
}

void Child::drainAtExit(OutputStream& stream, size_t maxBytes) {
  while (maxBytes > 0 && loop_ && stream.watch.fd >= 0) {
    HandleScope scope(loop_->env());
    napi_value chunk;
    ssize_t length = readChunk(stream, std::min(maxBytes, stream.terminal ? kTerminalChunkBytes : kReadBytes), chunk);
    if (length == 0) return endOutput(stream);
    if (length == kReadFailed) return failOutput(stream, errno);
    if (length < 0) return;
    emitOutput(stream, chunk);
    maxBytes -= static_cast<size_t>(length);
  }
  // A paused stream is not read again, so check now for its end.
  struct pollfd state = {stream.watch.fd, POLLIN, 0};
  if (loop_ && state.fd >= 0 && poll(&state, 1, 0) > 0 && (state.revents & POLLHUP) && !(state.revents & POLLIN))
    endOutput(stream);
}

void Child::settle() {
  if (closed_ || !loop_ || !exitEmitted_ || out_[0].watch.fd >= 0 || out_[1].watch.fd >= 0) return;
  closed_ = true;
  releaseCgroup(lease_);
  endStdin();
  loop_->remove(this);
  loop_->emit(callbacks_.onEvent, "close");
  callbacks_.reset();
  loop_ = nullptr;
  replyPredictor_.onOutputEnded();
}

void Child::destroyWithoutEvents() {
  // Persistent processes survive.
  if (!reaped_ && !segment_) {
    kill(-pid_, SIGKILL);
    enqueueReap(pid_);
    releaseCgroup(lease_);
  }
  for (OutputStream& stream : out_) {
    stream.watch.close();
    releasePipeBudget(stream.isPipeEnlarged);
  }
  releasePipeBudget(isStdinEnlarged_);
  in_.close();
  exit_.close();
  ptySlave_.reset();
  closed_ = true;
  loop_ = nullptr;
  replyPredictor_.onOutputEnded();
}

void Child::emitOutput(const OutputStream& stream, napi_value chunk) {
  napi_value argv[] = {loop_->intern(stream.name), chunk};
  loop_->call(callbacks_.onOutput.get(), 2, argv);
}

// ---- methods for JavaScript

void Child::pause() {
  if (!loop_ || paused_) return;
  paused_ = true;
  for (OutputStream& stream : out_) {
    loop_->cancelDelay(stream.watch);
    armOutput(stream);
  }
}

void Child::resume() {
  if (!loop_ || !paused_) return;
  paused_ = false;
  for (OutputStream& stream : out_) armOutput(stream);
}

bool Child::resize(unsigned short rows, unsigned short cols) {
  struct winsize size = {};
  size.ws_row = rows;
  size.ws_col = cols;
  if (segment_) {
    segment_->header().rows = rows;
    segment_->header().cols = cols;
  }
  return terminal_ && out_[0].watch.fd >= 0 && ioctl(out_[0].watch.fd, TIOCSWINSZ, &size) == 0;
}

bool Child::terminalState(unsigned short& rows, unsigned short& cols, bool& echo, bool& canonical) const {
  struct winsize size = {};
  struct termios mode;
  int fd = out_[0].watch.fd;
  if (!terminal_ || fd < 0 || ioctl(fd, TIOCGWINSZ, &size) < 0 || tcgetattr(fd, &mode) < 0) return false;
  rows = size.ws_row;
  cols = size.ws_col;
  echo = mode.c_lflag & ECHO;
  canonical = mode.c_lflag & ICANON;
  return true;
}

// Sends no signal after the process is reaped, because its pid may be reused.
bool Child::signalGroup(int signal) { return !reaped_ && !closed_ && kill(-pid_, signal) == 0; }

void Child::closeStreams() {
  if (!loop_) return;
  for (OutputStream& stream : out_) endOutput(stream);
  endStdin();
  loop_->deferSettle(this);
}

}  // namespace procwire
