// watchdog [--patience-ms N] [--] PROGRAM [ARGUMENT...]
//
// Runs a server and stands above it, so that nothing the server ever started can outlive it. It is the subreaper of
// everything below: when the server dies, even by SIGKILL, whatever is left comes here, and is killed until nothing is
// left. When the watchdog dies, the server gets SIGTERM and does the same from its side.
//
// There are two of them, one above the other, so that nothing is left even when the server and one of them are killed
// at once. The lower one is the server's parent; the upper one is the program that was started, and treats the lower
// one as that treats the server.
//
// It forwards TERM, and INT and QUIT unless they come from a terminal, which has signalled the server itself. HUP from
// another program is forwarded too and does not ask to end: the server may reload its files, or hand over (keeper.c). A
// terminal that hangs up ends everything: the server gets TERM. A server that is ending may take its time, as long as
// it reports progress with SIGUSR1 (src/server/watchdog.ts; it finds this program by PROCWIRE_WATCHDOG). One that
// reports nothing for PATIENCE_MS is stuck and is killed. The watchdog ends as the server ended: with its exit code, or
// by the same signal. It keeps neither stdin nor stdout nor any file of the server open.
//
// A third process, the guard, stands beside the two: when they and the server were all killed at once, it kills all
// that carries a mark of this server (mark-numbers.h). It is no parent of anybody, has a session of its own, and is
// ended by the upper watchdog in every other case.
//
// Where the kernel gives a cgroup (server-group.h), the server and all it starts are in one. Then the guard kills all
// that is left in it, marked or not; and when it was killed as well, the next server that is started beside this one
// does.
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

#include "../core/syscall-numbers.h"
#include "../process/mark-numbers.h"
#include "clock.h"
#include "server-group.h"

// A process that has not died this long after SIGKILL hangs in the kernel, and nothing more can be done about it.
#define SWEEP_SECONDS 10
#define SWEEP_PAUSE_MS 2
// A process that forks all the time may be between two pids at one look, but hardly at this many in a row.
#define QUIET_LOOKS 5
// A server that was told to end and has reported no progress for this long is stuck. Servers report every second; the
// rest is for a machine under load. `--patience-ms` is for tests.
#define PATIENCE_MS 10000
// The upper one gives the lower one time to kill a stuck server and all that is below it.
#define LONGER_MS (1000 + SWEEP_SECONDS * 1000)
// Between two searches of a guard for deserted groups.
#define FIRST_LOOK_AGAIN_MS 500
#define LAST_LOOK_AGAIN_MS 60000

// The calling process gets SIGTERM when `parent` dies.
static void end_with(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  // It may have died before the line above.
  if (getppid() != parent) _exit(0);
}

static void run_server(char** argv, const sigset_t* mask, pid_t watchdog) {
  end_with(watchdog);
  sigprocmask(SIG_SETMASK, mask, NULL);
  char number[16];
  snprintf(number, sizeof number, "%d", (int)watchdog);
  setenv("PROCWIRE_WATCHDOG", number, 1);
  execvp(argv[0], argv);
  int err = errno;
  fprintf(stderr, "procwire: cannot run %s: %s\n", argv[0], strerror(err));
  _exit(err == ENOENT ? 127 : 126);
}

// What a watchdog keeps open: its group, and the end of a pipe that tells the guard when no watchdog is left.
struct kept {
  struct server_group group;
  int alive;
};

// Closes everything from 3 on but what is kept, which gets the first numbers.
static void let_go_of_files(struct kept* kept) {
  int null = open("/dev/null", O_RDWR);
  if (null >= 0) {
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
  }
  int* const fds[] = {&kept->group.parent, &kept->group.fd, &kept->alive};
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

// Reaps every dead child; true, with its status, when the server was among them.
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

struct process {
  char state;
  pid_t parent;
  unsigned long long start_time;
};

// -1 when it is gone.
static int look_at(pid_t pid, struct process* process) {
  char path[32];
  char text[1024];
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  ssize_t length = read(fd, text, sizeof text - 1);
  close(fd);
  if (length <= 0) return -1;
  text[length] = 0;
  // The name in parentheses may hold anything.
  const char* name_end = strrchr(text, ')');
  const char* const fields = " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu";
  if (!name_end) return -1;
  return sscanf(name_end + 1, fields, &process->state, &process->parent, &process->start_time) == 3 ? 0 : -1;
}

// Kills every child; their children come to us when they are gone. Returns how many there were.
static int kill_children(void) {
  DIR* processes = opendir("/proc");
  if (!processes) return 0;
  pid_t self = getpid();
  int killed = 0;
  const struct dirent* entry;
  while ((entry = readdir(processes))) {
    pid_t pid = atoi(entry->d_name);
    struct process process;
    if (pid <= 0 || look_at(pid, &process) < 0 || process.parent != self) continue;
    // It is our child and not reaped, so the pid is still its own.
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
    // ECHILD is the only proof: a child may be born between two looks at /proc.
    if (waitpid(-1, &ignored, WNOHANG) < 0 && errno == ECHILD) return;
    kill_children();
    pause_ms(SWEEP_PAUSE_MS);
  }
}

static int has_mark_of(pid_t pid, uint64_t first) {
  const int carriers[] = {RLIMIT_LOCKS, RLIMIT_RSS};
  for (size_t at = 0; at < sizeof carriers / sizeof *carriers; at++) {
    uint64_t values[2];
    if (syscall(SYS_prlimit64, pid, carriers[at], NULL, values) == 0 && is_mark_of(values[0], first)) return 1;
  }
  return 0;
}

// Kills it if it lives and has a mark of the program that `first` belongs to. True when it did.
static int kill_if_marked(pid_t pid, uint64_t first) {
  struct process process;
  // The pidfd is opened before the checks, so that the process that was checked is the one that is killed.
  int fd = (int)syscall(SYS_pidfd_open, pid, 0);
  int killed = look_at(pid, &process) == 0 && process.state != 'Z' && has_mark_of(pid, first);
  if (killed && fd >= 0) syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
  else if (killed) kill(pid, SIGKILL);
  if (fd >= 0) close(fd);
  return killed;
}

static int kill_marked(uint64_t first) {
  DIR* processes = opendir("/proc");
  if (!processes) return 0;
  int killed = 0;
  const struct dirent* entry;
  while ((entry = readdir(processes))) {
    pid_t pid = atoi(entry->d_name);
    if (pid > 0) killed += kill_if_marked(pid, first);
  }
  closedir(processes);
  return killed;
}

// Kills every process of this machine that carries a mark of the program that `first` belongs to.
static void end_marked(uint64_t first) {
  int quiet = 0;
  for (int round = 0; quiet < QUIET_LOOKS && round < SWEEP_SECONDS * 1000 / SWEEP_PAUSE_MS; round++) {
    quiet = kill_marked(first) > 0 ? 0 : quiet + 1;
    pause_ms(SWEEP_PAUSE_MS);
  }
}

// The next signal; 0 when the deadline has come first. A deadline of 0 is none.
static int next_signal(const sigset_t* taken, siginfo_t* info, long long deadline_ms) {
  for (;;) {
    int number;
    if (deadline_ms == 0) {
      number = sigwaitinfo(taken, info);
    } else {
      long long left = deadline_ms - now_ms();
      if (left < 0) left = 0;
      struct timespec timeout = {left / 1000, left % 1000 * 1000000};
      number = sigtimedwait(taken, info, &timeout);
      if (number < 0 && errno == EAGAIN) return 0;
    }
    if (number > 0) return number;
  }
}

static int end_as(int status) {
  if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
  int number = WTERMSIG(status);
  // The server has dumped its core already, if it was to.
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

// Who is watched: the server, or the lower watchdog.
struct below {
  pid_t pid;
  const sigset_t* taken;
  long patience_ms;
  // Where the progress reports of an ending server are passed on to; 0: nowhere.
  pid_t above;
  // 0 where there is none, and for the lower watchdog.
  pid_t guard;
  struct kept* kept;
};

// By its pid, so that a sweep with nothing else to end need not read /proc.
static void end_guard(pid_t guard) {
  siginfo_t info;
  // The pid of one that was killed and reaped before may have been reused.
  if (guard <= 0 || waitid(P_PID, (id_t)guard, &info, WEXITED | WNOHANG | WNOWAIT) < 0) return;
  kill(guard, SIGKILL);
  while (waitpid(guard, NULL, 0) < 0 && errno == EINTR) {}
}

// Runs until it has ended and nothing is left of what it started. Returns the status to end with.
static int watch(const struct below* below) {
  // When a server that was told to end counts as stuck; 0 while it need not end.
  long long stuck_at_ms = 0;
  for (;;) {
    siginfo_t info;
    int status;
    int number = next_signal(below->taken, &info, stuck_at_ms);
    switch (number) {
      case 0:
        fprintf(stderr, "procwire: the server was to end and has said nothing for %ld ms; it is killed\n",
                below->patience_ms);
        kill(below->pid, SIGKILL);
        stuck_at_ms = 0;
        break;
      case SIGCHLD:
        if (!reap(below->pid, &status)) break;
        kill_group(&below->kept->group);
        end_guard(below->guard);
        sweep();
        // The upper one alone: the other shares the lock on it.
        if (!below->above) remove_group(&below->kept->group);
        return end_as(status);
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
        if (stuck_at_ms == 0) stuck_at_ms = now_ms() + below->patience_ms;
        break;
      case SIGUSR1:
        // Also the first report of an end that was not asked for here.
        if (info.si_pid != below->pid) break;
        stuck_at_ms = now_ms() + below->patience_ms;
        if (below->above && getppid() == below->above) kill(below->above, SIGUSR1);
        break;
      default: break;
    }
  }
}

// Beside the watchdogs: waits until both of them and the server are gone, and ends what is left of it. The lower
// watchdog writes the server's pid to `told`, and the pipe ends when neither watchdog has it open any more.
static int guard(const struct server_group* group, int told) {
  pid_t server = 0;
  char more;
  setsid();
  if (chdir("/") < 0) return 1;
  dup2(STDOUT_FILENO, STDERR_FILENO);
  prctl(PR_SET_NAME, "procwire-guard");
  end_deserted_groups(group);
  if (read(told, &server, sizeof server) != sizeof server) server = 0;
  int end = server > 0 ? (int)syscall(SYS_pidfd_open, server, 0) : -1;
  struct process process;
  const int known = server > 0 && look_at(server, &process) == 0;
  const uint64_t first = known ? first_mark_of(server, process.start_time) : 0;
  // The watchdogs of a group may have been dying when it was looked at: look again, ever less often.
  struct pollfd both_gone = {.fd = told, .events = POLLIN};
  int look_again_ms = group->fd < 0 ? -1 : FIRST_LOOK_AGAIN_MS;
  while (poll(&both_gone, 1, look_again_ms) <= 0) {
    end_deserted_groups(group);
    if (look_again_ms > 0 && look_again_ms < LAST_LOOK_AGAIN_MS) look_again_ms *= 2;
  }
  while (read(told, &more, 1) < 0 && errno == EINTR) {}
  // A server that lost both watchdogs is told so by the kernel, and ends what it started itself.
  struct pollfd ended = {.fd = end, .events = POLLIN};
  while (end >= 0 && poll(&ended, 1, -1) < 0 && errno == EINTR) {}
  kill_group(group);
  if (known) end_marked(first);
  remove_group(group);
  return 0;
}

// A watchdog does without one where there is no room for another process.
static pid_t start_guard(const struct kept* kept, int told) {
  if (told < 0) return 0;
  pid_t pid = fork();
  if (pid != 0) return pid;
  struct kept own = {.group = kept->group, .alive = told};
  let_go_of_files(&own);
  _exit(guard(&own.group, own.alive));
}

int main(int argc, char** argv) {
  (void)argc;
  char** command = argv + 1;
  long patience_ms = PATIENCE_MS;
  if (command[0] && strcmp(command[0], "--patience-ms") == 0 && command[1]) {
    patience_ms = atol(command[1]);
    command += 2;
  }
  if (*command && strcmp(*command, "--") == 0) command++;
  if (!*command) {
    fprintf(stderr, "usage: watchdog [--patience-ms N] [--] PROGRAM [ARGUMENT...]\n");
    return 2;
  }
  adopt_orphans();

  // Signals are taken one by one with sigwaitinfo: no handler, no race with fork. Some cannot be blocked or mean that
  // this program itself is broken; those keep their default action.
  sigset_t taken, before;
  sigemptyset(&taken);
  const int numbers[] = {SIGCHLD, SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGUSR1};
  for (size_t at = 0; at < sizeof numbers / sizeof *numbers; at++) sigaddset(&taken, numbers[at]);
  // A parent that ignores SIGCHLD would make our children vanish unreaped.
  signal(SIGCHLD, SIG_DFL);
  sigprocmask(SIG_BLOCK, &taken, &before);

  struct kept kept;
  int pipe_ends[2] = {-1, -1};
  make_group(&kept.group);
  if (pipe2(pipe_ends, O_CLOEXEC) < 0) pipe_ends[0] = pipe_ends[1] = -1;
  kept.alive = pipe_ends[1];

  struct below below = {.taken = &taken, .patience_ms = patience_ms + LONGER_MS, .above = 0, .kept = &kept};
  pid_t upper = getpid();
  below.pid = fork();
  if (below.pid == 0) {
    end_with(upper);
    // Not inherited.
    adopt_orphans();
    below.patience_ms = patience_ms;
    below.above = upper;
    pid_t lower = getpid();
    below.pid = fork_into_group(&kept.group);
    if (below.pid == 0) run_server(command, &before, lower);
    // Without the number the guard does not wait for the server, only for the watchdogs.
    if (below.pid > 0 && write(kept.alive, &below.pid, sizeof below.pid) < 0) errno = 0;
  } else if (below.pid > 0) {
    below.guard = start_guard(&kept, pipe_ends[0]);
  }
  if (below.pid < 0) {
    fprintf(stderr, "procwire: cannot start %s: %s\n", *command, strerror(errno));
    if (getpid() == upper) remove_group(&kept.group);
    return 126;
  }
  let_go_of_files(&kept);
  return watch(&below);
}
