// keeper [--deaths N] PROGRAM [ARGUMENT...]
//
// Runs a server below the watchdogs (watchdog.c) and replaces it: at once when it has crashed or hangs, and on SIGHUP
// with the program that is now at the same path. What outlives a server is held here: its listening socket, and the
// processes that were started to be kept. Those are children of this program (the server clones them with
// CLONE_PARENT), so they get SIGKILL when it dies. For each it holds the descriptors, writes its input and records how
// it ended; everything else about it lies in memory that both share (kept-memory.h), which the server reads and writes.
//
// What is not kept ends with its server: every orphan that comes here without the mark of a kept process is killed
// before the next server starts.
//
// The server is the child of this program. It talks to it over a socket named in PROCWIRE_KEEPER, as
// FD:INSTANCE:COUNT, and reports from time to time that it is alive.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../process/mark-numbers.h"
#include "clock.h"
#include "keeper-packets.h"
#include "kept-memory.h"

// After this many deaths within this time the next server would die too. `--deaths` is for tests, which kill more.
#define GIVES_UP_AFTER 5
#define MOST_DEATHS 1024
#define DEATHS_WITHIN_MS 60000
// The delay after the second death; doubled with each one.
#define FIRST_PAUSE_MS 100
#define LAST_PAUSE_MS 800
// A server that was told to leave and has not exited by then is killed. Servers allow themselves less time
// (src/server/limits.ts).
#define LEAVE_WITHIN_MS 10000
// The same for one that hangs: it will hardly react.
#define HUNG_LEAVE_WITHIN_MS 1000
// A server that does not take what it inherits within this time is broken.
#define INHERIT_WITHIN_MS 10000
#define SWEEP_MS 10000
#define SWEEP_PAUSE_MS 2
// Between TERM and KILL for what is kept when there is no server to end it.
#define GRACE_MS 2000
#define LOOK_AGAIN_MS 100
#define EVENTS 64

enum watched { WATCH_SIGNALS, WATCH_SERVER, WATCH_END, WATCH_POKE, WATCH_INPUT };

struct kept;

struct watch {
  enum watched what;
  struct kept* kept;
};

struct kept {
  uint64_t id;
  int fds[KEPT_FDS];
  struct kept_header* memory;
  size_t bytes;
  struct watch end, poke, input;
  int waits_for_room;  // its input is full: EPOLLOUT is asked for
  int is_traced;       // it has ended, but a debugger has its status
  struct kept *next, *previous;
};

static struct {
  char** command;
  char instance[16];
  unsigned long count;
  pid_t watchdog;
  pid_t server;
  int channel;
  int listener;
  int epoll;
  sigset_t before;
  struct kept* first;
  unsigned starting;  // processes that the server is starting: a dead child may be one of them
  int has_strangers;  // dead children that were not reaped because of that
  int was_ready;
  int is_ready;
  int is_ending;
  int is_leaving;
  int is_outdated;  // SIGHUP came while it was starting: it hands over as soon as it can
  long long kill_at_ms;  // 0: not
  long long start_at_ms;
  long long alive_at_ms;
  long long hung_after_ms;
  long long deaths[MOST_DEATHS];
  unsigned death_count, gives_up_after;
  struct watch signals_watch, server_watch;
} keeper = {.channel = -1, .listener = -1, .epoll = -1};

static void close_fd(int* fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

// ---- systemd

// Does nothing without a service manager, or with one that is gone.
static void notify(const char* text) {
  const char* path = getenv("NOTIFY_SOCKET");
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (!path || !path[0] || strlen(path) >= sizeof address.sun_path) return;
  int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  strcpy(address.sun_path, path);
  socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
  if (address.sun_path[0] == '@') address.sun_path[0] = 0;
  while (sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr*)&address, length) < 0 && errno == EINTR) {}
  close(fd);
}

static void notify_reloading(void) {
  char text[64];
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  snprintf(text, sizeof text, "RELOADING=1\nMONOTONIC_USEC=%lld", now.tv_sec * 1000000LL + now.tv_nsec / 1000);
  notify(text);
}

// ---- packets

static int send_packet(enum keeper_word word, uint64_t id, uint64_t value, const int* fds, unsigned count) {
  struct keeper_packet packet = {.protocol = KEEPER_PROTOCOL, .word = word, .id = id, .value = value};
  struct keeper_message message;
  pack_message(&message, &packet, fds, count);
  long long deadline = now_ms() + INHERIT_WITHIN_MS;
  while (keeper.channel >= 0) {
    if (sendmsg(keeper.channel, &message.head, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return 0;
    if (errno == EINTR) continue;
    // ETOOMANYREFS: as many descriptors are in flight as one program may have open.
    if ((errno != EAGAIN && errno != ETOOMANYREFS) || now_ms() > deadline) return -1;
    struct pollfd room = {.fd = keeper.channel, .events = POLLOUT};
    if (errno == ETOOMANYREFS) pause_ms(1);
    else poll(&room, 1, LOOK_AGAIN_MS);
  }
  return -1;
}

// ---- kept processes

static void watch_fd(int fd, uint32_t events, struct watch* watch) {
  struct epoll_event event = {.events = events, .data.ptr = watch};
  if (epoll_ctl(keeper.epoll, EPOLL_CTL_ADD, fd, &event) < 0 && errno == EEXIST)
    epoll_ctl(keeper.epoll, EPOLL_CTL_MOD, fd, &event);
}

static void unwatch_fd(int fd) { epoll_ctl(keeper.epoll, EPOLL_CTL_DEL, fd, NULL); }

static void poke_server(const struct kept* kept) {
  uint64_t one = 1;
  if (kept->fds[KEPT_TO_SERVER] >= 0 && write(kept->fds[KEPT_TO_SERVER], &one, sizeof one) < 0) errno = 0;
}

static void end_input(struct kept* kept) {
  struct kept_header* memory = kept->memory;
  if (kept->waits_for_room && kept->fds[KEPT_IN] >= 0) unwatch_fd(kept->fds[KEPT_IN]);
  kept->waits_for_room = 0;
  KEPT_STORE(memory->in_tail, KEPT_LOAD(memory->in_head));
  KEPT_STORE(memory->in_ended, 1);
  close_fd(&kept->fds[KEPT_IN]);
}

// Writes what the server has put in, as far as it goes; the rest waits until there is room.
static void write_input(struct kept* kept) {
  struct kept_header* memory = kept->memory;
  const char* ring = (const char*)memory + memory->input_at;
  int fd = kept->fds[KEPT_IN];
  uint64_t tail = memory->in_tail;
  int is_full = 0;
  while (fd >= 0 && !is_full) {
    uint64_t head = KEPT_LOAD(memory->in_head);
    if (head == tail || head - tail > KEPT_INPUT_BYTES) break;
    size_t at = tail % KEPT_INPUT_BYTES;
    size_t length = head - tail;
    if (length > KEPT_INPUT_BYTES - at) length = KEPT_INPUT_BYTES - at;
    ssize_t written = write(fd, ring + at, length);
    if (written > 0) {
      tail += (uint64_t)written;
      KEPT_STORE(memory->in_tail, tail);
    } else if (errno == EAGAIN) {
      is_full = 1;
    } else if (errno != EINTR) {
      // Nobody reads any more.
      end_input(kept);
      fd = -1;
    }
  }
  if (fd >= 0 && is_full != kept->waits_for_room) {
    kept->waits_for_room = is_full;
    if (is_full) watch_fd(fd, EPOLLOUT, &kept->input);
    else unwatch_fd(fd);
  }
  // A terminal has no end of file to close; its end-of-file character has been written already.
  if (fd >= 0 && !is_full && !memory->is_terminal && KEPT_LOAD(memory->in_closing)) end_input(kept);
  if (KEPT_LOAD(memory->in_awaited)) poke_server(kept);
}

// Its status is recorded and it stays a zombie, so that its pid is not reused until the server has read all its output.
static void note_end(struct kept* kept) {
  siginfo_t info = {0};
  int answer = waitid(P_PID, (id_t)kept->memory->pid, &info, WEXITED | WNOHANG | WNOWAIT);
  if (answer < 0 && errno == EINTR) return;
  if (!kept->is_traced) unwatch_fd(kept->fds[KEPT_PIDFD]);
  kept->is_traced = answer == 0 && info.si_pid == 0;
  if (kept->is_traced) return;
  int by_signal = info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED;
  kept->memory->exit_code = answer < 0 || by_signal ? -1 : info.si_status;
  kept->memory->exit_signal = by_signal ? info.si_status : 0;
  KEPT_STORE(kept->memory->ended, 1);
  // From now on the terminal may hang up when its last holder goes.
  close_fd(&kept->fds[KEPT_SLAVE]);
  poke_server(kept);
}

// It has ended and its output was read to the end: everything but its memory can be released.
static void close_kept(struct kept* kept) {
  if (kept->fds[KEPT_PIDFD] >= 0) {
    if (KEPT_LOAD(kept->memory->ended)) waitpid(kept->memory->pid, NULL, WNOHANG);
    for (int at = 0; at < KEPT_FDS; at++)
      if (at != KEPT_MEMORY) close_fd(&kept->fds[at]);
  }
  kept->is_traced = 0;
}

static void forget(struct kept* kept) {
  close_kept(kept);
  munmap(kept->memory, kept->bytes);
  close_fd(&kept->fds[KEPT_MEMORY]);
  if (kept->previous) kept->previous->next = kept->next;
  else keeper.first = kept->next;
  if (kept->next) kept->next->previous = kept->previous;
  free(kept);
}

static struct kept* find(uint64_t id) {
  struct kept* kept = keeper.first;
  while (kept && kept->id != id) kept = kept->next;
  return kept;
}

static int is_sound(const struct kept_header* memory, size_t bytes) {
  return memory->magic == KEPT_MAGIC && memory->version == KEPT_VERSION && memory->file_bytes == bytes &&
         memory->pid > 1 && memory->input_at >= sizeof *memory && memory->input_at + KEPT_INPUT_BYTES <= bytes;
}

// Takes a process with its descriptors; -1, and nothing is taken, when they are not valid.
static int keep(uint64_t id, uint64_t which, const int* fds, unsigned count) {
  struct kept* kept = calloc(1, sizeof *kept);
  unsigned taken = 0;
  if (!kept) return -1;
  kept->id = id;
  for (int at = 0; at < KEPT_FDS; at++) kept->fds[at] = (which >> at) & 1 && taken < count ? fds[taken++] : -1;
  struct stat info;
  void* memory = MAP_FAILED;
  int is_whole = taken == count && kept->fds[KEPT_MEMORY] >= 0 && kept->fds[KEPT_PIDFD] >= 0 &&
                 kept->fds[KEPT_TO_KEEPER] >= 0 && fstat(kept->fds[KEPT_MEMORY], &info) == 0 &&
                 info.st_size > (off_t)sizeof(struct kept_header);
  if (is_whole) {
    kept->bytes = (size_t)info.st_size;
    memory = mmap(NULL, kept->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, kept->fds[KEPT_MEMORY], 0);
  }
  if (memory == MAP_FAILED || !is_sound(memory, kept->bytes)) {
    if (memory != MAP_FAILED) munmap(memory, kept->bytes);
    free(kept);
    return -1;
  }
  kept->memory = memory;
  kept->end = (struct watch){WATCH_END, kept};
  kept->poke = (struct watch){WATCH_POKE, kept};
  kept->input = (struct watch){WATCH_INPUT, kept};
  kept->next = keeper.first;
  if (kept->next) kept->next->previous = kept;
  keeper.first = kept;
  watch_fd(kept->fds[KEPT_PIDFD], EPOLLIN, &kept->end);
  watch_fd(kept->fds[KEPT_TO_KEEPER], EPOLLIN, &kept->poke);
  return 0;
}

// ---- unclaimed children

// Where the mark of the server's processes may be (native/process/mark.cc): one of two resource limits without effect,
// and its other half in a third.
struct marks {
  uint64_t locks, resident, witness;
};

#define UNLIMITED UINT64_MAX

static uint64_t limit_in(const char* text, const char* name) {
  const char* line = strstr(text, name);
  if (!line) return UNLIMITED;
  line += strlen(name);
  line += strspn(line, " ");
  return *line == 'u' ? UNLIMITED : strtoull(line, NULL, 10);
}

static struct marks marks_of(pid_t pid) {
  uint64_t locks[2], resident[2], witness[2];
  char path[32], text[4096];
  if (syscall(SYS_prlimit64, pid, RLIMIT_LOCKS, NULL, locks) == 0 &&
      syscall(SYS_prlimit64, pid, RLIMIT_RSS, NULL, resident) == 0 &&
      syscall(SYS_prlimit64, pid, RLIMIT_RTTIME, NULL, witness) == 0)
    return (struct marks){locks[0], resident[0], witness[0]};
  // A process of another user.
  snprintf(path, sizeof path, "/proc/%d/limits", (int)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
  close_fd(&fd);
  text[length > 0 ? length : 0] = 0;
  return (struct marks){limit_in(text, "Max file locks"), limit_in(text, "Max resident set"),
                        limit_in(text, "Max realtime timeout")};
}

// The server uses a limit where its own is free, and its own is this program's.
static int is_free(int resource) {
  uint64_t own[2];
  return syscall(SYS_prlimit64, 0, resource, NULL, own) == 0 && own[0] == UNLIMITED;
}

static int carries(const struct marks* marks, const struct kept* kept) {
  uint64_t mark = kept->memory->mark;
  if (mark == 0) return 0;
  if (!is_free(RLIMIT_LOCKS)) return marks->resident == mark;
  // One that has taken this mark in place of its own has not got the other half.
  const int is_whole = marks->witness == witness_of(mark) || marks->witness == UNLIMITED;
  return marks->locks == mark && (is_whole || !is_free(RLIMIT_RTTIME));
}

// Whether it is a kept process's leader, or one of its descendants that has lost its parent.
static int is_kept(pid_t pid, int leaders_only) {
  struct marks marks = {0, 0, 0};
  pid_t session = leaders_only ? -1 : getsid(pid);
  if (!leaders_only) marks = marks_of(pid);
  for (const struct kept* kept = keeper.first; kept; kept = kept->next) {
    if (carries(&marks, kept)) return 1;
    // The pid of a process that was reaped may have been reused.
    if (kept->fds[KEPT_PIDFD] >= 0 && (kept->memory->pid == pid || kept->memory->pid == session)) return 1;
  }
  return 0;
}

static pid_t parent_of(pid_t pid) {
  char path[32], text[512];
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
  close_fd(&fd);
  if (length <= 0) return -1;
  text[length] = 0;
  const char* name_end = strrchr(text, ')');
  int parent = -1;
  return name_end && sscanf(name_end + 1, " %*c %d", &parent) == 1 ? parent : -1;
}

// Calls back with each child; where the kernel has no list of them, by reading every process.
static void each_child(void (*visit)(pid_t child, int* count), int* count) {
  char path[64];
  snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
  FILE* list = fopen(path, "re");
  int pid;
  if (list) {
    while (fscanf(list, "%d", &pid) == 1) visit(pid, count);
    fclose(list);
    return;
  }
  DIR* processes = opendir("/proc");
  const struct dirent* entry;
  while (processes && (entry = readdir(processes)))
    if ((pid = atoi(entry->d_name)) > 0 && parent_of(pid) == getpid()) visit(pid, count);
  if (processes) closedir(processes);
}

// Dead children that are not known as kept; as many as are reaped at a time.
static pid_t strangers[256];

static void note_stranger(pid_t child, int* count) {
  siginfo_t info = {0};
  if (*count == sizeof strangers / sizeof *strangers || child == keeper.server || is_kept(child, 1)) return;
  if (waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == child)
    strangers[(*count)++] = child;
}

static void read_packets(void);

// Reaps dead children that nobody waits for. One of them may have been started to be kept, and the server's messages
// about it not be read yet. The first was sent before it was started: so they are all read after it was seen dead, and
// while a start is under way nobody is reaped.
static void reap_strangers(void) {
  int count = 0;
  each_child(note_stranger, &count);
  if (count == 0) return;
  read_packets();
  keeper.has_strangers = keeper.starting > 0 || count == sizeof strangers / sizeof *strangers;
  for (int at = 0; at < count && keeper.starting == 0; at++)
    if (!is_kept(strangers[at], 1)) waitpid(strangers[at], NULL, WNOHANG);
}

static void kill_unkept(pid_t child, int* count) {
  if (child == keeper.server || is_kept(child, 0)) return;
  // Our child and not reaped, so the pid is its own. Its children come here when it is gone.
  kill(child, SIGKILL);
  waitpid(child, NULL, WNOHANG);
  (*count)++;
}

// Ends every child that is neither the server nor of a kept process, with all below it.
static void sweep_unkept(void) {
  for (long long until = now_ms() + SWEEP_MS; now_ms() < until; pause_ms(SWEEP_PAUSE_MS)) {
    int count = 0;
    each_child(kill_unkept, &count);
    if (count == 0) return;
  }
}

// The server cannot read its memory, so it cannot end what the process started either.
static void end_unread(struct kept* kept) {
  kill(-kept->memory->pid, SIGKILL);
  forget(kept);
  if (keeper.starting == 0) sweep_unkept();
}

// There is no server left that could end the kept processes gracefully.
static void end_all(void) {
  for (const struct kept* kept = keeper.first; kept; kept = kept->next)
    if (kept->fds[KEPT_PIDFD] >= 0 && !KEPT_LOAD(kept->memory->ended)) kill(-kept->memory->pid, SIGTERM);
  for (long long until = now_ms() + GRACE_MS; now_ms() < until; pause_ms(SWEEP_PAUSE_MS)) {
    int alive = 0;
    for (struct kept* kept = keeper.first; kept; kept = kept->next) {
      if (kept->fds[KEPT_PIDFD] >= 0 && !KEPT_LOAD(kept->memory->ended)) note_end(kept);
      if (kept->fds[KEPT_PIDFD] >= 0 && !KEPT_LOAD(kept->memory->ended)) alive++;
    }
    if (alive == 0) break;
  }
  while (keeper.first) {
    struct kept* kept = keeper.first;
    if (kept->fds[KEPT_PIDFD] >= 0) kill(-kept->memory->pid, SIGKILL);
    forget(kept);
  }
  sweep_unkept();
}

// ---- the server

static void start_server(void) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) {
    fprintf(stderr, "procwire: the keeper has no socket for its server: %s\n", strerror(errno));
    keeper.start_at_ms = now_ms() + FIRST_PAUSE_MS;
    return;
  }
  // Few are in flight at once: descriptors in flight count towards the user's limit.
  int size = 16 * 1024;
  setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
  keeper.count++;
  keeper.start_at_ms = 0;
  pid_t above = getpid();
  pid_t pid = fork();
  if (pid == 0) {
    char text[64];
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != above) _exit(0);
    sigprocmask(SIG_SETMASK, &keeper.before, NULL);
    signal(SIGPIPE, SIG_DFL);
    fcntl(ends[1], F_SETFD, 0);
    snprintf(text, sizeof text, "%d:%s:%lu", ends[1], keeper.instance, keeper.count);
    setenv("PROCWIRE_KEEPER", text, 1);
    snprintf(text, sizeof text, "%d", (int)above);
    setenv("PROCWIRE_WATCHDOG", text, 1);
    unsetenv("NOTIFY_SOCKET");
    execvp(keeper.command[0], keeper.command);
    int err = errno;
    fprintf(stderr, "procwire: cannot run %s: %s\n", keeper.command[0], strerror(err));
    _exit(err == ENOENT ? 127 : 126);
  }
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    fprintf(stderr, "procwire: the keeper cannot start its server: %s\n", strerror(errno));
    keeper.start_at_ms = now_ms() + FIRST_PAUSE_MS;
    return;
  }
  keeper.server = pid;
  keeper.channel = ends[0];
  keeper.is_ready = 0;
  keeper.is_leaving = 0;
  keeper.is_outdated = 0;
  keeper.kill_at_ms = 0;
  keeper.alive_at_ms = now_ms();
  watch_fd(keeper.channel, EPOLLIN, &keeper.server_watch);
}

static void tell_inheritance(void) {
  uint64_t count = 0;
  if (keeper.listener >= 0) send_packet(KEEPER_HAS_LISTENER, 0, 0, &keeper.listener, 1);
  for (struct kept* kept = keeper.first; kept; kept = kept->next) {
    int fds[KEPT_FDS];
    unsigned length = 0;
    uint64_t which = 0;
    for (int at = 0; at < KEPT_FDS; at++) {
      // Only the keeper has the write end of its input, so that closing it is an end of file for the reader.
      if (kept->fds[at] < 0 || at == KEPT_IN) continue;
      fds[length++] = kept->fds[at];
      which |= (uint64_t)1 << at;
    }
    if (send_packet(KEEPER_HAS, kept->id, which, fds, length) < 0) return;
    count++;
  }
  send_packet(KEEPER_HAS_ALL, 0, count, NULL, 0);
}

static void ask_to_leave(long long within_ms) {
  if (keeper.is_leaving) return;
  keeper.is_leaving = 1;
  keeper.kill_at_ms = now_ms() + within_ms;
  send_packet(KEEPER_LEAVE, 0, 0, NULL, 0);
}

// To a server program that is looked up anew: one that is starting may be the former program still, so it is not enough.
static void hand_over(void) {
  if (keeper.server <= 0 || keeper.is_leaving || keeper.is_ending) return;
  if (!keeper.is_ready) {
    keeper.is_outdated = 1;
    return;
  }
  keeper.is_outdated = 0;
  notify_reloading();
  ask_to_leave(LEAVE_WITHIN_MS);
}

// True when the descriptors are kept.
static int take_packet(const struct keeper_packet* packet, const int* fds, unsigned count) {
  struct kept* kept;
  if (packet->protocol != KEEPER_PROTOCOL) return 0;
  keeper.alive_at_ms = now_ms();
  switch (packet->word) {
    case KEEPER_HELLO:
      keeper.hung_after_ms = (long long)packet->value;
      tell_inheritance();
      return 0;
    case KEEPER_LISTENER:
      if (count != 1) return 0;
      close_fd(&keeper.listener);
      keeper.listener = fds[0];
      return 1;
    case KEEPER_STARTING:
      keeper.starting++;
      return 0;
    case KEEPER_KEEP: {
      int is_taken = keep(packet->id, packet->value, fds, count) == 0;
      if (keeper.starting > 0) keeper.starting--;
      return is_taken;
    }
    case KEEPER_DROPPED:
      if (keeper.starting > 0) keeper.starting--;
      return 0;
    case KEEPER_CLOSED:
      if ((kept = find(packet->id))) close_kept(kept);
      return 0;
    case KEEPER_FORGET:
      if (!(kept = find(packet->id))) return 0;
      if (kept->fds[KEPT_PIDFD] >= 0 && !KEPT_LOAD(kept->memory->ended)) end_unread(kept);
      else forget(kept);
      return 0;
    case KEEPER_READY:
      keeper.is_ready = 1;
      keeper.was_ready = 1;
      notify("READY=1");
      if (keeper.is_outdated) hand_over();
      return 0;
    default: return 0;
  }
}

static void read_packets(void) {
  while (keeper.channel >= 0) {
    struct keeper_message message;
    make_room(&message);
    ssize_t length = recvmsg(keeper.channel, &message.head, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (length < 0 && errno == EINTR) continue;
    if (length < 0) return;
    if (length == 0) {
      // The server is ending; SIGCHLD reports its end.
      unwatch_fd(keeper.channel);
      close_fd(&keeper.channel);
      return;
    }
    int fds[KEPT_FDS];
    unsigned count = unpack_fds(&message, fds);
    if (length != sizeof message.packet || !take_packet(&message.packet, fds, count))
      while (count > 0) close(fds[--count]);
  }
}

static int exit_as(int status) {
  end_all();
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// True when there have been too many deaths lately; else the next start is scheduled.
static int count_death(void) {
  long long now = now_ms();
  keeper.deaths[keeper.death_count++ % MOST_DEATHS] = now;
  unsigned recent = 0;
  for (int at = 0; at < MOST_DEATHS; at++)
    if (keeper.deaths[at] > 0 && now - keeper.deaths[at] < DEATHS_WITHIN_MS) recent++;
  if (recent >= keeper.gives_up_after) return 1;
  long pause = 0;
  for (unsigned death = 1; death < recent && pause < LAST_PAUSE_MS; death++) pause = pause ? 2 * pause : FIRST_PAUSE_MS;
  // A test that expects many deaths wants no delays.
  keeper.start_at_ms = now + (keeper.gives_up_after > GIVES_UP_AFTER ? 0 : pause);
  return 0;
}

// The server has ended: -1 to go on with the next one, else how to end.
static int server_ended(int status) {
  int was_leaving = keeper.is_leaving;
  read_packets();
  if (keeper.channel >= 0) unwatch_fd(keeper.channel);
  close_fd(&keeper.channel);
  keeper.server = 0;
  keeper.starting = 0;
  keeper.kill_at_ms = 0;
  keeper.is_leaving = 0;
  if (keeper.is_ending || !keeper.was_ready) return exit_as(status);
  // One that exits with 0 was told to end, or was replaced.
  if (!was_leaving && WIFEXITED(status) && WEXITSTATUS(status) == 0) return exit_as(status);
  sweep_unkept();
  if (was_leaving) {
    start_server();
    return -1;
  }
  char how[64];
  if (WIFSIGNALED(status)) snprintf(how, sizeof how, "was killed by signal %d", WTERMSIG(status));
  else snprintf(how, sizeof how, "ended with code %d", WEXITSTATUS(status));
  if (count_death()) {
    fprintf(stderr, "procwire: the server %s, the %uth time within a minute; the keeper gives up and ends everything\n",
            how, keeper.gives_up_after);
    exit_as(status);
    return 1;
  }
  fprintf(stderr, "procwire: the server %s; the keeper starts another one\n", how);
  if (keeper.start_at_ms <= now_ms()) start_server();
  return -1;
}

// -1 to go on.
static int take_signal(const struct signalfd_siginfo* info) {
  // Sent by a program, not by a terminal.
  int is_sent = info->ssi_code <= 0;
  int status;
  switch (info->ssi_signo) {
    case SIGCHLD:
      read_packets();
      if (keeper.server > 0 && waitpid(keeper.server, &status, WNOHANG) == keeper.server) return server_ended(status);
      reap_strangers();
      return -1;
    case SIGUSR1:
      // A server that is ending reports it, and the report is passed on to the watchdog above.
      if ((pid_t)info->ssi_pid == keeper.server && getppid() == keeper.watchdog) kill(keeper.watchdog, SIGUSR1);
      return -1;
    case SIGHUP:
      if (is_sent) {
        hand_over();
        return -1;
      }
      break;
    default: break;
  }
  keeper.is_ending = 1;
  notify("STOPPING=1");
  if (keeper.server <= 0) {
    end_all();
    return 0;
  }
  // A terminal has signalled the server itself; but the server does not know what a hang-up means.
  if (is_sent || info->ssi_signo == SIGHUP) kill(keeper.server, SIGTERM);
  return -1;
}

// ---- the loop

static int timeout_ms(void) {
  long long now = now_ms(), next = -1;
  long long due[] = {keeper.kill_at_ms, keeper.server > 0 ? 0 : keeper.start_at_ms,
                     keeper.is_ready && keeper.hung_after_ms > 0 ? keeper.alive_at_ms + keeper.hung_after_ms : 0};
  for (size_t at = 0; at < sizeof due / sizeof *due; at++)
    if (due[at] > 0 && (next < 0 || due[at] < next)) next = due[at];
  for (const struct kept* kept = keeper.first; kept; kept = kept->next)
    if (kept->is_traced && (next < 0 || next > now + LOOK_AGAIN_MS)) next = now + LOOK_AGAIN_MS;
  if (next < 0) return -1;
  return next <= now ? 0 : next - now > 60000 ? 60000 : (int)(next - now);
}

static void on_time(void) {
  long long now = now_ms();
  for (struct kept* kept = keeper.first; kept; kept = kept->next)
    if (kept->is_traced) note_end(kept);
  if (keeper.server > 0 && keeper.kill_at_ms > 0 && now >= keeper.kill_at_ms) {
    fprintf(stderr, "procwire: the server was to hand over and has not; it is killed\n");
    kill(keeper.server, SIGKILL);
    keeper.kill_at_ms = 0;
  }
  if (keeper.server <= 0 && keeper.start_at_ms > 0 && now >= keeper.start_at_ms) start_server();
  if (keeper.server > 0 && keeper.is_ready && !keeper.is_leaving && !keeper.is_ending && keeper.hung_after_ms > 0 &&
      now - keeper.alive_at_ms >= keeper.hung_after_ms) {
    // Its messages may have arrived and not be read yet.
    read_packets();
    if (now - keeper.alive_at_ms < keeper.hung_after_ms) return;
    fprintf(stderr, "procwire: the server has said nothing for %lld ms and counts as hung; it is replaced\n",
            keeper.hung_after_ms);
    ask_to_leave(HUNG_LEAVE_WITHIN_MS);
  }
}

static int serve(int signals) {
  for (;;) {
    struct epoll_event events[EVENTS];
    int count = epoll_wait(keeper.epoll, events, EVENTS, timeout_ms());
    on_time();
    // Packets may free what other events are about, so they come last.
    int has_packets = 0, has_signal = 0;
    for (int at = 0; at < count; at++) {
      const struct watch* watch = events[at].data.ptr;
      uint64_t ignored;
      switch (watch->what) {
        case WATCH_SIGNALS: has_signal = 1; break;
        case WATCH_SERVER: has_packets = 1; break;
        case WATCH_END: note_end(watch->kept); break;
        case WATCH_INPUT: write_input(watch->kept); break;
        case WATCH_POKE:
          if (read(watch->kept->fds[KEPT_TO_KEEPER], &ignored, sizeof ignored) < 0) errno = 0;
          write_input(watch->kept);
          break;
      }
    }
    if (has_packets) {
      read_packets();
      if (keeper.has_strangers && keeper.starting == 0) reap_strangers();
    }
    struct signalfd_siginfo info;
    while (has_signal && read(signals, &info, sizeof info) == sizeof info) {
      int end = take_signal(&info);
      if (end >= 0) return end;
    }
  }
}

static void raise_descriptor_limit(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) < 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

int main(int argc, char** argv) {
  unsigned random = 0;
  keeper.command = argv + 1;
  keeper.gives_up_after = GIVES_UP_AFTER;
  if (argc > 3 && strcmp(argv[1], "--deaths") == 0) {
    keeper.gives_up_after = (unsigned)atoi(argv[2]);
    keeper.command += 2;
  }
  if (argc < 2 || !*keeper.command || keeper.gives_up_after < 1 || keeper.gives_up_after > MOST_DEATHS) {
    fprintf(stderr, "usage: keeper [--deaths N] PROGRAM [ARGUMENT...]\n");
    return 2;
  }
  keeper.watchdog = getppid();
  if (getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random) random = (unsigned)now_ms() ^ (unsigned)getpid();
  snprintf(keeper.instance, sizeof keeper.instance, "%08x", random);
  if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
    fprintf(stderr, "procwire: cannot adopt orphans: %s\n", strerror(errno));
  raise_descriptor_limit();

  sigset_t taken;
  sigemptyset(&taken);
  const int numbers[] = {SIGCHLD, SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1};
  for (size_t at = 0; at < sizeof numbers / sizeof *numbers; at++) sigaddset(&taken, numbers[at]);
  signal(SIGCHLD, SIG_DFL);
  signal(SIGPIPE, SIG_IGN);
  sigprocmask(SIG_BLOCK, &taken, &keeper.before);
  int signals = signalfd(-1, &taken, SFD_NONBLOCK | SFD_CLOEXEC);
  keeper.epoll = epoll_create1(EPOLL_CLOEXEC);
  if (signals < 0 || keeper.epoll < 0) {
    fprintf(stderr, "procwire: the keeper cannot run: %s\n", strerror(errno));
    return 126;
  }
  keeper.signals_watch.what = WATCH_SIGNALS;
  keeper.server_watch.what = WATCH_SERVER;
  watch_fd(signals, EPOLLIN, &keeper.signals_watch);
  start_server();
  return serve(signals);
}
