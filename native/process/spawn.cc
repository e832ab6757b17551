// Starting a program. The child borrows the parent's memory until it execs (vfork), so it costs the same whatever the
// size of the server, and it tells a failure by writing into the request itself. A few permanent threads do this for
// the whole program: the kernel ties the parent-death signal to the thread that forked, and the event loop never waits.
//
// An emulator (qemu-user) either refuses these clone flags with EINVAL or makes a plain fork of them. The child's
// memory is a copy there, so it reports through a pipe that exec closes. The first start finds out which of the two it
// is.
#include "process/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "core/fd.h"
#include "core/syscall-numbers.h"
#include "core/uv-lite.h"
#include "process/exec-child.h"
#include "process/keeper-channel.h"
#include "process/process-tree.h"
#include "process/wait-thread.h"

#ifndef CLONE_PIDFD
#define CLONE_PIDFD 0x00001000
#endif
#ifndef TIOCGPTPEER
#define TIOCGPTPEER _IO('T', 0x41)
#endif

namespace procwire {
namespace {

// Room for the child's few frames before exec; the guard page below turns an overflow into a crash, not a corruption.
constexpr size_t kChildStackBytes = 256 * 1024;
// Where a program is looked for when its environment has no PATH; the C library's own default.
constexpr char kDefaultPath[] = "/bin:/usr/bin";

// Threads that start programs: starting is the kernel's work on one processor, so more of them than processors, or than
// a few, gain nothing.
constexpr size_t kMostSpawners = 4;

// Whether a child shares the parent's memory before it execs.
enum class ChildMemory { unknown, shared, copied };

std::atomic<ChildMemory> childMemory{ChildMemory::unknown};
std::atomic<bool> forkOnly{false};
bool oldCallsOnly = false;
std::atomic<pid_t> spawnerThreadIds[kMostSpawners];

// Moves a descriptor out of the way of 0, 1 and 2, should the program have been started without them.
bool aboveStdio(int& fd) {
  if (fd < 0 || fd > 2) return fd >= 0;
  int moved = fcntl(fd, F_DUPFD_CLOEXEC, 3);
  int err = errno;
  close(fd);
  fd = moved;
  errno = err;
  return moved >= 0;
}

bool setNonBlocking(int fd) {
  int flags = fcntl(fd, F_GETFL);
  return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

uint64_t inodeOf(int fd) {
  struct stat info;
  return fstat(fd, &info) == 0 ? static_cast<uint64_t>(info.st_ino) : 0;
}

bool failed(SpawnRequest& request, const char* call, const std::string& path) {
  request.err = errno;
  request.syscall = call;
  request.path = path;
  return false;
}

struct ChildFds {
  int in = -1;
  int out = -1;
  int err = -1;
  int report[2] = {-1, -1};  // read, write; only where the child's memory may be a copy
  std::vector<int> passed;
  std::vector<int> cgroups;

  ~ChildFds() {
    for (int& fd : report) closeFd(fd);
    for (int& fd : cgroups) closeFd(fd);
    for (int& fd : passed) closeFd(fd);
    closeFd(in);
    closeFd(out);
    closeFd(err);
  }
};

bool openPipe(SpawnRequest& request, int& parentEnd, int& childEnd, bool parentReads) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) < 0) return failed(request, "pipe2", request.file);
  parentEnd = ends[parentReads ? 0 : 1];
  childEnd = ends[parentReads ? 1 : 0];
  if (!aboveStdio(parentEnd) || !aboveStdio(childEnd)) return failed(request, "fcntl", request.file);
  // Only our end: the other one is a file description of its own, and programs expect theirs to block.
  if (!setNonBlocking(parentEnd)) return failed(request, "fcntl", request.file);
  return true;
}

bool openPipes(SpawnRequest& request, ChildFds& child) {
  if (request.pipeStdin) {
    if (!openPipe(request, request.stdinFd, child.in, false)) return false;
    request.pipeInodes[0] = inodeOf(request.stdinFd);
  } else {
    child.in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (child.in < 0 || !aboveStdio(child.in)) return failed(request, "open", "/dev/null");
  }
  if (!openPipe(request, request.stdoutFd, child.out, true)) return false;
  if (!openPipe(request, request.stderrFd, child.err, true)) return false;
  request.pipeInodes[1] = inodeOf(request.stdoutFd);
  request.pipeInodes[2] = inodeOf(request.stderrFd);
  return true;
}

// Copies above all the numbers they get in the child, so that none is overwritten before it is in its place.
bool copyPassed(SpawnRequest& request, ChildFds& child) {
  for (int fd : request.passed) {
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3 + static_cast<int>(request.passed.size()));
    if (copy < 0) return failed(request, "fcntl", request.file);
    child.passed.push_back(copy);
  }
  return true;
}

bool openCgroups(SpawnRequest& request, ChildFds& child) {
  for (const std::string& path : request.cgroups) {
    int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0 || !aboveStdio(fd)) return failed(request, "open", path);
    child.cgroups.push_back(fd);
  }
  return true;
}

// No limit may be above this program's own; a lower one that it has already stays.
void capLimits(std::vector<ResourceLimit>& limits) {
  for (ResourceLimit& limit : limits) {
    uint64_t own[2] = {0, 0};  // soft, hard
    if (syscall(SYS_prlimit64, 0, limit.resource, nullptr, own) < 0) continue;
    for (uint64_t& value : limit.values) value = std::min(value, own[1]);
  }
}

bool openTerminal(SpawnRequest& request) {
  int& master = request.stdoutFd;
  master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
  if (master < 0 || !aboveStdio(master)) return failed(request, "openpt", "/dev/ptmx");
  int unlock = 0;
  if (ioctl(master, TIOCSPTLCK, &unlock) < 0 || ioctl(master, TIOCGPTN, &request.pts) < 0)
    return failed(request, "ioctl", "/dev/ptmx");
  int& slave = request.slaveFd;
  slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (slave < 0) {
    std::string name = "/dev/pts/" + std::to_string(request.pts);
    slave = open(name.c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (slave < 0) return failed(request, "open", name);
  }
  if (!aboveStdio(slave)) return failed(request, "fcntl", "/dev/ptmx");
  struct winsize size = {};
  size.ws_row = request.rows;
  size.ws_col = request.cols;
  if (ioctl(slave, TIOCSWINSZ, &size) < 0) return failed(request, "ioctl", "/dev/ptmx");
  // So that erasing a character in the line discipline erases all of its bytes.
  struct termios mode;
  if (tcgetattr(slave, &mode) == 0) {
    mode.c_iflag |= IUTF8;
    tcsetattr(slave, TCSANOW, &mode);
  }
  return true;
}

// The paths to try, in order: the name itself when it has a slash, else the name below each entry of the child's PATH.
std::vector<std::string> candidatesFor(const SpawnRequest& request) {
  if (request.file.find('/') != std::string::npos) return {request.file};
  const char* path = kDefaultPath;
  for (const std::string& variable : request.envp)
    if (variable.compare(0, 5, "PATH=") == 0) path = variable.c_str() + 5;
  std::vector<std::string> found;
  for (const char* at = path;;) {
    const char* end = strchrnul(at, ':');
    // An empty entry is the directory the program starts in.
    found.push_back(end == at ? "./" + request.file : std::string(at, end) + "/" + request.file);
    if (!*end) return found;
    at = end + 1;
  }
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> found;
  found.reserve(strings.size() + 1);
  for (const std::string& text : strings) found.push_back(const_cast<char*>(text.c_str()));
  found.push_back(nullptr);
  return found;
}

// The calling thread's stack for its child; the thread waits while the child runs on it.
void* childStack() {
  static thread_local void* top = [] {
    size_t guard = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    char* base = static_cast<char*>(mmap(nullptr, kChildStackBytes + guard, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0));
    if (base == MAP_FAILED) return static_cast<void*>(nullptr);
    mprotect(base, guard, PROT_NONE);
    return static_cast<void*>(base + guard + kChildStackBytes);
  }();
  return top;
}

bool havePidfd() {
  static bool have = [] {
    int fd = static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0));
    if (fd >= 0) close(fd);
    return fd >= 0;
  }();
  return have && !oldCallsOnly;
}

// The child's end is above every number that the child gives to a descriptor.
bool openReport(SpawnRequest& request, ChildFds& child) {
  if (pipe2(child.report, O_CLOEXEC) < 0) return failed(request, "pipe2", request.file);
  int above = fcntl(child.report[1], F_DUPFD_CLOEXEC, 4 + static_cast<int>(request.passed.size()));
  if (above < 0) return failed(request, "fcntl", request.file);
  close(child.report[1]);
  child.report[1] = above;
  return true;
}

// Waits until the child has exec'ed or failed. True when it failed; then `report` says in what.
bool readReport(ChildFds& child, ChildReport& report) {
  closeFd(child.report[1]);
  ssize_t length;
  do length = read(child.report[0], &report, sizeof report);
  while (length < 0 && errno == EINTR);
  return length == static_cast<ssize_t>(sizeof report);
}

// Starts the child; the flags decide whether its memory is ours. Answers -1 with errno set.
pid_t cloneChild(ChildPlan& plan, bool pidfd, int more, int& exitFd) {
  void* stack = childStack();
  if (!stack) {
    errno = ENOMEM;
    return -1;
  }
  const ChildMemory memory = forkOnly ? ChildMemory::copied : childMemory.load();
  if (memory != ChildMemory::copied) {
    const int flags = CLONE_VM | CLONE_VFORK | SIGCHLD | more | (pidfd ? CLONE_PIDFD : 0);
    const pid_t pid = clone(execChild, stack, flags, &plan, &exitFd);
    if (pid >= 0 || errno != EINVAL || memory == ChildMemory::shared) return pid;
  }
  exitFd = -1;
  return clone(execChild, stack, SIGCHLD | more, &plan);
}

void reapNow(pid_t pid) {
  siginfo_t ignored;
  while (waitid(P_PID, static_cast<id_t>(pid), &ignored, WEXITED) < 0 && errno == EINTR) {}
}

void releaseAnswer(SpawnRequest& request) {
  closeFd(request.exitFd);
  closeFd(request.stdinFd);
  closeFd(request.stdoutFd);
  closeFd(request.stderrFd);
  closeFd(request.slaveFd);
}

bool start(SpawnRequest& request) {
  ChildFds child;
  if (request.terminal ? !openTerminal(request) : !openPipes(request, child)) return false;
  if (!copyPassed(request, child) || !openCgroups(request, child)) return false;
  // Every descriptor exists before the program does: what has started can no longer be lost to a full table.
  bool pidfd = havePidfd();
  int exitEnds[2] = {-1, -1};
  // And so does the thread that reports its end.
  if (!pidfd && !haveWaitThread()) {
    errno = EAGAIN;
    return failed(request, "pthread_create", request.file);
  }
  const bool reports = forkOnly || childMemory != ChildMemory::shared;
  if (reports && !openReport(request, child)) return false;
  if (!pidfd && pipe2(exitEnds, O_CLOEXEC) < 0) return failed(request, "pipe2", request.file);

  const bool isKept = !request.record.empty();
  if (isKept && !pidfd) {
    errno = ENOSYS;
    return failed(request, "pidfd_open", request.file);
  }
  if (isKept && !(request.kept = Kept::make(request.record, request.mostOutputBytes)))
    return failed(request, "memfd_create", request.file);

  std::vector<std::string> candidates = candidatesFor(request);
  std::vector<char*> paths = pointers(candidates);
  std::vector<char*> argv = pointers(request.argv);
  std::vector<char*> envp = pointers(request.envp);
  ChildPlan plan = {};
  plan.cwd = request.cwd.c_str();
  plan.directory = request.directory;
  plan.argv = argv.data();
  plan.envp = envp.data();
  plan.candidates = paths.data();
  plan.stdinFd = request.terminal ? request.slaveFd : child.in;
  plan.stdoutFd = request.terminal ? request.slaveFd : child.out;
  plan.stderrFd = request.terminal ? request.slaveFd : child.err;
  plan.terminal = request.terminal;
  plan.passed = child.passed.data();
  plan.passedCount = static_cast<int>(child.passed.size());
  std::vector<ResourceLimit>& limits = request.limits;
  capLimits(limits);
  plan.limits = limits.data();
  plan.limitCount = static_cast<int>(limits.size());
  plan.marking = request.marking.limits;
  plan.markingCount = request.mark ? request.marking.count : 0;
  plan.cgroups = child.cgroups.data();
  plan.cgroupCount = static_cast<int>(child.cgroups.size());
  // A kept process is the keeper's child, so that it gets the parent-death signal when the keeper dies, not the server.
  plan.parent = isKept ? getppid() : getpid();
  plan.oldCallsOnly = oldCallsOnly;
  plan.reportFd = child.report[1];

  if (isKept && !tellKeeper(KEEPER_STARTING)) return failed(request, "sendmsg", request.file);
  pid_t pid = cloneChild(plan, pidfd, isKept ? CLONE_PARENT : 0, request.exitFd);
  if (pid < 0) {
    failed(request, "clone", request.file);
    if (isKept) tellKeeper(KEEPER_DROPPED);
    closeFd(exitEnds[0]);
    closeFd(exitEnds[1]);
    return false;
  }
  ChildReport report = {plan.report.err, plan.report.syscall};
  if (plan.ran) {
    childMemory = ChildMemory::shared;
  } else {
    if (!forkOnly) childMemory = ChildMemory::copied;
    readReport(child, report);
  }
  if (report.err == 0 && pidfd && request.exitFd < 0) {
    // Not reaped yet, so the pid is its own.
    request.exitFd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
    if (request.exitFd < 0) {
      report = {errno, "pidfd_open"};
      kill(-pid, SIGKILL);
    }
  }
  if (report.err != 0) {
    // The keeper reaps its own children.
    if (isKept) tellKeeper(KEEPER_DROPPED);
    else reapNow(pid);
    closeFd(exitEnds[0]);
    closeFd(exitEnds[1]);
    request.err = report.err;
    request.syscall = report.syscall;
    request.path = strcmp(report.syscall, "chdir") == 0 ? request.cwd : request.file;
    return false;
  }
  request.pid = pid;
  if (plan.unmarked) request.mark = 0;
  // It is not reaped yet, so the pid is its own, dead or alive.
  ProcessEntry entry;
  if (readEntry(pid, entry)) request.startTime = entry.startTime;
  if (!pidfd) {
    request.exitFd = exitEnds[0];
    watchExit(pid, exitEnds[1]);
  }
  if (isKept) {
    if (!request.kept->started(request)) {
      failed(request, "sendmsg", request.file);
      kill(-pid, SIGKILL);
      tellKeeper(KEEPER_DROPPED);
      return false;
    }
    // Only the keeper has the write end, so that closing it is an end of file.
    closeFd(request.stdinFd);
  }
  return true;
}

// ---- the thread

struct Spawner {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
  std::deque<std::unique_ptr<SpawnRequest>> queue;
  size_t running = 0;
  size_t idle = 0;
};

size_t mostSpawners() {
  static const size_t most = std::min(kMostSpawners, static_cast<size_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN))));
  return most;
}

void* spawnerMain(void* argument) {
  Spawner* spawner = static_cast<Spawner*>(argument);
  pthread_setname_np(pthread_self(), "procwire-spawn");
  for (std::atomic<pid_t>& id : spawnerThreadIds) {
    pid_t none = 0;
    if (id.compare_exchange_strong(none, static_cast<pid_t>(syscall(SYS_gettid)))) break;
  }
  for (;;) {
    pthread_mutex_lock(&spawner->mutex);
    spawner->idle++;
    while (spawner->queue.empty()) pthread_cond_wait(&spawner->wake, &spawner->mutex);
    spawner->idle--;
    std::unique_ptr<SpawnRequest> request = std::move(spawner->queue.front());
    spawner->queue.pop_front();
    pthread_mutex_unlock(&spawner->mutex);
    if (!start(*request)) releaseAnswer(*request);
    const std::shared_ptr<Mailbox> mailbox = request->mailbox;
    mailbox->put(std::move(request));
  }
}

}  // namespace

int spawnLater(std::unique_ptr<SpawnRequest>& request) {
  // Never destroyed: the thread waits on it until the program is gone, also while exit() runs destructors.
  static Spawner* only = new Spawner;
  pthread_mutex_lock(&only->mutex);
  // One more thread when all are busy; a program that starts others one after another needs the first alone.
  if (only->running < mostSpawners() && only->queue.size() >= only->idle && startThread(spawnerMain, only))
    only->running++;
  bool running = only->running > 0;
  if (running) only->queue.push_back(std::move(request));
  pthread_cond_signal(&only->wake);
  pthread_mutex_unlock(&only->mutex);
  return running ? 0 : EAGAIN;
}

std::vector<pid_t> spawnerThreads() {
  std::vector<pid_t> found;
  for (const std::atomic<pid_t>& id : spawnerThreadIds)
    if (const pid_t thread = id) found.push_back(thread);
  return found;
}

void SpawnRequest::discard() {
  if (pid > 0 && !kept) {
    kill(-pid, SIGKILL);
    reapLater(pid);
  }
  releaseAnswer(*this);
}

void useOldCallsOnly(bool only) { oldCallsOnly = only; }

void useForkOnly(bool only) { forkOnly = only; }

}  // namespace procwire
