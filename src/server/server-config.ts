import type { ProcessLimits } from "../exec/backend/process-limits.ts";
import type { RequiredSandbox } from "../exec/backend/sandbox-requirement.ts";
import type { QuotaName } from "./principal-quotas.ts";

/** Settings of a server. Durations are in milliseconds; the command line takes seconds. */
export interface ServerConfig {
  /** Maximum live processes per session. */
  maxProcesses: number;
  /** Maximum live processes of all sessions together. */
  maxServerProcesses: number;
  /** Maximum open connections. The gateway rejects further ones with HTTP 503. */
  maxConnections: number;
  /** Maximum resources that all connections together may hold. */
  caps: ServerCaps;
  /** Whether several principals may connect. Each may then use a quarter of each server limit by default. */
  hasSeveralPrincipals: boolean;
  /**
   * Maximum resources that one principal may hold. Default: the server limit, or a quarter of it. With several principals,
   * one holds at most half of what the others leave.
   */
  quotas: { readonly [N in QuotaName | "memoryBytes"]?: number | undefined };
  /** Memory for all connections and processes together; see `MEMORY_SHARES`. */
  memoryBudgetBytes: number;
  /** Maximum message size. The server closes a connection that sends a larger one. */
  maxMessageBytes: number;
  /** Output retained per process. */
  retainedOutputBytes: number;
  /** Lifetime of a detached session. 0 ends its processes at once, as in v0. */
  detachedSessionTtlMs: number;
  /** Time between TERM and KILL when the server stops. */
  shutdownGraceMs: number;
  /** Whether to accept starts without `mode: "prepared"`. */
  allowDirectExec: boolean;
  /** Whether to accept starts with `mode: "prepared"`, which the policy of the client has resolved. */
  allowPreparedExec: boolean;
  /** Minimum sandbox of every process. Null: none. */
  requireSandbox: RequiredSandbox | null;
  /**
   * Behavior of a detached session whose log is full: pause its processes, or evict the oldest output. A session whose
   * client acknowledges output always pauses them.
   */
  onDetach: "pause" | "evict";
  /** Targets that clients may use with `forward/*`: `loopback`, `any`, `HOST:PORT`, `HOST:*` or a socket path. Null disables it. */
  allowForward: readonly string[] | null;
  /** Network proxies send requests to private addresses to the upstream proxy too. Loopback stays direct. */
  proxyPrivateIpsViaUpstream: boolean;
  /** Credentials that clients may name: `NAME=DOMAIN:HEADER:file:PATH` or `NAME=DOMAIN:HEADER:env:VARIABLE`. */
  credentials: readonly string[];
  /** Resource limits of every process. A client can only lower them. Default: unlimited. */
  limits: ProcessLimits;
}

/** Maximum number of resources of one kind, per owner and per server. */
export interface Cap {
  perOwner: number;
  total: number;
}

/** Caps on resources that cost a descriptor, a timer or helper processes, apart from the processes of clients. */
export interface ServerCaps {
  /** Pending `process/wait` calls, per connection and per server. */
  waits: Cap;
  /** Paths watched by `fs/watchMissing`, per server. The protocol allows 64 per connection. */
  watchedPaths: number;
  /** Files opened by `fs/open`, per server. The protocol allows 128 per connection. */
  fileHandles: number;
  /** Pending `http/request` calls, including streamed bodies. */
  httpRequests: Cap;
  /** Open streams of `forward/*`. */
  forwardStreams: Cap;
  /** Listeners of `forward/listen`, per server. */
  forwardListeners: number;
  /** Sandboxed file servers, which execute file requests with a sandbox, per session and per server. */
  sandboxedFileServers: Cap;
}

export const DEFAULT_SERVER_CAPS: ServerCaps = {
  // A wait sees every event of its process and may hold a compiled pattern. The total allows one per process of a
  // server.
  waits: { perOwner: 1024, total: 16_384 },
  // Each may cost an inotify watch, of which a user often has 8,192. This is half of them.
  watchedPaths: 4096,
  // Each costs a descriptor, which processes and connections need too. Sixteen connections can use their full share.
  fileHandles: 2048,
  // Each costs a socket on both ends, and up to 64 KiB of response head.
  httpRequests: { perOwner: 128, total: 1024 },
  // Each costs a socket and up to a window of 256 KiB. 256 windows fill half of a connection's pending request limit.
  forwardStreams: { perOwner: 256, total: 1024 },
  // Each costs a socket and a port of the host.
  forwardListeners: 256,
  // Each costs three programs and about 60 MB until it has been idle for ten seconds.
  sandboxedFileServers: { perOwner: 4, total: 16 },
};

export const DEFAULT_SERVER_CONFIG: ServerConfig = {
  maxProcesses: 4096,
  // Four full sessions, and half of the usual pid limit of a system.
  maxServerProcesses: 16_384,
  maxConnections: 4096,
  caps: DEFAULT_SERVER_CAPS,
  hasSeveralPrincipals: false,
  quotas: {},
  // All retained output and all snapshots at their limits, plus an eighth each for files and incoming messages.
  memoryBudgetBytes: 512 * 1024 * 1024,
  maxMessageBytes: 64 * 1024 * 1024,
  retainedOutputBytes: 1024 * 1024,
  detachedSessionTtlMs: 30_000,
  shutdownGraceMs: 2_000,
  allowDirectExec: true,
  allowPreparedExec: true,
  requireSandbox: null,
  onDetach: "pause",
  allowForward: null,
  proxyPrivateIpsViaUpstream: false,
  credentials: [],
  limits: {},
};

/** The JSON parser needs a message as one string, and this is the maximum length of a JavaScript string. */
export const LARGEST_MESSAGE_BYTES = 512 * 1024 * 1024 - 24;

/** How long a closed process can still be read before its id is free again. Value of the Codex exec-server. */
export const CLOSED_PROCESS_TTL_MS = 30_000;

/** Maximum wait of a stopping server for pending requests. A file request may block in the kernel forever. */
export const CONNECTION_CLOSE_TIMEOUT_MS = 2_000;

/**
 * Maximum time between TERM and KILL for non-persistent processes in a handoff, even if `shutdownGraceMs` is longer.
 * Together with `CONNECTION_CLOSE_TIMEOUT_MS`, it stays well below the ten seconds that the supervisor waits.
 */
export const HANDOFF_GRACE_MS = 2_000;

/** Interval of heartbeats to the supervisor, which replaces a server that is silent for the liveness timeout. */
export const HEARTBEAT_INTERVAL_MS = 1_000;
export const DEFAULT_LIVENESS_TIMEOUT_MS = 30_000;

/**
 * Time that a resumed client has to read the output it missed, before the server may evict it. Clients read at once;
 * a client that never does must not keep its processes paused.
 */
export const RESUME_READ_TIMEOUT_MS = 10_000;

/**
 * Maximum bytes and events that the server sends to a resumed client before the client has read the missed output. The
 * same limit applies for `RESUME_SETTLE_MS` after the read, while the client processes the result. The Codex client
 * buffers out-of-order events up to 256 events and 1 MiB, also while it processes the read result. It drops the process
 * if the buffer overflows.
 */
export const RESUME_SEND_ALLOWANCE = { bytes: 256 * 1024, events: 100 };
export const RESUME_SETTLE_MS = 250;

/** Large responses wait while more than this is queued for their peer, to bound memory. */
export const MAX_QUEUED_RESPONSE_BYTES = 4 * 1024 * 1024;

/**
 * Maximum bytes queued for one connection: pongs, errors, responses, output. Above it, the server stops reading the
 * peer until the queue drains, and closes a peer that takes nothing for long. Output alone stays below it: it stops
 * at 1 MiB. Large responses stop at 4 MiB plus one response.
 */
export const MAX_QUEUED_BYTES = 8 * 1024 * 1024;

/**
 * Share of the memory budget per kind of memory. The shares add up to more than the whole: retained output is evicted
 * in favor of pending work, and all other kinds wait or are rejected. One response and one message always pass,
 * whatever their size, so one of each kind can exceed the budget. Files are sent in parts, so only HTTP bodies and
 * listings are large responses.
 */
export const MEMORY_SHARES = {
  /** Retained output of all processes: 256 MiB by default, enough for 256 processes with full retention. */
  retention: 1 / 2,
  /** Heads and tails for snapshots: 128 MiB, enough for 128 processes with a full snapshot. */
  snapshots: 1 / 4,
  /** Incomplete messages of 64 KiB to 2 MiB: 64 MiB. Further bytes wait in the socket buffers of the kernel. */
  smallMessages: 1 / 8,
  /** Larger incomplete messages: 64 MiB, one of the maximum size. */
  largeMessages: 1 / 8,
  /** Responses until they are sent: files, blocks, listings, snapshots. */
  responses: 1 / 2,
  /** Bodies of `http/request` that are not streamed: 128 MiB, one of the maximum size. */
  httpBodies: 1 / 4,
} as const;

/** Estimated size of a directory listing: about 50,000 names, the limit of `fs/readDirectory`. */
export const LISTING_RESPONSE_BYTES = 4 * 1024 * 1024;

/** Estimated size of a snapshot: head and tail of two streams at their default size. */
export const SNAPSHOT_RESPONSE_BYTES = 2 * 1024 * 1024;

/** Estimated size of a process list: about 2,000 processes. */
export const PROCESS_LIST_RESPONSE_BYTES = 1024 * 1024;

/** Output of at most this size is read without a charge. The charge of a pending request includes it. */
export const UNCHARGED_READ_BYTES = 4096;

/** Files larger than this are read, encoded and sent in parts, so that they never are in memory as a whole. */
export const CHUNKED_RESPONSE_BYTES = 512 * 1024;

/** Memory of a file that is sent in parts: two parts that were read, and the send queue. */
export const STREAMED_RESPONSE_BYTES = 1536 * 1024;

/**
 * Maximum bytes of requests that one connection has sent and that have no response yet. Above it, the server stops
 * reading the connection, so that a peer that only sends cannot exhaust memory.
 */
export const MAX_PENDING_REQUEST_BYTES = 128 * 1024 * 1024;

/** Replaces `MAX_PENDING_REQUEST_BYTES` while the memory budget is exhausted. */
export const MAX_PENDING_REQUEST_BYTES_WHEN_FULL = 1024 * 1024;

/**
 * Maximum sockets before their upgrade or response. At the limit, the server destroys the oldest. The value equals
 * the listen backlog, so that a burst of clients fits. Each socket costs a descriptor and up to 16 KiB of request
 * head.
 */
export const MAX_PENDING_SOCKETS = 1024;

/**
 * Rate limit for all viewers of a server together: cost per millisecond and maximum burst. A message costs its bytes
 * plus `VIEWER_MESSAGE_COST`, which is about the price of building and sending a notification. This allows 8 MB/s for
 * one viewer of bulk output, or 2,000 short messages per second for all viewers. That is a few percent of one core
 * (`bench/viewers/run.ts`).
 */
export const VIEWER_COST_PER_MS = 8 * 1024;
export const VIEWER_BURST = 512 * 1024;
export const VIEWER_MESSAGE_COST = 4 * 1024;
/** Interval of the viewer scheduler while viewers wait for output. */
export const VIEWER_INTERVAL_MS = 5;
/** Bytes that one viewer gets before the next one. */
export const VIEWER_SLICE_BYTES = 64 * 1024;

/** How long an exited background process can still be read, so that clients can check its result. */
export const EXITED_BACKGROUND_TTL_MS = 10 * 60_000;
/** Maximum exited background processes; the oldest is removed. Each retains up to `retainedOutputBytes`. */
export const MAX_EXITED_BACKGROUND = 256;
