#define _GNU_SOURCE
#include "server-channel.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../core/monotonic-clock.h"
#include "close-fd.h"
#include "epoll-watch.h"
#include "persistent-process.h"
#include "server-lifecycle.h"
#include "supervisor-orphans.h"
#include "supervisor-protocol.h"

// Maximum time for a server to receive its restored processes.
#define RESTORE_TIMEOUT_MS 10000
#define POLL_INTERVAL_MS 100

static int channel = -1;
static int listener = -1;
static unsigned starting;
static long long last_message_ms, liveness_timeout;
static struct watch channel_watch = {.kind = WATCH_SERVER};

unsigned starts_in_flight(void) { return starting; }

long long liveness_deadline_ms(void) { return liveness_timeout > 0 ? last_message_ms + liveness_timeout : 0; }

long long liveness_timeout_ms(void) { return liveness_timeout; }

int retained_listener(void) { return listener; }

void restore_listener(int fd) { listener = fd; }

int open_channel(void) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) return -1;
  // A small buffer keeps few packets in flight, because descriptors in flight count against the user's limit.
  int size = 16 * 1024;
  setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
  channel = ends[0];
  starting = 0;
  last_message_ms = now_ms();
  watch_fd(channel, EPOLLIN, &channel_watch);
  return ends[1];
}

void close_channel(void) {
  read_packets();
  close_watched_fd(&channel);
  starting = 0;
}

// ---- to the server

static int send_packet(enum supervisor_message_type type, uint64_t id, uint64_t value, const int* fds, unsigned count) {
  struct supervisor_packet packet = {.protocol = SUPERVISOR_PROTOCOL, .type = type, .id = id, .value = value};
  struct supervisor_message message;
  prepare_send(&message, &packet, fds, count);
  long long deadline = now_ms() + RESTORE_TIMEOUT_MS;
  while (channel >= 0) {
    if (sendmsg(channel, &message.head, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return 0;
    if (errno == EINTR) continue;
    // ETOOMANYREFS: the limit of descriptors in flight is reached.
    if ((errno != EAGAIN && errno != ETOOMANYREFS) || now_ms() > deadline) return -1;
    struct pollfd writable = {.fd = channel, .events = POLLOUT};
    if (errno == ETOOMANYREFS) pause_ms(1);
    else poll(&writable, 1, POLL_INTERVAL_MS);
  }
  return -1;
}

static void send_restored(void) {
  uint64_t count = 0;
  if (listener >= 0) send_packet(SUPERVISOR_RESTORED_LISTENER, 0, 0, &listener, 1);
  for (const struct persistent_process* process = first_persistent; process; process = process->next) {
    int fds[PERSIST_FD_COUNT];
    unsigned length = 0;
    uint64_t which = 0;
    for (int at = 0; at < PERSIST_FD_COUNT; at++) {
      // Only the supervisor has the write end of stdin, so that closing it means end of file for the reader.
      if (process->fds[at] < 0 || at == PERSIST_STDIN) continue;
      fds[length++] = process->fds[at];
      which |= (uint64_t)1 << at;
    }
    if (send_packet(SUPERVISOR_RESTORED, process->id, which, fds, length) < 0) return;
    count++;
  }
  send_packet(SUPERVISOR_RESTORED_ALL, SEGMENT_VERSION, count, NULL, 0);
}

void send_handoff(void) { send_packet(SUPERVISOR_HANDOFF, 0, 0, NULL, 0); }

// ---- from the server

static void remove_requested(uint64_t id) {
  struct persistent_process* process = find_persistent(id);
  if (!process) return;
  if (!is_running(process)) {
    remove_persistent(process);
    return;
  }
  // The server cannot read the segment, so it cannot kill the descendants either.
  kill_persistent(process);
  if (starting == 0) kill_non_persistent();
}

// The server uses another protocol version. The response carries this version, so that the server detects it too.
static void reject_server(uint32_t protocol) {
  fprintf(stderr,
          "procwire: cannot talk to the server: its supervisor protocol version is %u, supported version is %u; "
          "restart the service, which terminates persistent processes\n",
          protocol, SUPERVISOR_PROTOCOL);
  send_packet(SUPERVISOR_RESTORED_ALL, SEGMENT_VERSION, 0, NULL, 0);
}

// Returns true if it took ownership of the descriptors.
static int handle_packet(const struct supervisor_packet* packet, const int* fds, unsigned count) {
  struct persistent_process* process;
  if (packet->protocol != SUPERVISOR_PROTOCOL) {
    if (packet->type == SUPERVISOR_HELLO) reject_server(packet->protocol);
    return 0;
  }
  last_message_ms = now_ms();
  switch (packet->type) {
    case SUPERVISOR_HELLO:
      liveness_timeout = (long long)packet->value;
      set_give_up_after(packet->id);
      send_restored();
      return 0;
    case SUPERVISOR_LISTENER:
      if (count != 1) return 0;
      close_fd(&listener);
      listener = fds[0];
      return 1;
    case SUPERVISOR_STARTING: starting++; return 0;
    case SUPERVISOR_PERSIST: {
      int is_taken = add_persistent(packet->id, packet->value, fds, count) == 0;
      if (!is_taken) send_packet(SUPERVISOR_REJECTED, packet->id, 0, NULL, 0);
      if (starting > 0) starting--;
      return is_taken;
    }
    case SUPERVISOR_START_FAILED:
      if (starting > 0) starting--;
      return 0;
    case SUPERVISOR_CLOSED:
      if ((process = find_persistent(packet->id))) release_resources(process);
      return 0;
    case SUPERVISOR_REMOVE: remove_requested(packet->id); return 0;
    case SUPERVISOR_READY: on_server_ready(); return 0;
    default: return 0;
  }
}

void read_packets(void) {
  while (channel >= 0) {
    struct supervisor_message message;
    prepare_receive(&message);
    ssize_t length = recvmsg(channel, &message.head, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    // ECONNRESET is returned once, before the remaining packets, if the server died with unread packets.
    if (length < 0 && (errno == EINTR || errno == ECONNRESET)) continue;
    if (length < 0) return;
    if (length == 0) {
      // The server is exiting; SIGCHLD reports its exit.
      close_watched_fd(&channel);
      return;
    }
    int fds[PERSIST_FD_COUNT];
    unsigned count = unpack_fds(&message, fds);
    if (length != sizeof message.packet || !handle_packet(&message.packet, fds, count))
      while (count > 0) close_fd(&fds[--count]);
  }
}
