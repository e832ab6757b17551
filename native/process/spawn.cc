// The child borrows the memory of its parent until exec (vfork), so the cost of a start does not depend on the size
// of the server, and the child reports a failure by writing into the request. A few permanent threads start processes
// for the whole server: the kernel ties the parent-death signal to the forking thread, and the event loop must not
// block.
//
// An emulator (qemu-user) either rejects these clone flags with EINVAL or performs a plain fork. The child's memory is
// a copy then, so it reports through a pipe that exec closes. The first start detects which case applies.
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

#include "core/detached-thread.h"
#include "core/fd.h"
#include "core/syscall-numbers.h"
#include "core/uv-declarations.h"
#include "process/child-exec.h"
#include "process/child-stdio.h"
#include "process/clone-into-cgroup.h"
#include "process/process-table.h"
#include "process/supervisor-channel.h"
#include "process/wait-thread.h"

#ifndef CLONE_PIDFD
#define CLONE_PIDFD 0x00001000
#endif

namespace procwire {
namespace {

// Stack of the child before exec. The guard page below turns an overflow into a crash instead of corruption.
constexpr size_t kChildStackBytes = 256 * 1024;
// Search path for environments without PATH, the default of the C library.
constexpr char kDefaultPath[] = "/bin:/usr/bin";

// Maximum spawner threads. A start is kernel work on one processor, so more threads than processors gain
// nothing, and neither do more than a few.
constexpr size_t kMaxSpawners = 4;

constexpr uint64_t kAllSignals = ~uint64_t{0};

// Whether a child shares the memory of its parent before exec.
enum class ChildMemory { unknown, shared, copied };

std::atomic<ChildMemory> childMemory{ChildMemory::unknown};
std::atomic<bool> isForkForced{false};
std::atomic<bool> useLegacySyscalls{false};
std::atomic<pid_t> spawnerThreadIds[kMaxSpawners];

// Lowers limits to the hard limits of this process, which a child cannot exceed.
void capLimits(std::vector<ResourceLimit>& limits) {
  for (ResourceLimit& limit : limits) {
    uint64_t own[2] = {0, 0};  // soft, hard
    if (syscall(SYS_prlimit64, 0, limit.resource, nullptr, own) < 0) continue;
    for (uint64_t& value : limit.values) value = std::min(value, own[1]);
  }
}

// Returns the paths to try, in order: the file itself if it contains a slash, else the file below each entry of the
// child's PATH.
std::vector<std::string> candidatesFor(const SpawnRequest& request) {
  if (request.file.find('/') != std::string::npos) return {request.file};
  const char* path = kDefaultPath;
  for (const std::string& variable : request.envp)
    if (variable.compare(0, 5, "PATH=") == 0) path = variable.c_str() + 5;
  std::vector<std::string> found;
  for (const char* at = path;;) {
    const char* end = strchrnul(at, ':');
    // An empty entry means the working directory of the process.
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

// Returns the stack for children of the calling thread, which waits while the child runs on it.
void* childStack() {
  static thread_local void* top = [] {
    size_t guardBytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    char* base = static_cast<char*>(mmap(nullptr, kChildStackBytes + guardBytes, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0));
    if (base == MAP_FAILED) return static_cast<void*>(nullptr);
    mprotect(base, guardBytes, PROT_NONE);
    return static_cast<void*>(base + guardBytes + kChildStackBytes);
  }();
  return top;
}

bool hasPidfd() {
  static const bool have(UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0))));
  return have && !useLegacySyscalls;
}

// Waits until the child has called exec or failed. Returns true with `failure` set if it failed.
bool readFailure(ChildFds& child, ExecFailure& failure) {
  child.failurePipe[1].reset();
  ssize_t length;
  do length = read(child.failurePipe[0].get(), &failure, sizeof failure);
  while (length < 0 && errno == EINTR);
  return length == static_cast<ssize_t>(sizeof failure);
}

void reapBlocking(pid_t pid) {
  siginfo_t ignored;
  while (waitid(P_PID, static_cast<id_t>(pid), &ignored, WEXITED) < 0 && errno == EINTR) {}
}

// Starts the child in a process cgroup. Returns -1 if there is none, or the child cannot be started there.
pid_t cloneIntoProcessCgroup(ExecPlan& plan, bool isPersistent, SpawnRequest& request) {
  char* top = static_cast<char*>(childStack());
  const bool canShare = !isForkForced && !useLegacySyscalls && childMemory != ChildMemory::copied;
  if (!top || !canShare) return -1;
  const AcquiredCgroup acquired = acquireCgroup(isPersistent ? request.treeTag : 0);
  request.cgroupErr = acquired.err;
  if (!acquired.cgroup) return -1;
  int pidfd = -1;
  plan.resetSignals = ignoredSignals();
  const CloneIntoCgroupArgs args = {acquired.cgroup->directory.get(), &pidfd, top - kChildStackBytes, kChildStackBytes,
                                    isPersistent};
  pid_t pid = cloneIntoCgroup(args, runChild, &plan);
  const int err = errno;
  UniqueFd exitFd(pidfd);
  if (pid >= 0 && !plan.ran && childMemory == ChildMemory::shared && !isPersistent) {
    // Killed at birth, because another process had killed this cgroup before (process-cgroup.h).
    reapBlocking(pid);
    pid = -1;
    request.cgroupErr = EOWNERDEAD;
  } else if (pid < 0) {
    request.cgroupErr = err;
  }
  if (pid < 0) {
    plan.resetSignals = kAllSignals;
    discardCgroup(acquired.lease);
  } else {
    request.exitFd = std::move(exitFd);
    request.lease = acquired.lease;
  }
  return pid;
}

// Starts the child. The flags decide whether it shares memory. Returns -1 with errno set.
pid_t cloneChild(ExecPlan& plan, bool pidfd, int extraFlags, UniqueFd& exitFd) {
  void* stack = childStack();
  if (!stack) {
    errno = ENOMEM;
    return -1;
  }
  const ChildMemory memory = isForkForced ? ChildMemory::copied : childMemory.load();
  if (memory != ChildMemory::copied) {
    const int flags = CLONE_VM | CLONE_VFORK | SIGCHLD | extraFlags | (pidfd ? CLONE_PIDFD : 0);
    int fd = -1;
    const pid_t pid = clone(runChild, stack, flags, &plan, &fd);
    if (pid >= 0) exitFd.reset(fd);
    if (pid >= 0 || errno != EINVAL || memory == ChildMemory::shared) return pid;
  }
  return clone(runChild, stack, SIGCHLD | extraFlags, &plan);
}

std::vector<int> toRaw(const std::vector<UniqueFd>& fds) {
  std::vector<int> raw;
  for (const UniqueFd& fd : fds) raw.push_back(fd.get());
  return raw;
}

bool start(SpawnRequest& request) {
  ChildFds child;
  if (request.terminal ? !openTerminal(request) : !openPipes(request, child)) return false;
  if (!copyInheritedFds(request, child) || !openCgroups(request, child)) return false;
  // Opens every descriptor before the process starts, so that a started process cannot be lost to a full descriptor
  // table.
  bool pidfd = hasPidfd();
  // Creates the thread that reports the exit for the same reason.
  if (!pidfd && !ensureWaitThread()) {
    errno = EAGAIN;
    return failed(request, "pthread_create", request.file);
  }
  const bool needsFailurePipe = isForkForced || childMemory != ChildMemory::shared;
  if (needsFailurePipe && !openFailurePipe(request, child)) return false;
  UniqueFd exitReadEnd, exitWriteEnd;
  if (!pidfd && !openPipe(exitReadEnd, exitWriteEnd)) return failed(request, "pipe2", request.file);

  const bool isPersistent = !request.persistentRecord.empty();
  if (isPersistent && !pidfd) {
    errno = ENOSYS;
    return failed(request, "pidfd_open", request.file);
  }
  if (isPersistent && !(request.stateSegment = StateSegment::create(request.persistentRecord, request.maxOutputBytes)))
    return failed(request, "memfd_create", request.file);

  std::vector<std::string> candidates = candidatesFor(request);
  std::vector<char*> paths = pointers(candidates);
  std::vector<char*> argv = pointers(request.argv);
  std::vector<char*> envp = pointers(request.envp);
  ExecPlan plan = {};
  plan.cwd = request.cwd.c_str();
  plan.directory = request.directory;
  plan.argv = argv.data();
  plan.envp = envp.data();
  plan.candidates = paths.data();
  plan.stdinFd = request.terminal ? request.ptySlaveFd.get() : child.in.get();
  plan.stdoutFd = request.terminal ? request.ptySlaveFd.get() : child.out.get();
  plan.stderrFd = request.terminal ? request.ptySlaveFd.get() : child.err.get();
  plan.terminal = request.terminal;
  const std::vector<int> inheritedFds = toRaw(child.inheritedFds);
  plan.inheritedFds = inheritedFds.data();
  plan.inheritedFdCount = static_cast<int>(inheritedFds.size());
  std::vector<ResourceLimit>& limits = request.limits;
  capLimits(limits);
  plan.limits = limits.data();
  plan.limitCount = static_cast<int>(limits.size());
  plan.tagLimits = request.tagLimits.limits;
  plan.tagLimitCount = request.treeTag ? request.tagLimits.count : 0;
  const std::vector<int> cgroups = toRaw(child.cgroups);
  plan.cgroups = cgroups.data();
  plan.cgroupCount = static_cast<int>(cgroups.size());
  // A persistent process is a child of the supervisor, so that the supervisor's death kills it, not the server's.
  plan.parent = isPersistent ? getppid() : getpid();
  plan.landlock = request.landlock;
  plan.useLegacySyscalls = useLegacySyscalls;
  plan.resetSignals = kAllSignals;
  plan.failureFd = child.failurePipe[1].get();

  if (isPersistent && !notifySupervisor(SUPERVISOR_STARTING)) return failed(request, "sendmsg", request.file);
  pid_t pid = request.wantsCgroup && pidfd ? cloneIntoProcessCgroup(plan, isPersistent, request) : -1;
  if (pid < 0) pid = cloneChild(plan, pidfd, isPersistent ? CLONE_PARENT : 0, request.exitFd);
  if (pid < 0) {
    failed(request, "clone", request.file);
    if (isPersistent) notifySupervisor(SUPERVISOR_START_FAILED);
    return false;
  }
  ExecFailure failure = {plan.failure.err, plan.failure.syscall};
  if (plan.ran) {
    childMemory = ChildMemory::shared;
  } else {
    if (!isForkForced && childMemory != ChildMemory::shared) childMemory = ChildMemory::copied;
    readFailure(child, failure);
  }
  if (failure.err == 0 && pidfd && !request.exitFd) {
    // Not reaped yet, so the pid is not reused.
    request.exitFd.reset(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    if (!request.exitFd) {
      failure = {errno, "pidfd_open"};
      kill(-pid, SIGKILL);
    }
  }
  if (failure.err != 0) {
    // The supervisor reaps its own children.
    if (isPersistent) notifySupervisor(SUPERVISOR_START_FAILED);
    else reapBlocking(pid);
    releaseCgroup(request.lease);
    request.err = failure.err;
    request.syscall = failure.syscall;
    request.path = strcmp(failure.syscall, "chdir") == 0 ? request.cwd : request.file;
    return false;
  }
  request.pid = pid;
  if (plan.isUntagged) request.treeTag = 0;
  // Not reaped yet, so the pid is not reused, whether the process is dead or alive.
  ProcessEntry entry;
  if (isPersistent && readEntry(pid, entry)) request.startTime = entry.startTime;
  if (!pidfd) {
    request.exitFd = std::move(exitReadEnd);
    watchExit(pid, std::move(exitWriteEnd));
  }
  if (isPersistent) {
    if (!request.stateSegment->started(request)) {
      failed(request, "sendmsg", request.file);
      kill(-pid, SIGKILL);
      releaseCgroup(request.lease);
      notifySupervisor(SUPERVISOR_START_FAILED);
      return false;
    }
    // Only the supervisor has the write end, so that closing it means end of file.
    request.stdinFd.reset();
  }
  return true;
}

// ---- the spawner threads

struct Spawner {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
  std::deque<std::unique_ptr<SpawnRequest>> queue;
  size_t running = 0;
  size_t idle = 0;
};

size_t maxSpawners() {
  static const size_t max = std::min(kMaxSpawners, static_cast<size_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN))));
  return max;
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
    while (!hasWork(*spawner) && preallocateCgroup()) {}
    pthread_mutex_lock(&spawner->mutex);
    spawner->idle++;
    while (spawner->queue.empty()) pthread_cond_wait(&spawner->wake, &spawner->mutex);
    spawner->idle--;
    std::unique_ptr<SpawnRequest> request = std::move(spawner->queue.front());
    spawner->queue.pop_front();
    pthread_mutex_unlock(&spawner->mutex);
    // The loop must not see descriptors of a failed start.
    if (!start(*request)) request->closeFds();
    const std::shared_ptr<Mailbox> mailbox = request->mailbox;
    mailbox->post(std::move(request));
  }
}

}  // namespace

int enqueueSpawn(std::unique_ptr<SpawnRequest>& request) {
  // Never destroyed: the thread waits on it until the process exits, even while exit() runs destructors.
  static Spawner* spawner = new Spawner;
  pthread_mutex_lock(&spawner->mutex);
  // Adds a thread when all are busy. Sequential starts need only the first one.
  if (spawner->running < maxSpawners() && spawner->queue.size() >= spawner->idle &&
      startDetachedThread(spawnerMain, spawner) == 0)
    spawner->running++;
  bool running = spawner->running > 0;
  if (running) spawner->queue.push_back(std::move(request));
  pthread_mutex_unlock(&spawner->mutex);
  // After the unlock, so that the thread does not wake up only to wait for the lock.
  pthread_cond_signal(&spawner->wake);
  return running ? 0 : EAGAIN;
}

std::vector<pid_t> spawnerThreads() {
  std::vector<pid_t> found;
  for (const std::atomic<pid_t>& id : spawnerThreadIds)
    if (const pid_t thread = id) found.push_back(thread);
  return found;
}

void SpawnRequest::closeFds() {
  for (UniqueFd* fd : {&exitFd, &stdinFd, &stdoutFd, &stderrFd, &ptySlaveFd}) fd->reset();
}

void SpawnRequest::discard() {
  if (pid <= 0 || stateSegment) return;
  kill(-pid, SIGKILL);
  enqueueReap(pid);
  releaseCgroup(lease);
}

void forceLegacySyscalls(bool enabled) { useLegacySyscalls = enabled; }

void forceFork(bool enabled) { isForkForced = enabled; }

}  // namespace procwire
