// watchdog [--shutdown-timeout-ms N] [--forward-state] [--] PROGRAM [ARGUMENT...]
//
// Runs a server, so that no process of the server can outlive it. The watchdog is the subreaper of everything below:
// when the server dies, even by SIGKILL, all remaining processes are reparented to the watchdog, which kills them. When
// the watchdog dies, the server gets SIGTERM and kills them itself.
//
// Two watchdogs are nested, so that no process remains even if the server and one watchdog are killed at once. The
// inner one is the parent of the server. The outer one is the process that was started, and treats the inner one like
// the inner one treats the server.
//
// The watchdog forwards TERM, and INT and QUIT unless they come from a terminal, which has signaled the server as well.
// HUP from a process is forwarded too and does not stop the server: it reloads its files or hands off (supervisor.c).
// HUP from a terminal sends TERM to the server. A server that shuts down may take its time as long as it reports
// progress with SIGUSR1 (src/server/lifecycle/watchdog-client.ts; it finds the watchdog by PROCWIRE_WATCHDOG). A server
// without progress for SHUTDOWN_TIMEOUT_MS is killed. The watchdog exits with the server's exit code, or by the same
// signal. It holds neither stdin nor stdout nor any file of the server open.
//
// The sentinel (sentinel.h) is a third process: when both watchdogs and the server are killed at once, it kills the
// remaining processes. The outer watchdog stops it in every other case.
//
// With --forward-state, the program reports the service state through a pipe (service-state.h), and the outer watchdog
// forwards it to the service manager. No process below gets NOTIFY_SOCKET.
//
// If a cgroup is available (server-cgroup.h), the server and all its processes are in it. If the sentinel was killed as
// well, the next server that starts in the same parent cgroup kills them.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../core/monotonic-clock.h"
#include "../core/process-stat.h"
#include "../core/syscall-numbers.h"
#include "close-fd.h"
#include "private-process.h"
#include "sd-notify.h"
#include "sentinel.h"
#include "server-cgroup.h"

// Time after which a killed process counts as hung in the kernel. The watchdog then gives up on it.
#define SWEEP_SECONDS 10
#define SWEEP_PAUSE_MS 2
// Time without progress after which a server that shuts down is killed. Servers report every second; the rest allows
// for load. `--shutdown-timeout-ms` is for tests.
#define SHUTDOWN_TIMEOUT_MS 10000
// Extra time of the outer watchdog, in which the inner one kills the server and all processes below.
#define OUTER_EXTRA_MS (1000 + SWEEP_SECONDS * 1000)

// Sends SIGTERM to the calling process when `parent` dies.
static void die_with_parent(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  // The parent may have died before PR_SET_PDEATHSIG took effect.
  if (getppid() != parent) _exit(0);
}

// `states` is the write end of the service state pipe; -1: none.
static void run_server(char** argv, const sigset_t* mask, pid_t watchdog, int states) {
  die_with_parent(watchdog);
  sigprocmask(SIG_SETMASK, mask, NULL);
  char number[16];
  snprintf(number, sizeof number, "%d", (int)watchdog);
  setenv("PROCWIRE_WATCHDOG", number, 1);
  unsetenv("NOTIFY_SOCKET");
  unsetenv(SERVICE_STATE_FD);
  if (states >= 0 && fcntl(states, F_SETFD, 0) == 0) {
    snprintf(number, sizeof number, "%d", states);
    setenv(SERVICE_STATE_FD, number, 1);
  }
  execvp(argv[0], argv);
  int err = errno;
  fprintf(stderr, "procwire: cannot run %s: %s\n", argv[0], strerror(err));
  _exit(err == ENOENT ? 127 : 126);
}

// Descriptors that a watchdog holds: its cgroup, and the pipe whose end of file notifies the sentinel that no watchdog
// is left. The outer watchdog of a service also holds the read end of the service state pipe; -1 elsewhere.
struct retained_fds {
  struct server_cgroup cgroup;
  int alive;
  int states;
};

// Closes everything from 3 on except the retained descriptors, which are moved to the lowest numbers.
static void close_other_fds(struct retained_fds* retained) {
  int null = open("/dev/null", O_RDWR);
  if (null >= 0) {
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
  }
  int* const fds[] = {&retained->cgroup.parent, &retained->cgroup.fd, &retained->alive, &retained->states};
  const int count = sizeof fds / sizeof *fds;
  const int first = 3 + count;
  for (int at = 0; at < count; at++)
    if (*fds[at] >= 0) *fds[at] = fcntl(*fds[at], F_DUPFD_CLOEXEC, first);
  for (int at = 0; at < count; at++) {
    if (*fds[at] >= 0) *fds[at] = dup3(*fds[at], 3 + at, O_CLOEXEC);
    else close(3 + at);
  }
  if (syscall(SYS_close_range, (unsigned)first, ~0u, 0u) < 0) {
    for (int fd = first; fd < 1024; fd++) close(fd);
  }
}

// Reaps every dead child. Returns true with the exit status if the server was among them.
static int reap(pid_t server, int* status) {
  int found = 0;
  for (;;) {
    int ended;
    pid_t pid = waitpid(-1, &ended, WNOHANG);
    if (pid <= 0) return found;
    if (pid == server) {
      *status = ended;
      found = 1;
    }
  }
}

// Kills every child and returns their number. Their children are reparented to the watchdog.
static int kill_children(void) {
  DIR* processes = opendir("/proc");
  if (!processes) return 0;
  pid_t self = getpid();
  int killed = 0;
  const struct dirent* entry;
  while ((entry = readdir(processes))) {
    pid_t pid = atoi(entry->d_name);
    struct process_stat process;
    if (pid <= 0 || read_process_stat(pid, &process) < 0 || process.parent != self) continue;
    // The child is not reaped yet, so its pid is valid.
    kill(pid, SIGKILL);
    killed++;
  }
  closedir(processes);
  return killed;
}

static void sweep(void) {
  int rounds = SWEEP_SECONDS * 1000 / SWEEP_PAUSE_MS;
  for (int round = 0; round < rounds; round++) {
    int ignored;
    reap(-1, &ignored);
    // Only ECHILD proves that no child is left, because a child may fork between two scans of /proc.
    if (waitpid(-1, &ignored, WNOHANG) < 0 && errno == ECHILD) return;
    kill_children();
    pause_ms(SWEEP_PAUSE_MS);
  }
}

// Returns the next signal, or 0 at the deadline. A deadline of 0 means none.
static int next_signal(const sigset_t* taken, siginfo_t* info, long long deadline_ms) {
  for (;;) {
    int number;
    if (deadline_ms == 0) {
      number = sigwaitinfo(taken, info);
    } else {
      long long remaining = deadline_ms - now_ms();
      if (remaining < 0) remaining = 0;
      struct timespec timeout = {remaining / 1000, remaining % 1000 * 1000000};
      number = sigtimedwait(taken, info, &timeout);
      if (number < 0 && errno == EAGAIN) return 0;
    }
    if (number > 0) return number;
  }
}

static int exit_like(int status) {
  if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
  int number = WTERMSIG(status);
  // The server has already dumped its core, if enabled.
  struct rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  signal(number, SIG_DFL);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, number);
  raise(number);
  sigprocmask(SIG_UNBLOCK, &one, NULL);
  return 128 + number;
}

static void adopt_orphans(void) {
  if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
    fprintf(stderr, "procwire: cannot adopt orphans: %s\n", strerror(errno));
}

// The watched process: the server, or the inner watchdog.
struct below {
  pid_t pid;
  const sigset_t* taken;
  long shutdown_timeout_ms;
  // Process that progress reports of the server are forwarded to; 0: none.
  pid_t above;
  // 0 if there is none, and for the inner watchdog.
  pid_t sentinel;
  struct retained_fds* retained;
};

// Stops the sentinel by its pid, so that a sweep without other children need not scan /proc.
static void stop_sentinel(pid_t sentinel) {
  siginfo_t info;
  // The pid of a killed and reaped sentinel may be reused.
  if (sentinel <= 0 || waitid(P_PID, (id_t)sentinel, &info, WEXITED | WNOHANG | WNOWAIT) < 0) return;
  kill(sentinel, SIGKILL);
  while (waitpid(sentinel, NULL, 0) < 0 && errno == EINTR) {}
}

// Opens a pipe whose reader gets SIGIO when a state arrives, so that one wait covers both. Without a service manager
// both ends are -1 and no state is forwarded.
static void open_states(int ends[2]) {
  ends[0] = ends[1] = -1;
  if (!has_service_manager()) return;
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0 || fcntl(ends[0], F_SETOWN, getpid()) < 0 ||
      fcntl(ends[0], F_SETFL, O_NONBLOCK | O_ASYNC) < 0)
    fprintf(stderr, "procwire: cannot notify the service manager: %s\n", strerror(errno));
}

static void forward_states(const struct retained_fds* retained) {
  char state;
  for (;;) {
    ssize_t length = retained->states < 0 ? 0 : read(retained->states, &state, 1);
    if (length < 0 && errno == EINTR) continue;
    if (length <= 0) return;
    notify_service_manager((enum service_state)state);
  }
}

// Runs until the process has exited and none of its processes is left. Returns the exit status.
static int watch(const struct below* below) {
  // Time at which the server counts as stuck; 0 while it is not shutting down.
  long long shutdown_deadline_ms = 0;
  for (;;) {
    siginfo_t info;
    int status;
    int number = next_signal(below->taken, &info, shutdown_deadline_ms);
    switch (number) {
      case 0:
        fprintf(stderr, "procwire: server reported no shutdown progress for %ld ms; killing it\n",
                below->shutdown_timeout_ms);
        kill(below->pid, SIGKILL);
        shutdown_deadline_ms = 0;
        break;
      case SIGCHLD:
        if (!reap(below->pid, &status)) break;
        forward_states(below->retained);
        kill_cgroup(&below->retained->cgroup);
        stop_sentinel(below->sentinel);
        sweep();
        // Only the outer watchdog, because the inner one shares the lock.
        if (!below->above) remove_cgroup(&below->retained->cgroup);
        return exit_like(status);
      case SIGTERM:
      case SIGHUP:
      case SIGINT:
      case SIGQUIT:
        if (number == SIGHUP && info.si_code <= 0) {
          kill(below->pid, SIGHUP);
          break;
        }
        if (number == SIGHUP) number = SIGTERM;
        if (number == SIGTERM || info.si_code <= 0) kill(below->pid, number);
        if (shutdown_deadline_ms == 0) shutdown_deadline_ms = now_ms() + below->shutdown_timeout_ms;
        break;
      case SIGUSR1:
        // Also the first report of a shutdown that the server started itself.
        if (info.si_pid != below->pid) break;
        shutdown_deadline_ms = now_ms() + below->shutdown_timeout_ms;
        if (below->above && getppid() == below->above) kill(below->above, SIGUSR1);
        break;
      case SIGIO: forward_states(below->retained); break;
      default: break;
    }
  }
}

// The watchdog runs without a sentinel if no process can be created.
static pid_t start_sentinel(const struct retained_fds* retained, int channel) {
  if (channel < 0) return 0;
  pid_t pid = fork();
  if (pid != 0) return pid;
  struct retained_fds own = {.cgroup = retained->cgroup, .alive = channel, .states = -1};
  close_other_fds(&own);
  _exit(run_sentinel(&own.cgroup, own.alive));
}

int main(int argc, char** argv) {
  (void)argc;
  char** command = argv + 1;
  long shutdown_timeout_ms = SHUTDOWN_TIMEOUT_MS;
  if (command[0] && strcmp(command[0], "--shutdown-timeout-ms") == 0 && command[1]) {
    shutdown_timeout_ms = atol(command[1]);
    command += 2;
  }
  const int forwards_state = *command && strcmp(*command, "--forward-state") == 0;
  if (forwards_state) command++;
  if (*command && strcmp(*command, "--") == 0) command++;
  if (!*command) {
    fprintf(stderr, "usage: watchdog [--shutdown-timeout-ms N] [--forward-state] [--] PROGRAM [ARGUMENT...]\n");
    return 2;
  }
  make_process_private();
  adopt_orphans();

  // Signals are received with sigwaitinfo: no handler, no race with fork. Signals that cannot be blocked, or mean that
  // the watchdog itself is broken, keep their default action.
  sigset_t taken, before;
  sigemptyset(&taken);
  const int numbers[] = {SIGCHLD, SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGUSR1, SIGIO};
  for (size_t at = 0; at < sizeof numbers / sizeof *numbers; at++) sigaddset(&taken, numbers[at]);
  // A parent that ignores SIGCHLD would make children vanish unreaped.
  signal(SIGCHLD, SIG_DFL);
  sigprocmask(SIG_BLOCK, &taken, &before);

  struct retained_fds retained;
  int pipe_ends[2] = {-1, -1};
  create_server_cgroup(&retained.cgroup);
  if (pipe2(pipe_ends, O_CLOEXEC) < 0) pipe_ends[0] = pipe_ends[1] = -1;
  retained.alive = pipe_ends[1];
  int state_ends[2] = {-1, -1};
  if (forwards_state) open_states(state_ends);
  retained.states = state_ends[0];

  struct below below = {
      .taken = &taken, .shutdown_timeout_ms = shutdown_timeout_ms + OUTER_EXTRA_MS, .above = 0, .retained = &retained};
  pid_t upper = getpid();
  below.pid = fork();
  if (below.pid == 0) {
    die_with_parent(upper);
    // The subreaper attribute is not inherited.
    adopt_orphans();
    retained.states = -1;
    below.shutdown_timeout_ms = shutdown_timeout_ms;
    below.above = upper;
    pid_t lower = getpid();
    below.pid = fork_into_cgroup(&retained.cgroup);
    if (below.pid == 0) run_server(command, &before, lower, state_ends[1]);
    // Without the pid the sentinel waits only for the watchdogs.
    if (below.pid > 0 && write(retained.alive, &below.pid, sizeof below.pid) < 0) errno = 0;
  } else if (below.pid > 0) {
    below.sentinel = start_sentinel(&retained, pipe_ends[0]);
  }
  if (below.pid < 0) {
    fprintf(stderr, "procwire: cannot start %s: %s\n", *command, strerror(errno));
    if (getpid() == upper) remove_cgroup(&retained.cgroup);
    return 126;
  }
  close_other_fds(&retained);
  return watch(&below);
}
