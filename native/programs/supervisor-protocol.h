// Messages between a server and its supervisor: one packet each, with the descriptors that belong to it. Included by C
// and C++.
#ifndef PROCWIRE_PROGRAMS_SUPERVISOR_PROTOCOL_H
#define PROCWIRE_PROGRAMS_SUPERVISOR_PROTOCOL_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

// Version of the protocol. The packet layout, HELLO and RESTORED_ALL are the same in every version, so that both sides
// can detect a mismatch.
#define SUPERVISOR_PROTOCOL 1u

enum supervisor_message_type {
  // Sent by the server.
  // value: liveness timeout in milliseconds, id: crashes within a minute after which the supervisor gives up; 0: none
  SUPERVISOR_HELLO = 1,
  SUPERVISOR_LISTENER = 2,  // with the listening socket
  SUPERVISOR_STARTING = 3,  // a start begins; PERSIST or START_FAILED follows
  SUPERVISOR_PERSIST = 4,   // with descriptors; value: bit set of persistent_fd
  SUPERVISOR_START_FAILED = 5,
  SUPERVISOR_CLOSED = 6,  // the process exited and all its output was read
  SUPERVISOR_REMOVE = 7,
  SUPERVISOR_READY = 8,
  SUPERVISOR_HEARTBEAT = 9,
  // Sent by the supervisor.
  SUPERVISOR_RESTORED_LISTENER = 16,
  SUPERVISOR_RESTORED = 17,
  // End of the response to HELLO. id: SEGMENT_VERSION of the supervisor (0 means 1), value: number of processes.
  SUPERVISOR_RESTORED_ALL = 18,
  SUPERVISOR_HANDOFF = 19,  // the server must hand off and exit
  // The response to a PERSIST that the supervisor could not use. It has killed the process if it received its pidfd.
  SUPERVISOR_REJECTED = 20,
};

// Descriptors of a persistent process, in this order.
enum persistent_fd {
  PERSIST_SEGMENT,
  PERSIST_PIDFD,
  PERSIST_STDOUT,
  PERSIST_STDERR,
  PERSIST_STDIN,
  PERSIST_PTY_SLAVE,
  PERSIST_SUPERVISOR_WAKE,
  PERSIST_SERVER_WAKE,
  PERSIST_FD_COUNT
};

struct supervisor_packet {
  uint32_t protocol;
  uint32_t type;
  uint64_t id;
  uint64_t value;
};

// The control buffer of a packet is aligned. With an odd number it would have space for one more descriptor.
static_assert(PERSIST_FD_COUNT % 2 == 0, "the control buffer must have space for PERSIST_FD_COUNT descriptors only");

// A packet for sendmsg and recvmsg. `head` points to the other members, so it cannot be copied.
struct supervisor_message {
  struct supervisor_packet packet;
  struct iovec part;
  size_t control[CMSG_SPACE(sizeof(int) * PERSIST_FD_COUNT) / sizeof(size_t)];  // aligned like a cmsghdr
  struct msghdr head;
};

// Prepares to receive a packet with any number of descriptors.
static inline void prepare_receive(struct supervisor_message* message) {
  memset(message, 0, sizeof *message);
  message->part.iov_base = &message->packet;
  message->part.iov_len = sizeof message->packet;
  message->head.msg_iov = &message->part;
  message->head.msg_iovlen = 1;
  message->head.msg_control = message->control;
  message->head.msg_controllen = sizeof message->control;
}

// Prepares to send a packet with `count` descriptors.
static inline void prepare_send(struct supervisor_message* message, const struct supervisor_packet* packet,
                                const int* fds, unsigned count) {
  prepare_receive(message);
  message->packet = *packet;
  message->head.msg_controllen = count > 0 ? CMSG_SPACE(sizeof(int) * count) : 0;
  if (count == 0) return;
  struct cmsghdr* rights = CMSG_FIRSTHDR(&message->head);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int) * count);
  memcpy(CMSG_DATA(rights), fds, sizeof(int) * count);
}

// Extracts the received descriptors and returns their number.
static inline unsigned unpack_fds(struct supervisor_message* message, int fds[PERSIST_FD_COUNT]) {
  const struct cmsghdr* rights = CMSG_FIRSTHDR(&message->head);
  if (!rights || rights->cmsg_level != SOL_SOCKET || rights->cmsg_type != SCM_RIGHTS) return 0;
  unsigned count = (unsigned)((rights->cmsg_len - CMSG_LEN(0)) / sizeof(int));
  memcpy(fds, CMSG_DATA(rights), sizeof(int) * count);
  return count;
}

#endif
