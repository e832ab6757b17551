// The packet in which a sandbox passes the listeners of its managed network to the server: this byte, and the
// listeners as SCM_RIGHTS, in the order of the requested ports. It is the only packet of the channel.
#ifndef PROCWIRE_PROGRAMS_SANDBOX_LISTENERS_PROTOCOL_H
#define PROCWIRE_PROGRAMS_SANDBOX_LISTENERS_PROTOCOL_H

#define SANDBOX_LISTENERS_PACKET 'L'
// Two for the proxy of a process. Codex routes every distinct endpoint in the proxy variables.
#define MAX_SANDBOX_LISTENERS 32

#endif
