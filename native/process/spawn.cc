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
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "core/fd.h"
#include "core/syscall-numbers.h"
#include "core/uv-lite.h"
#include "process/child-fds.h"
#include "process/clone-into.h"
#include "process/exec-child.h"
#include "process/keeper-channel.h"
#include "process/process-tree.h"
#include "process/wait-thread.h"

#ifndef CLONE_PIDFD
#define CLONE_PIDFD 0x00001000
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

// No limit may be above this program's own; a lower one that it has already stays.
void capLimits(std::vector<ResourceLimit>& limits) {
  for (ResourceLimit& limit : limits) {
    uint64_t own[2] = {0, 0};  // soft, hard
    if (syscall(SYS_prlimit64, 0, limit.resource, nullptr, own) < 0) continue;
    for (uint64_t& value : limit.values) value = std::min(value, own[1]);
  }
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

// Waits until the child has exec'ed or failed. True when it failed; then `report` says in what.
bool readReport(ChildFds& child, ChildReport& report) {
  closeFd(child.report[1]);
  ssize_t length;
  do length = read(child.report[0], &report, sizeof report);
  while (length < 0 && errno == EINTR);
  return length == static_cast<ssize_t>(sizeof report);
}

void reapNow(pid_t pid) {
  siginfo_t ignored;
  while (waitid(P_PID, static_cast<id_t>(pid), &ignored, WEXITED) < 0 && errno == EINTR) {}
}

// Starts the child in its group. -1 where it has none, or cannot be started there.
pid_t cloneIntoGroup(ChildPlan& plan, bool isKept, SpawnRequest& request) {
  char* top = static_cast<char*>(childStack());
  const bool canShare = !forkOnly && !oldCallsOnly && childMemory != ChildMemory::copied;
  if (!top || !canShare) return -1;
  // What has a cgroup of its own for its limits goes there, and can be in no other of the same hierarchy.
  TakenGroup taken = takeTreeGroup(isKept ? request.mark : 0);
  request.groupErr = taken.err;
  if (taken.fd < 0) return -1;
  const CloneInto asked = {taken.fd, &request.exitFd, top - kChildStackBytes, kChildStackBytes, isKept};
  pid_t pid = cloneInto(asked, execChild, &plan);
  const int err = errno;
  close(taken.fd);
  if (pid >= 0 && !plan.ran && childMemory == ChildMemory::shared && !isKept) {
    // Killed at birth: somebody else had killed all in this group before (tree-group.h).
    closeFd(request.exitFd);
    reapNow(pid);
    pid = -1;
    request.groupErr = EOWNERDEAD;
  } else if (pid < 0) {
    request.groupErr = err;
  }
  if (pid < 0) {
    request.exitFd = -1;
    dropTreeGroup(taken.lease);
  } else {
    request.lease = taken.lease;
  }
  return pid;
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
  pid_t pid = request.wantsGroup && pidfd ? cloneIntoGroup(plan, isKept, request) : -1;
  if (pid < 0) pid = cloneChild(plan, pidfd, isKept ? CLONE_PARENT : 0, request.exitFd);
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
    if (!forkOnly && childMemory != ChildMemory::shared) childMemory = ChildMemory::copied;
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
    leaveTreeGroup(request.lease);
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
      leaveTreeGroup(request.lease);
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

bool hasWork(Spawner& spawner) {
  pthread_mutex_lock(&spawner.mutex);
  const bool has = !spawner.queue.empty();
  pthread_mutex_unlock(&spawner.mutex);
  return has;
}

void* spawnerMain(void* argument) {
  Spawner* spawner = static_cast<Spawner*>(argument);
  pthread_setname_np(pthread_self(), "procwire-spawn");
  for (std::atomic<pid_t>& id : spawnerThreadIds) {
    pid_t none = 0;
    if (id.compare_exchange_strong(none, static_cast<pid_t>(syscall(SYS_gettid)))) break;
  }
  for (;;) {
    while (!hasWork(*spawner) && makeTreeGroupAhead()) {}
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
