// A started program, from its start to its end, and the one order in which its events are emitted: first all that the
// leader had written, then `exit`, then what others still write, then `close`.
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
#include "process/keeper-channel.h"
#include "process/wait-thread.h"

namespace procwire {
namespace {

// What a terminal can hold when its leader ends: the line discipline's 4 KiB and at most 64 KiB before it, with room.
constexpr size_t kTerminalDrainBytes = 128 * 1024;

}  // namespace

Child::Child(Loop* loop, SpawnRequest& request, napi_ref onEvent)
    : loop_(loop),
      onEvent_(onEvent),
      pid_(request.pid),
      lease_(request.lease),
      terminal_(request.terminal),
      pipeStdin_(request.pipeStdin),
      slave_(request.slaveFd),
      kept_(std::move(request.kept)),
      limits_(inputLimits()),
      writeIds_(limits_.rememberedWriteIds) {
  // How a kept process ended is reported by its keeper, through the same descriptor as everything else it reports.
  if (kept_) closeFd(request.exitFd);
  exit_.fd = request.exitFd;
  in_.fd = kept_ ? kept_->toServer() : request.stdinFd;
  out_[0].watch.fd = request.stdoutFd;
  out_[0].event = terminal_ ? Event::kTerminal : Event::kStdout;
  out_[0].terminal = terminal_;
  out_[1].watch.fd = request.stderrFd;
  out_[1].event = Event::kStderr;
  for (Watch* watch : {&exit_, &in_, &out_[0].watch, &out_[1].watch}) watch->owner = this;
}

Child::Child(Loop* loop, Inherited& inherited, std::unique_ptr<Kept> kept, napi_ref onEvent)
    : loop_(loop),
      onEvent_(onEvent),
      pid_(kept->header().pid),
      lease_(kept->header().mark),
      terminal_(kept->header().is_terminal != 0),
      pipeStdin_(!terminal_ && kept->header().has_stdin != 0),
      slave_(std::exchange(inherited.fds[KEPT_SLAVE], -1)),
      kept_(std::move(kept)),
      limits_(inputLimits()),
      writeIds_(limits_.rememberedWriteIds) {
  in_.fd = kept_->toServer();
  reaped_ = exitTold_ = kept_->exitWasTold();
  closed_ = kept_->closeWasTold();
  if (closed_) {
    loop_ = nullptr;
    in_.fd = -1;
  }
  stdinEnding_ = kept_->header().in_closing != 0;
  out_[0].watch.fd = std::exchange(inherited.fds[KEPT_OUT], -1);
  out_[0].event = terminal_ ? Event::kTerminal : Event::kStdout;
  out_[0].terminal = terminal_;
  out_[1].watch.fd = std::exchange(inherited.fds[KEPT_ERR], -1);
  out_[1].event = Event::kStderr;
  for (Watch* watch : {&exit_, &in_, &out_[0].watch, &out_[1].watch}) watch->owner = this;
}

void Child::begin() {
  if (!loop_) return;
  loop_->arm(exit_, EPOLLIN);
  if (kept_) loop_->arm(in_, EPOLLIN);
  for (OutStream& stream : out_) armOut(stream);
  if (exitTold_) loop_->settleSoon(this);
}

// ---- events of the loop

void Child::onReady(Watch& watch, uint32_t events) {
  // The child may settle, and lose its loop, on the way.
  napi_env env = loop_->env();
  napi_handle_scope scope;
  napi_open_handle_scope(env, &scope);
  bool hungUp = events & (EPOLLHUP | EPOLLERR);
  if (&watch == &exit_) {
    onExit();
  } else if (&watch == &in_) {
    if (kept_) onPoke();
    else flush(hungUp);
  } else {
    // A terminal is one descriptor for both directions.
    bool reading = watch.armed & EPOLLIN;
    if (watch.armed & EPOLLOUT) flush(hungUp);
    if (reading && watch.fd >= 0 && ((events & EPOLLIN) || hungUp)) readOnce(*outStreamOf(watch));
  }
  napi_close_handle_scope(env, scope);
}

void Child::onDelayOver(Watch& watch) {
  if (&watch == &exit_) return loop_->arm(exit_, EPOLLIN);
  OutStream& stream = *outStreamOf(watch);
  if (paused_) return;
  napi_env env = loop_->env();
  napi_handle_scope scope;
  napi_open_handle_scope(env, &scope);
  readOnce(stream);
  napi_close_handle_scope(env, scope);
}

OutStream* Child::outStreamOf(Watch& watch) { return &watch == &out_[0].watch ? &out_[0] : &out_[1]; }

// ---- the end

void Child::onExit() {
  siginfo_t info = {};
  if (kept_) {
    keptStatus(info);
  } else if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG) < 0) {
    if (errno == EINTR) return;
    // Other code has reaped it; how it ended can no longer be known.
    info.si_code = CLD_EXITED;
    info.si_status = -1;
  } else if (info.si_pid == 0) {
    awaitTracer();
    return;
  }
  reaped_ = true;
  loop_->heardOfOne();
  loop_->arm(exit_, 0);
  closeFd(exit_.fd);
  // From now on the terminal may hang up when its last holder goes.
  closeFd(slave_);

  // All that the leader wrote is in the kernel by now. Read that much and no more: others may go on writing for ever.
  size_t held[2] = {0, 0};
  for (int at = 0; at < 2; at++) {
    int available = 0;
    if (out_[at].watch.fd < 0) continue;
    if (terminal_) held[at] = kTerminalDrainBytes;
    else if (ioctl(out_[at].watch.fd, FIONREAD, &available) == 0) held[at] = static_cast<size_t>(available);
  }
  retain();
  for (int at = 0; at < 2; at++) drainAtExit(out_[at], held[at]);
  if (loop_) {
    bool bySignal = info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED;
    napi_value code, signal;
    napi_create_int32(loop_->env(), bySignal ? -1 : info.si_status, &code);
    napi_create_int32(loop_->env(), bySignal ? info.si_status : 0, &signal);
    exitTold_ = true;
    tell(Event::kExit, code, signal);
    settle();
  }
  release();
}

// It has ended, but its exit status belongs to its tracer, and to us only when the tracer detaches. Until then the
// pidfd stays readable, and polling it would keep a processor busy.
void Child::awaitTracer() {
  loop_->arm(exit_, 0);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) == 0) {
    if (watchExitAsleep(pid_, ends[1])) {
      closeFd(exit_.fd);
      exit_.fd = ends[0];
      loop_->arm(exit_, EPOLLIN);
      return;
    }
    close(ends[0]);
    close(ends[1]);
  }
  // No room for that now: look again in a moment.
  loop_->delay(exit_);
}

void Child::drainAtExit(OutStream& stream, size_t most) {
  while (most > 0 && loop_ && stream.watch.fd >= 0) {
    napi_handle_scope scope;
    napi_env env = loop_->env();
    napi_open_handle_scope(env, &scope);
    napi_value chunk;
    ssize_t length = readChunk(stream, std::min(most, stream.terminal ? kTerminalChunkBytes : kReadBytes), chunk);
    if (length > 0) tell(stream.event, chunk);
    else if (length == kReadFailed) failOut(stream, errno);
    napi_close_handle_scope(env, scope);
    if (length == 0) endOut(stream);
    if (length <= 0) return;
    most -= static_cast<size_t>(length);
  }
  // A paused stream is not read again, so check now whether this was its end.
  struct pollfd look = {stream.watch.fd, POLLIN, 0};
  if (loop_ && look.fd >= 0 && poll(&look, 1, 0) > 0 && (look.revents & POLLHUP) && !(look.revents & POLLIN))
    endOut(stream);
}

void Child::settle() {
  if (closed_ || !loop_ || !exitTold_ || out_[0].watch.fd >= 0 || out_[1].watch.fd >= 0) return;
  closed_ = true;
  leaveTreeGroup(lease_);
  endStdin();
  Loop* loop = loop_;
  napi_env env = loop->env();
  napi_handle_scope scope;
  napi_open_handle_scope(env, &scope);
  loop->remove(this);
  tell(Event::kClose);
  if (onEvent_) napi_delete_reference(env, onEvent_);
  onEvent_ = nullptr;
  loop_ = nullptr;
  habit_.ended();
  napi_close_handle_scope(env, scope);
}

void Child::abandon() {
  // A kept process lives on.
  if (!reaped_ && !kept_) {
    kill(-pid_, SIGKILL);
    reapLater(pid_);
  }
  for (OutStream& stream : out_) {
    closeFd(stream.watch.fd);
    giveBackPipe(stream.grown);
  }
  giveBackPipe(stdinGrown_);
  if (kept_) in_.fd = -1;
  closeFd(in_.fd);
  closeFd(exit_.fd);
  closeFd(slave_);
  closed_ = true;
  loop_ = nullptr;
  habit_.ended();
}

void Child::tell(Event event, napi_value first, napi_value second) {
  napi_value callback;
  if (!onEvent_ || napi_get_reference_value(loop_->env(), onEvent_, &callback) != napi_ok) return;
  napi_value argv[3];
  size_t argc = 1;
  napi_create_int32(loop_->env(), static_cast<int>(event), &argv[0]);
  if (first) argv[argc++] = first;
  if (second) argv[argc++] = second;
  loop_->call(callback, argc, argv);
}

// ---- what JavaScript asks for

void Child::pause() {
  if (!loop_ || paused_) return;
  paused_ = true;
  for (OutStream& stream : out_) {
    loop_->undelay(stream.watch);
    armOut(stream);
  }
}

void Child::resume() {
  if (!loop_ || !paused_) return;
  paused_ = false;
  for (OutStream& stream : out_) armOut(stream);
}

bool Child::resize(unsigned short rows, unsigned short cols) {
  struct winsize size = {};
  size.ws_row = rows;
  size.ws_col = cols;
  if (kept_) {
    kept_->header().rows = rows;
    kept_->header().cols = cols;
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

// Only before it is reaped: afterwards the number may belong to another process.
bool Child::signalGroup(int signal) { return !reaped_ && !closed_ && kill(-pid_, signal) == 0; }

void Child::cut() {
  if (!loop_) return;
  for (OutStream& stream : out_) endOut(stream);
  endStdin();
  loop_->settleSoon(this);
}

}  // namespace procwire
