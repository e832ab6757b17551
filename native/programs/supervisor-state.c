#define _GNU_SOURCE
#include "supervisor-state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "close-fd.h"
#include "persistent-process.h"
#include "server-channel.h"
#include "server-lifecycle.h"
#include "service-state.h"

#define STATE_MAGIC 0x73707770u
// Raised whenever a struct of the state changes. A supervisor that cannot read the state is not started.
#define SUPERVISOR_STATE_VERSION 1u

struct state_header {
  uint32_t magic;
  uint32_t version;
  uint32_t process_count;
  int32_t listener;
  int32_t service_state;
  struct server_history history;
};

struct process_state {
  uint64_t id;
  int32_t fds[PERSIST_FD_COUNT];
};

static int write_all(int fd, const void* bytes, size_t length) {
  ssize_t written = write(fd, bytes, length);
  if (written >= 0 && (size_t)written < length) errno = ENOSPC;
  return written == (ssize_t)length ? 0 : -1;
}

int save_state(void) {
  struct state_header header = {.magic = STATE_MAGIC,
                                .version = SUPERVISOR_STATE_VERSION,
                                .listener = retained_listener(),
                                .service_state = service_state_fd(),
                                .history = *server_history()};
  int state = memfd_create("procwire-supervisor", MFD_CLOEXEC);
  int result = state < 0 ? -1 : write_all(state, &header, sizeof header);
  for (const struct persistent_process* process = first_persistent; process && result == 0; process = process->next) {
    struct process_state saved = {.id = process->id};
    memcpy(saved.fds, process->fds, sizeof saved.fds);
    result = write_all(state, &saved, sizeof saved);
    header.process_count++;
  }
  if (result == 0 && pwrite(state, &header, sizeof header, 0) == sizeof header) return state;
  close_fd(&state);
  return -1;
}

// Returns NULL, or the reason why the state cannot be read.
static const char* read_header(int state, struct state_header* header) {
  static char why[96];
  memset(header, 0, sizeof *header);
  if (pread(state, header, sizeof *header, 0) < (ssize_t)(2 * sizeof(uint32_t)) || header->magic != STATE_MAGIC)
    return "not the state of a supervisor";
  if (header->version == SUPERVISOR_STATE_VERSION) return NULL;
  snprintf(why, sizeof why, "supervisor state version is %u, supported version is %u", header->version,
           SUPERVISOR_STATE_VERSION);
  return why;
}

static int read_process(int state, uint32_t at, struct process_state* saved) {
  const off_t position = (off_t)(sizeof(struct state_header) + at * sizeof *saved);
  return pread(state, saved, sizeof *saved, position) == sizeof *saved ? 0 : -1;
}

static void set_inherited(int fd, int is_inherited) {
  if (fd >= 0) fcntl(fd, F_SETFD, is_inherited ? 0 : FD_CLOEXEC);
}

void set_state_inherited(int state, int is_inherited) {
  struct state_header header;
  struct process_state saved;
  if (read_header(state, &header)) return;
  set_inherited(state, is_inherited);
  set_inherited(header.listener, is_inherited);
  set_inherited(header.service_state, is_inherited);
  for (uint32_t at = 0; at < header.process_count && read_process(state, at, &saved) == 0; at++)
    for (int kind = 0; kind < PERSIST_FD_COUNT; kind++) set_inherited(saved.fds[kind], is_inherited);
}

const char* load_state(int state) {
  struct state_header header;
  const char* why = read_header(state, &header);
  if (why) return why;
  set_state_inherited(state, 0);
  // Backwards, because a process is added at the start of the list.
  for (uint32_t at = header.process_count; at > 0; at--) {
    struct process_state saved;
    if (read_process(state, at - 1, &saved) < 0) return "state of a process is missing";
    if ((why = restore_persistent(saved.id, saved.fds))) return why;
  }
  restore_listener(header.listener);
  restore_service_state(header.service_state);
  restore_server_history(&header.history);
  return NULL;
}
