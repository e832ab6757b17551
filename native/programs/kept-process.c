#define _GNU_SOURCE
#include "kept-process.h"

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

#include "clock.h"

// Between TERM and KILL when there is no server to end them.
#define GRACE_MS 2000
#define GRACE_PAUSE_MS 2
// The server is told of the end of a process that cannot be kept when that has come, or this much later.
#define REFUSED_ENDS_WITHIN_MS 1000

struct kept* first_kept;

struct kept* find_kept(uint64_t id) {
  struct kept* kept = first_kept;
  while (kept && kept->id != id) kept = kept->next;
  return kept;
}

// ---- taking one

// Null, with the memory mapped; else why it cannot be used.
static const char* map_memory(struct kept* kept) {
  static char why[128];
  // These two stay where they are in every version.
  struct {
    uint32_t magic, version;
  } head = {0, 0};
  struct stat info;
  int fd = kept->fds[KEPT_MEMORY];
  if (fd < 0 || kept->fds[KEPT_PIDFD] < 0 || kept->fds[KEPT_TO_KEEPER] < 0) return "a descriptor is missing";
  if (fstat(fd, &info) < 0 || pread(fd, &head, sizeof head, 0) != sizeof head || head.magic != KEPT_MAGIC)
    return "its memory is not that of a kept process";
  if (head.version != KEPT_VERSION) {
    snprintf(why, sizeof why, "its memory is of version %u, and this keeper reads version %u", head.version,
             KEPT_VERSION);
    return why;
  }
  if (info.st_size <= (off_t)sizeof(struct kept_header)) return "its memory is too small";
  kept->bytes = (size_t)info.st_size;
  void* memory = mmap(NULL, kept->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return strerror(errno);
  kept->memory = memory;
  const struct kept_header* header = memory;
  if (header->file_bytes == kept->bytes && header->pid > 1 && header->input_at >= sizeof *header &&
      header->input_at + KEPT_INPUT_BYTES <= kept->bytes)
    return NULL;
  munmap(memory, kept->bytes);
  return "its memory is damaged";
}

// The process that a pidfd stands for; -1 when it is not known.
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

// Nothing about it is guessed: it is ended, whatever it is doing.
static void refuse(const int* fds, const char* why) {
  fprintf(stderr, "procwire: a process cannot be kept and is ended: %s\n", why);
  pid_t pid = fds[KEPT_PIDFD] < 0 ? -1 : pid_of(fds[KEPT_PIDFD]);
  if (pid > 1) {
    struct pollfd end = {.fd = fds[KEPT_PIDFD], .events = POLLIN};
    kill(-pid, SIGKILL);
    poll(&end, 1, REFUSED_ENDS_WITHIN_MS);
  }
  uint64_t refused = KEPT_REFUSED;
  if (fds[KEPT_TO_SERVER] >= 0 && write(fds[KEPT_TO_SERVER], &refused, sizeof refused) < 0) errno = 0;
}

int keep(uint64_t id, uint64_t which, const int* fds, unsigned count) {
  int placed[KEPT_FDS];
  unsigned taken = 0;
  for (int at = 0; at < KEPT_FDS; at++) placed[at] = (which >> at) & 1 && taken < count ? fds[taken++] : -1;
  struct kept* kept = calloc(1, sizeof *kept);
  if (kept) memcpy(kept->fds, placed, sizeof placed);
  const char* why = kept ? map_memory(kept) : strerror(ENOMEM);
  if (why) {
    refuse(placed, why);
    free(kept);
    return -1;
  }
  kept->id = id;
  kept->end = (struct watch){WATCH_END, kept};
  kept->poke = (struct watch){WATCH_POKE, kept};
  kept->input = (struct watch){WATCH_INPUT, kept};
  kept->next = first_kept;
  if (kept->next) kept->next->previous = kept;
  first_kept = kept;
  watch_fd(kept->fds[KEPT_PIDFD], EPOLLIN, &kept->end);
  watch_fd(kept->fds[KEPT_TO_KEEPER], EPOLLIN, &kept->poke);
  return 0;
}

// ---- input

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

void write_input(struct kept* kept) {
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

void take_poke(struct kept* kept) {
  uint64_t ignored;
  if (read(kept->fds[KEPT_TO_KEEPER], &ignored, sizeof ignored) < 0) errno = 0;
  write_input(kept);
}

// ---- the end

int has_pid(const struct kept* kept) { return kept->fds[KEPT_PIDFD] >= 0; }

int is_running(const struct kept* kept) { return has_pid(kept) && !KEPT_LOAD(kept->memory->ended); }

void note_end(struct kept* kept) {
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

void look_at_traced(void) {
  for (struct kept* kept = first_kept; kept; kept = kept->next)
    if (kept->is_traced) note_end(kept);
}

int is_any_traced(void) {
  for (const struct kept* kept = first_kept; kept; kept = kept->next)
    if (kept->is_traced) return 1;
  return 0;
}

void close_kept(struct kept* kept) {
  if (has_pid(kept)) {
    if (!is_running(kept)) waitpid(kept->memory->pid, NULL, WNOHANG);
    for (int at = 0; at < KEPT_FDS; at++)
      if (at != KEPT_MEMORY) close_fd(&kept->fds[at]);
  }
  kept->is_traced = 0;
}

void forget_kept(struct kept* kept) {
  close_kept(kept);
  munmap(kept->memory, kept->bytes);
  close_fd(&kept->fds[KEPT_MEMORY]);
  if (kept->previous) kept->previous->next = kept->next;
  else first_kept = kept->next;
  if (kept->next) kept->next->previous = kept->previous;
  free(kept);
}

void kill_kept(struct kept* kept) {
  if (has_pid(kept)) kill(-kept->memory->pid, SIGKILL);
  forget_kept(kept);
}

void end_all_kept(void) {
  for (const struct kept* kept = first_kept; kept; kept = kept->next)
    if (is_running(kept)) kill(-kept->memory->pid, SIGTERM);
  for (long long until = now_ms() + GRACE_MS; now_ms() < until; pause_ms(GRACE_PAUSE_MS)) {
    int alive = 0;
    for (struct kept* kept = first_kept; kept; kept = kept->next) {
      if (is_running(kept)) note_end(kept);
      if (is_running(kept)) alive++;
    }
    if (alive == 0) break;
  }
  while (first_kept) kill_kept(first_kept);
}
