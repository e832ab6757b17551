#define _GNU_SOURCE
#include "persistent-process.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../core/monotonic-clock.h"
#include "close-fd.h"

// Grace period between SIGTERM and SIGKILL when no server terminates the processes.
#define GRACE_MS 2000
#define GRACE_POLL_MS 2
// Maximum wait for the exit of a rejected process, so that the server finds it dead.
#define REJECTED_EXIT_TIMEOUT_MS 1000

struct persistent_process* first_persistent;

struct persistent_process* find_persistent(uint64_t id) {
  struct persistent_process* process = first_persistent;
  while (process && process->id != id) process = process->next;
  return process;
}

// ---- adding a process

// Maps the segment. Returns null, or the reason why it cannot be used.
static const char* map_segment(struct persistent_process* process) {
  static char why[128];
  // Magic and version have the same position in every version.
  struct {
    uint32_t magic, version;
  } head = {0, 0};
  struct stat info;
  int fd = process->fds[PERSIST_SEGMENT];
  if (fstat(fd, &info) < 0 || pread(fd, &head, sizeof head, 0) != sizeof head || head.magic != SEGMENT_MAGIC)
    return "not a state segment";
  if (head.version != SEGMENT_VERSION) {
    snprintf(why, sizeof why, "state segment version is %u, supported version is %u", head.version, SEGMENT_VERSION);
    return why;
  }
  if (info.st_size <= (off_t)sizeof(struct segment_header)) return "state segment is too small";
  process->segment_bytes = (size_t)info.st_size;
  void* memory = mmap(NULL, process->segment_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return strerror(errno);
  process->header = memory;
  const struct segment_header* header = memory;
  if (header->file_bytes == process->segment_bytes && header->pid > 1 && header->input_at >= sizeof *header &&
      header->input_at <= process->segment_bytes && process->segment_bytes - header->input_at >= SEGMENT_INPUT_BYTES)
    return NULL;
  munmap(memory, process->segment_bytes);
  return "state segment is corrupt";
}

// The kernel drops descriptors for which the supervisor has no space.
static int has_required_fds(const int fds[PERSIST_FD_COUNT]) {
  return fds[PERSIST_SEGMENT] >= 0 && fds[PERSIST_PIDFD] >= 0 && fds[PERSIST_SUPERVISOR_WAKE] >= 0 &&
         fds[PERSIST_SERVER_WAKE] >= 0;
}

// Returns the pid of a pidfd, or -1 if it is unknown.
static pid_t pid_of(int pidfd) {
  char path[40], line[64];
  int pid = -1;
  snprintf(path, sizeof path, "/proc/self/fdinfo/%d", pidfd);
  FILE* info = fopen(path, "re");
  while (info && pid < 0 && fgets(line, sizeof line, info))
    if (sscanf(line, "Pid: %d", &pid) != 1) pid = -1;
  if (info) fclose(info);
  return pid;
}

// Kills a process that cannot be persisted. The server kills a process whose pidfd did not arrive.
static void reject(const int* fds, const char* why) {
  fprintf(stderr, "procwire: cannot persist process: %s; process killed\n", why);
  pid_t pid = fds[PERSIST_PIDFD] < 0 ? -1 : pid_of(fds[PERSIST_PIDFD]);
  if (pid <= 1) return;
  struct pollfd end = {.fd = fds[PERSIST_PIDFD], .events = POLLIN};
  kill(-pid, SIGKILL);
  poll(&end, 1, REJECTED_EXIT_TIMEOUT_MS);
}

// Maps the segment and adds the process to the list. Returns NULL, or the reason why that is impossible.
static const char* link_process(uint64_t id, const int fds[PERSIST_FD_COUNT]) {
  struct persistent_process* process = calloc(1, sizeof *process);
  if (!process) return strerror(ENOMEM);
  memcpy(process->fds, fds, sizeof process->fds);
  const char* why = map_segment(process);
  if (why) {
    free(process);
    return why;
  }
  process->id = id;
  process->exit_watch = (struct watch){WATCH_EXIT, process};
  process->wake_watch = (struct watch){WATCH_WAKE, process};
  process->input_watch = (struct watch){WATCH_INPUT, process};
  process->next = first_persistent;
  if (process->next) process->next->previous = process;
  first_persistent = process;
  if (is_running(process)) watch_fd(process->fds[PERSIST_PIDFD], EPOLLIN, &process->exit_watch);
  if (fds[PERSIST_SUPERVISOR_WAKE] >= 0) watch_fd(fds[PERSIST_SUPERVISOR_WAKE], EPOLLIN, &process->wake_watch);
  return NULL;
}

int add_persistent(uint64_t id, uint64_t which, const int* fds, unsigned count) {
  int by_kind[PERSIST_FD_COUNT];
  unsigned taken = 0;
  for (int at = 0; at < PERSIST_FD_COUNT; at++) by_kind[at] = (which >> at) & 1 && taken < count ? fds[taken++] : -1;
  const char* why = has_required_fds(by_kind) ? link_process(id, by_kind) : "missing descriptor";
  if (!why) return 0;
  reject(by_kind, why);
  return -1;
}

const char* restore_persistent(uint64_t id, const int fds[PERSIST_FD_COUNT]) { return link_process(id, fds); }

// ---- input

static void wake_server(const struct persistent_process* process) {
  const uint64_t one = 1;
  // Fails if the descriptor is released, or if the counter is full. The server is then awake already.
  if (write(process->fds[PERSIST_SERVER_WAKE], &one, sizeof one) < 0) return;
}

static void close_input(struct persistent_process* process) {
  struct segment_header* header = process->header;
  process->is_input_full = 0;
  SEGMENT_STORE(header->in_tail, SEGMENT_LOAD(header->in_head));
  SEGMENT_STORE(header->in_ended, 1);
  close_watched_fd(&process->fds[PERSIST_STDIN]);
}

// Reports whether the server can add input: the ring has space, or the input is dropped because stdin is closed.
static int accepts_input(const struct segment_header* header) {
  return SEGMENT_LOAD(header->in_ended) || SEGMENT_LOAD(header->in_head) - header->in_tail < SEGMENT_INPUT_BYTES;
}

void write_input(struct persistent_process* process) {
  struct segment_header* header = process->header;
  const char* ring = (const char*)header + header->input_at;
  int fd = process->fds[PERSIST_STDIN];
  uint64_t tail = header->in_tail;
  int is_full = 0;
  while (fd >= 0 && !is_full) {
    uint64_t head = SEGMENT_LOAD(header->in_head);
    if (head == tail || head - tail > SEGMENT_INPUT_BYTES) break;
    size_t at = tail % SEGMENT_INPUT_BYTES;
    size_t length = head - tail;
    if (length > SEGMENT_INPUT_BYTES - at) length = SEGMENT_INPUT_BYTES - at;
    ssize_t written = write(fd, ring + at, length);
    if (written > 0) {
      tail += (uint64_t)written;
      SEGMENT_STORE(header->in_tail, tail);
    } else if (errno == EAGAIN) {
      is_full = 1;
    } else if (errno != EINTR) {
      // No process reads the input anymore.
      close_input(process);
      fd = -1;
    }
  }
  if (fd >= 0 && is_full != process->is_input_full) {
    process->is_input_full = is_full;
    if (is_full) watch_fd(fd, EPOLLOUT, &process->input_watch);
    else unwatch_fd(fd);
  }
  // A terminal stays open. The server ends its input with the EOF character.
  if (fd >= 0 && !is_full && !header->is_terminal && SEGMENT_LOAD(header->in_closing)) close_input(process);
  // Not without space: a waiting server replies to each wake-up by waking the supervisor, so both would wake each other
  // until the process reads.
  if (SEGMENT_LOAD(header->server_waits_for_input_space) && accepts_input(header)) wake_server(process);
}

void handle_wake(struct persistent_process* process) {
  uint64_t ignored;
  // Clears the wake-up.
  if (read(process->fds[PERSIST_SUPERVISOR_WAKE], &ignored, sizeof ignored) < 0 && errno != EAGAIN) return;
  write_input(process);
}

// ---- exit

int has_pid(const struct persistent_process* process) { return process->fds[PERSIST_PIDFD] >= 0; }

int is_running(const struct persistent_process* process) {
  return has_pid(process) && !SEGMENT_LOAD(process->header->ended);
}

void record_exit(struct persistent_process* process) {
  siginfo_t info = {0};
  int result = waitid(P_PID, (id_t)process->header->pid, &info, WEXITED | WNOHANG | WNOWAIT);
  if (result < 0 && errno == EINTR) return;
  if (!process->is_traced) unwatch_fd(process->fds[PERSIST_PIDFD]);
  process->is_traced = result == 0 && info.si_pid == 0;
  if (process->is_traced) return;
  int by_signal = info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED;
  process->header->exit_code = result < 0 || by_signal ? -1 : info.si_status;
  process->header->exit_signal = by_signal ? info.si_status : 0;
  SEGMENT_STORE(process->header->ended, 1);
  // From now on the terminal may hang up when its last holder closes it.
  close_fd(&process->fds[PERSIST_PTY_SLAVE]);
  wake_server(process);
}

void recheck_traced(void) {
  for (struct persistent_process* process = first_persistent; process; process = process->next)
    if (process->is_traced) record_exit(process);
}

int is_any_traced(void) {
  for (const struct persistent_process* process = first_persistent; process; process = process->next)
    if (process->is_traced) return 1;
  return 0;
}

void release_resources(struct persistent_process* process) {
  if (has_pid(process)) {
    if (!is_running(process)) waitpid(process->header->pid, NULL, WNOHANG);
    for (int at = 0; at < PERSIST_FD_COUNT; at++)
      if (at != PERSIST_SEGMENT) close_watched_fd(&process->fds[at]);
  }
  process->is_traced = 0;
}

void remove_persistent(struct persistent_process* process) {
  release_resources(process);
  munmap(process->header, process->segment_bytes);
  close_fd(&process->fds[PERSIST_SEGMENT]);
  if (process->previous) process->previous->next = process->next;
  else first_persistent = process->next;
  if (process->next) process->next->previous = process->previous;
  free(process);
}

void kill_persistent(struct persistent_process* process) {
  if (has_pid(process)) kill(-process->header->pid, SIGKILL);
  remove_persistent(process);
}

void terminate_all_persistent(void) {
  for (const struct persistent_process* process = first_persistent; process; process = process->next)
    if (is_running(process)) kill(-process->header->pid, SIGTERM);
  for (long long until = now_ms() + GRACE_MS; now_ms() < until; pause_ms(GRACE_POLL_MS)) {
    int alive = 0;
    for (struct persistent_process* process = first_persistent; process; process = process->next) {
      if (is_running(process)) record_exit(process);
      if (is_running(process)) alive++;
    }
    if (alive == 0) break;
  }
  while (first_persistent) kill_persistent(first_persistent);
}
