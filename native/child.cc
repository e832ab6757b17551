// A started program: reads what it writes, writes what it reads, and tells its end in the one right order. First all
// that the leader had written, then `exit`, then what others still write, then `close`.
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

namespace procwire {
namespace {

// Reads at least this large go straight into the memory JavaScript gets; smaller ones are copied from a shared buffer.
constexpr size_t kDirectReadBytes = 32 * 1024;
// A terminal gives at most 4 KiB per read; this much is put together into one chunk.
constexpr size_t kTerminalChunkBytes = 64 * 1024;
// Input taken per round, so that one fast reader does not hold up the loop.
constexpr size_t kWriteBytesPerRound = 1024 * 1024;

// A pipe that has carried this much is enlarged; all enlarged pipes of the program share the budget.
constexpr uint64_t kGrowAfterBytes = 256 * 1024;
constexpr int kGrownPipeBytes = 1024 * 1024;
constexpr int kGrownPipesBudget = 16;
std::atomic<int> grownPipes{0};

// What a terminal can hold when its leader ends: the line discipline's 4 KiB and at most 64 KiB before it, with room.
constexpr size_t kTerminalDrainBytes = 128 * 1024;

// A stream whose chunks come this close together, this many times, is read a millisecond at a time.
constexpr int64_t kBurstGapNs = 3 * 1000 * 1000;
constexpr int kBurstChunks = 8;
// Larger chunks are efficient as they are: waiting would only let a full pipe stall the writer.
constexpr size_t kCoalesceBelowBytes = 16 * 1024;
constexpr size_t kCoalesceBelowGrownBytes = 64 * 1024;
constexpr size_t kCoalesceBelowTerminalBytes = 2 * 1024;

int64_t nowNs() {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1000000000 + now.tv_nsec;
}

void closeFd(int& fd) {
  if (fd >= 0) close(fd);
  fd = -1;
}

}  // namespace

Child::Child(Loop* loop, SpawnRequest& request, napi_ref onEvent)
    : loop_(loop), onEvent_(onEvent), pid_(request.pid), terminal_(request.terminal), slave_(request.slaveFd) {
  exit_.fd = request.exitFd;
  in_.fd = request.stdinFd;
  out_[0].watch.fd = request.stdoutFd;
  out_[0].event = terminal_ ? Event::kTerminal : Event::kStdout;
  out_[0].terminal = terminal_;
  out_[1].watch.fd = request.stderrFd;
  out_[1].event = Event::kStderr;
  for (Watch* watch : {&exit_, &in_, &out_[0].watch, &out_[1].watch}) watch->child = this;
}

napi_value Child::handle() {
  napi_value external;
  retain();
  napi_create_external(
      loop_->env(), this, [](napi_env, void* child, void*) { static_cast<Child*>(child)->release(); }, nullptr,
      &external);
  return external;
}

void Child::begin() {
  loop_->arm(exit_, EPOLLIN);
  for (OutStream& stream : out_) armOut(stream);
}

void Child::release() {
  if (--references_ == 0) delete this;
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
    flush(hungUp);
  } else {
    // A terminal is one descriptor for both directions.
    bool reading = watch.armed & EPOLLIN;
    if (watch.armed & EPOLLOUT) flush(hungUp);
    if (reading && watch.fd >= 0 && ((events & EPOLLIN) || hungUp)) readOnce(*outStreamOf(watch));
  }
  napi_close_handle_scope(env, scope);
}

void Child::onDelayOver(Watch& watch) {
  OutStream& stream = *outStreamOf(watch);
  if (paused_) return;
  napi_env env = loop_->env();
  napi_handle_scope scope;
  napi_open_handle_scope(env, &scope);
  readOnce(stream);
  napi_close_handle_scope(env, scope);
}

OutStream* Child::outStreamOf(Watch& watch) { return &watch == &out_[0].watch ? &out_[0] : &out_[1]; }

// ---- output

void Child::armOut(OutStream& stream) {
  if (stream.watch.fd < 0) return;
  uint32_t events = 0;
  if (!paused_ && !stream.watch.delayed) events |= EPOLLIN;
  if (stream.terminal && queuedBytes_ > 0) events |= EPOLLOUT;
  loop_->arm(stream.watch, events);
}

void Child::readOnce(OutStream& stream) {
  size_t most = stream.terminal ? kTerminalChunkBytes : kReadBytes;
  napi_value chunk;
  ssize_t length = readChunk(stream, most, chunk);
  if (length == 0) {
    endOut(stream);
    settle();
    return;
  }
  if (length > 0) {
    chunkDone(stream, static_cast<size_t>(length), most);
    armOut(stream);
    tell(stream.event, chunk);
  } else {
    armOut(stream);
  }
}

// Decides whether the next read should wait a little, so that a program printing line by line costs one event for
// many lines. Silence, a large chunk or input for the program end it at once.
void Child::chunkDone(OutStream& stream, size_t length, size_t asked) {
  stream.totalBytes += length;
  stream.readLarge = length >= kDirectReadBytes;
  if (!stream.terminal && !stream.grown && stream.totalBytes >= kGrowAfterBytes)
    growPipe(stream.watch.fd, stream.grown);
  int64_t now = nowNs();
  stream.quickChunks = now - stream.lastChunkNs < kBurstGapNs ? stream.quickChunks + 1 : 0;
  stream.lastChunkNs = now;
  size_t below = stream.terminal ? kCoalesceBelowTerminalBytes
                 : stream.grown  ? kCoalesceBelowGrownBytes
                                 : kCoalesceBelowBytes;
  if (stream.quickChunks >= kBurstChunks && length < asked && length < below) loop_->delay(stream.watch);
}

void Child::forgetBurst() {
  for (OutStream& stream : out_) {
    stream.quickChunks = 0;
    if (!stream.watch.delayed) continue;
    loop_->undelay(stream.watch);
    armOut(stream);
  }
}

// Bytes read (`chunk` is set), 0 at the end, -1 when there is nothing now.
ssize_t Child::readChunk(OutStream& stream, size_t most, napi_value& chunk) {
  ssize_t length = stream.terminal ? readTerminal(stream, most, chunk) : readPipe(stream, most, chunk);
  if (length >= 0) return length;
  // A terminal whose last writer is gone says EIO. Whatever else cannot be read will not become readable.
  return errno == EAGAIN ? -1 : 0;
}

ssize_t Child::readPipe(OutStream& stream, size_t most, napi_value& chunk) {
  int fd = stream.watch.fd;
  int available = 0;
  if (stream.readLarge && ioctl(fd, FIONREAD, &available) == 0 &&
      static_cast<size_t>(available) >= kDirectReadBytes) {
    size_t wanted = std::min(static_cast<size_t>(available), most);
    void* memory;
    if (napi_create_buffer(loop_->env(), wanted, &memory, &chunk) == napi_ok) {
      ssize_t length;
      do length = read(fd, memory, wanted);
      while (length < 0 && errno == EINTR);
      if (length <= 0 || static_cast<size_t>(length) == wanted) return length;
      // Only if somebody else read from our end meanwhile.
      napi_create_buffer_copy(loop_->env(), static_cast<size_t>(length), memory, nullptr, &chunk);
      return length;
    }
  }
  char* scratch = loop_->scratch();
  ssize_t length;
  do length = read(fd, scratch, std::min(most, kReadBytes));
  while (length < 0 && errno == EINTR);
  if (length > 0 &&
      napi_create_buffer_copy(loop_->env(), static_cast<size_t>(length), scratch, nullptr, &chunk) != napi_ok) {
    errno = ENOMEM;
    return -1;
  }
  return length;
}

ssize_t Child::readTerminal(OutStream& stream, size_t most, napi_value& chunk) {
  char* scratch = loop_->scratch();
  size_t length = 0;
  ssize_t last = 0;
  while (length < most) {
    last = read(stream.watch.fd, scratch + length, most - length);
    if (last < 0 && errno == EINTR) continue;
    if (last <= 0) break;
    length += static_cast<size_t>(last);
  }
  // What came before an end is told first; the end is met again by the next read.
  if (length == 0) return last;
  if (napi_create_buffer_copy(loop_->env(), length, scratch, nullptr, &chunk) != napi_ok) {
    errno = ENOMEM;
    return -1;
  }
  return static_cast<ssize_t>(length);
}

void Child::endOut(OutStream& stream) {
  if (stream.watch.fd < 0) return;
  loop_->undelay(stream.watch);
  loop_->arm(stream.watch, 0);
  closeFd(stream.watch.fd);
  if (stream.grown) grownPipes--;
  stream.grown = false;
  // The terminal was also the way in.
  if (stream.terminal) endStdin();
}

// Up to 1 MiB in the kernel, so that a fast writer is stopped less often; within the budget of the whole program.
void Child::growPipe(int fd, bool& grown) {
  if (grownPipes.fetch_add(1) >= kGrownPipesBudget || fcntl(fd, F_SETPIPE_SZ, kGrownPipeBytes) < 0) {
    grownPipes--;
    return;
  }
  grown = true;
}

// ---- the end

void Child::onExit() {
  siginfo_t info = {};
  if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG) < 0) {
    if (errno == EINTR) return;
    // Somebody else has reaped it; how it ended can no longer be learned.
    info.si_code = CLD_EXITED;
    info.si_status = -1;
  } else if (info.si_pid == 0) {
    return;
  }
  reaped_ = true;
  loop_->arm(exit_, 0);
  closeFd(exit_.fd);
  // From now on the terminal may hang up when its last holder goes.
  closeFd(slave_);

  // All that the leader wrote is in the kernel by now. Take that much and no more: others may go on writing for ever.
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

void Child::drainAtExit(OutStream& stream, size_t most) {
  while (most > 0 && loop_ && stream.watch.fd >= 0) {
    napi_handle_scope scope;
    napi_env env = loop_->env();
    napi_open_handle_scope(env, &scope);
    napi_value chunk;
    ssize_t length = readChunk(stream, std::min(most, stream.terminal ? kTerminalChunkBytes : kReadBytes), chunk);
    if (length > 0) tell(stream.event, chunk);
    napi_close_handle_scope(env, scope);
    if (length == 0) endOut(stream);
    if (length <= 0) return;
    most -= static_cast<size_t>(length);
  }
  // A paused stream is not read again, so see now whether this was all that will ever come.
  struct pollfd look = {stream.watch.fd, POLLIN, 0};
  if (loop_ && look.fd >= 0 && poll(&look, 1, 0) > 0 && (look.revents & POLLHUP) && !(look.revents & POLLIN))
    endOut(stream);
}

void Child::settle() {
  if (closed_ || !loop_ || !exitTold_ || out_[0].watch.fd >= 0 || out_[1].watch.fd >= 0) return;
  closed_ = true;
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
  napi_close_handle_scope(env, scope);
}

void Child::abandon() {
  if (!reaped_) {
    kill(-pid_, SIGKILL);
    reapLater(pid_);
  }
  for (OutStream& stream : out_) {
    closeFd(stream.watch.fd);
    if (stream.grown) grownPipes--;
    stream.grown = false;
  }
  if (stdinGrown_) grownPipes--;
  stdinGrown_ = false;
  closeFd(in_.fd);
  closeFd(exit_.fd);
  closeFd(slave_);
  closed_ = true;
  loop_ = nullptr;
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

size_t Child::write(const char* bytes, size_t length) {
  int fd = stdinFd();
  if (!loop_ || fd < 0 || stdinEnding_ || length == 0) return queuedBytes_;
  forgetBurst();
  if (terminal_) lineOpen_ = bytes[length - 1] != '\n' && bytes[length - 1] != '\r';
  size_t taken = 0;
  if (queue_.empty()) {
    ssize_t written;
    do written = ::write(fd, bytes, length);
    while (written < 0 && errno == EINTR);
    if (written >= 0) {
      taken = static_cast<size_t>(written);
    } else if (errno != EAGAIN) {
      // Nobody reads any more: told as an empty queue, not as an error.
      endStdin();
      return 0;
    }
    writtenBytes_ += taken;
  }
  if (taken < length) {
    queue_.emplace_back(bytes + taken, length - taken);
    queuedBytes_ += length - taken;
    wantsDrain_ = true;
    if (terminal_) armOut(out_[0]);
    else loop_->arm(in_, EPOLLOUT);
  }
  return queuedBytes_;
}

void Child::flush(bool hungUp) {
  size_t budget = kWriteBytesPerRound;
  while (!queue_.empty() && budget > 0 && stdinFd() >= 0) {
    const std::string& next = queue_.front();
    ssize_t written = ::write(stdinFd(), next.data() + queueOffset_, std::min(next.size() - queueOffset_, budget));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN && !hungUp) break;
    if (written < 0) {
      // Nobody reads any more.
      endStdin();
      break;
    }
    size_t taken = static_cast<size_t>(written);
    writtenBytes_ += taken;
    queuedBytes_ -= taken;
    budget -= taken;
    queueOffset_ += taken;
    if (queueOffset_ == next.size()) {
      queue_.pop_front();
      queueOffset_ = 0;
    }
  }
  if (!terminal_ && !stdinGrown_ && in_.fd >= 0 && writtenBytes_ >= kGrowAfterBytes) growPipe(in_.fd, stdinGrown_);
  if (!queue_.empty()) return;
  if (terminal_) armOut(out_[0]);
  else loop_->arm(in_, 0);
  if (stdinEnding_ && !terminal_) endStdin();
  if (wantsDrain_) {
    wantsDrain_ = false;
    tell(Event::kDrain);
  }
}

void Child::closeStdin() {
  if (!loop_ || stdinEnding_ || stdinFd() < 0) return;
  if (!terminal_) {
    stdinEnding_ = true;
    if (queue_.empty()) endStdin();
    return;
  }
  // A terminal has no end of its own: its keystroke for it says so to a program that reads lines. After an unfinished
  // line the first one only hands that line over.
  struct termios mode;
  char key = 4;
  bool canonical = true;
  if (tcgetattr(out_[0].watch.fd, &mode) == 0) {
    if (mode.c_cc[VEOF] != 0) key = static_cast<char>(mode.c_cc[VEOF]);
    canonical = mode.c_lflag & ICANON;
  }
  const char keys[2] = {key, key};
  write(keys, canonical && lineOpen_ ? 2 : 1);
  stdinEnding_ = true;
}

// Drops what nobody will read, and closes our end. A terminal's descriptor stays: it is also the way out.
void Child::endStdin() {
  queue_.clear();
  queueOffset_ = 0;
  queuedBytes_ = 0;
  if (in_.fd >= 0) {
    loop_->arm(in_, 0);
    closeFd(in_.fd);
  }
  if (stdinGrown_) grownPipes--;
  stdinGrown_ = false;
  if (terminal_ && loop_) armOut(out_[0]);
}

int Child::stdinFd() const { return terminal_ ? out_[0].watch.fd : in_.fd; }

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

// Only before it is reaped: afterwards the number may belong to somebody else.
bool Child::signalGroup(int signal) { return !reaped_ && !closed_ && kill(-pid_, signal) == 0; }

void Child::cut() {
  if (!loop_) return;
  for (OutStream& stream : out_) endOut(stream);
  endStdin();
  loop_->settleSoon(this);
}

}  // namespace procwire
