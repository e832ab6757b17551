import type {
  clientNotifications,
  MethodName,
  ServerNotificationName,
  ServerRequestName,
} from "../../src/protocol/methods.ts";

/** Descriptions of the methods in PROTOCOL.md. */
export const METHOD_TEXTS: Readonly<Record<MethodName, string>> = {
  initialize:
    "Opens a session, or resumes a detached one. Must be the first request, once per connection. `takeOver` resumes a session that still has a connection and closes that connection. A reconnecting client sends its last `attachmentId` as `takeOverFrom`; the server rejects the request if another client has resumed the session since. A changed `generation` means that the server restarted and that only persistent processes survived.",
  "environment/info": "Returns the host's shell, directories, capabilities and degraded features.",
  "environment/status": "Returns `ready`.",
  "environmentConfig/read": "Returns the requested keys of the host's configuration files.",
  "capabilityRoots/discoverV1": "Finds plugins and skills below the given roots.",
  "capabilities/discoverV2": "Finds plugins and skills for a working directory.",
  "command/exec": "Starts a process that ends with its connection. The server chooses the session id.",
  "command/exec/write": "Writes to the terminal of a process.",
  "command/exec/terminate": "Kills a process with SIGKILL.",
  "process/start":
    'Starts a process with pipes or a terminal. The response precedes all notifications of the process. `secretGuard` replaces the default excludes of `envPolicy` with a filter for names and values that look like secrets; the response lists the removed variables. `limits` sets resource limits; the server rejects a limit that it cannot enforce. When a limit ends the process, its exit has `reason: "limit"` and names the limit. CPU time, open files and `processMemoryBytes` apply to each process of the tree separately. `cwdIdentity` is the expected device and inode of `cwd`. The server opens `cwd`, rejects a different directory or a path with symbolic links, and starts the process in the directory that it opened. A process with `lifetime: "server"` survives its session. From then on, no reader pauses its output, and clients find it by its handle. `name` is unique among the live processes of the principal; the server rejects a name in use with the handle of the process that has it. Names and labels require the extension `names`.',
  "process/read": "Returns retained output after a sequence number without consuming it. Can wait for new output.",
  "process/write": "Writes to stdin. A repeated `writeId` is accepted but not written again.",
  "process/signal": "Sends a signal to the process group: `interrupt`, or any signal name.",
  "process/terminate": "Ends the process tree: immediately with SIGKILL, or with SIGTERM and a grace period.",
  "process/closeStdin": "Closes stdin after all earlier writes were delivered.",
  "process/resize": "Changes the terminal size.",
  "process/wait":
    "Waits for exit, a pattern in the output, a period without output, a listening port, or an amount of output.",
  "process/snapshot": "Returns head and tail of each stream, the exit status and the terminal state.",
  "process/list":
    "Lists the processes of this session, or with `allSessions` those of all sessions of the same principal. Each has a public `handle`. With `allSessions` each has its owner, and an operator sees the processes of all principals. Session ids are never listed. With `usage`, each live process has the CPU and memory of its tree; one sample per second serves all clients.",
  "process/attach":
    "Attaches this session to a process of another session of the same principal (an operator: of any principal). The session then uses `processId` for `process/read`, `process/wait`, `process/snapshot` and notifications. A driver can also use `process/write`, `process/closeStdin`, `process/resize`, `process/signal` and `process/terminate`. A process has any number of viewers and at most one driver. Attaching as driver replaces the current driver, which becomes a viewer. Attaching again changes the role. A viewer never pauses the process; a slow viewer receives `process/gap` and continues after the gap. A slow driver pauses the process, as a slow owner does. The owner keeps all its rights. An attached terminal does not reply to terminal queries: see `terminalQueries`. A lost connection suspends the attachment until the session is resumed. With `screen`, the result has the rendered screen after a resize by `size`, and the server sends only later events.",
  "process/detach": "Ends the attachment to a process. The process keeps running.",
  "process/screen":
    "Returns the current screen of an own or attached process with a terminal, rendered from the retained output. A client that draws `data`, then `incomplete`, then the output after `seq`, shows the same screen as a client that draws all output. If early output was evicted, the screen starts empty, with the modes, the scroll region and the title that the evicted output has set. Use it after `process/gap`, or instead of the retained output (`screen` of `process/attach`). `process/read` returns earlier output for scrollback.",
  "process/inputs":
    "Returns the input history of an own or attached process: who wrote how many bytes, and when. The bytes themselves are included only if the process was started with `recordInput`, and only input that the terminal echoed. The history of a process with a terminal and `terminalQueries`, or with `recordInput`, is complete. Otherwise it contains the input of the times when another session was attached.",
  "process/claimQueries":
    'Extension `queryClaims`, for the session that started the process with `terminalQueries: "claimed"`. Claims the terminal queries in the output up to `seq`: the client\'s terminal replies to them. Call it before displaying that output. After a disconnect, the server replies to all unclaimed queries, and to new ones until the session is resumed. It rejects later claims of these queries. After a takeover, the server replies to the queries without a reply from the previous client.',
  "process/tree":
    "Returns the process with this handle and its descendants: commands, states and resource usage at this moment. Same access rules as `process/attach`.",
  "process/connections":
    "Returns the network targets that the process with this handle requested, with the decisions of its network proxy: at most 200, each with the number of requests. Same access rules as `process/attach`.",
  "process/share":
    "Creates a share token for one process of the same principal. A connection with this token can only attach to that process in the granted role; a driver token also permits the viewer role. All other methods and handles are rejected. The token expires after its TTL or when the process ends. Expiry of the TTL also closes the connections that used the token. `process/revokeShare` invalidates it earlier.",
  "process/listShares":
    "Returns the valid share links of one process, each with the number of open connections that use it. Without `handle`, returns those of all processes of the same principal (an operator: of any principal). Same access rules as `process/share`; the tokens are not returned.",
  "process/revokeShare": "Invalidates a share link of one process and closes the connections that use it.",
  "process/kill":
    "Signals or terminates a process of the same principal by its handle, without attaching. `running` is true if the process had not exited before the call.",
  "network/ask":
    "Lets users of the web console answer a `network/policyRequest` that waits for the response of this client. Only the session that started the process can ask. Returns the first answer of a user; the client then responds to the `network/policyRequest`. The question ends without an answer when the server has all responses to its requests for this host and port, so the client can ask elsewhere at the same time. Rejected by a server without a console.",
  "network/questions":
    "Returns the open questions of `network/ask` about processes of the same principal (an operator: of any principal). Share links cannot use it.",
  "network/answer":
    "Answers a network question. The first answer wins: `accepted` is false if the question has ended. Same access rules as `network/questions`.",
  "fs/readFile": "Reads a whole file.",
  "fs/writeFile": "Creates or replaces a file.",
  "fs/createDirectory": "Creates a directory.",
  "fs/getMetadata": "Returns type, size and times of a path.",
  "fs/canonicalize": "Resolves symbolic links and dot segments to the real path.",
  "fs/readDirectory": "Lists the entries of a directory.",
  "fs/walk": "Lists a directory tree in breadth-first order, up to the given limits.",
  "fs/remove": "Removes a file or a directory tree.",
  "fs/copy": "Copies a file or a directory tree.",
  "fs/open": "Opens a file to read it, or to replace it, in blocks.",
  "fs/readBlock": "Reads a block of an open file.",
  "fs/writeBlock": "Writes a block of an open file.",
  "fs/close": "Closes an open file.",
  "fs/watchMissing": "Sends `fs/missingChanged` once, when one of the missing paths appears.",
  "fs/scan":
    "Returns the metadata that a copy needs: type, size, mode, times and link target of a path, and of its entries if it is a directory. Large directories are split into pages of 4,096 entries.",
  "fs/writeAtomic":
    "Atomically creates or replaces a file or a symbolic link: the server writes a temporary file in the same directory and renames it. Readers never see a partial file, and a failure leaves no temporary file. Directories and special files are not replaced.",
  "fs/setAttributes": "Sets permission bits and modification time.",
  "fs/openPartial":
    "Opens the partial file of an interrupted copy, or creates one. `fs/writeBlock`, `fs/checksum`, `fs/commit` and `fs/close` accept its file handle. The partial file survives a lost connection, so that the copy can resume.",
  "fs/checksum":
    "Returns the SHA-256 or, with `gmacKey`, the AES-128-GMAC of the first bytes of an open file. Bytes that were read or written sequentially through the file handle are already hashed and not read again.",
  "fs/commit":
    "Completes a partial file: verifies size and checksum, sets its attributes, renames it to `path` and closes its file handle.",
  "http/request": "Sends an HTTP request from the server's host. The response body is returned whole or streamed.",
  "forward/open":
    "Opens a connection from the server's host, to a TCP address or a Unix socket. With `check` it only checks the permission. The response follows when it is established. Requires `--allow-forward`, which permits loopback targets and the targets it lists. The host `procwire-console` with port 0 is the web console of a server on a Unix socket, which needs no permission because it requires a sign-in. The stream closes with the client's connection. Each direction has a window of 256 KiB: `forward/write` uses it until its response, `forward/data` until `forward/ack`.",
  "forward/write":
    "Sends at most 64 KiB. The response follows when the target socket has accepted the bytes. Several writes may be in flight; their order is kept.",
  "forward/end": "Closes the write side of a stream. The target may still send.",
  "forward/close": "Resets a stream in both directions.",
  "forward/listen":
    "Listens on a TCP port or a Unix socket of the server's host. The rules of `forward/open` apply. The session owns the listener, which survives a lost connection. Meanwhile accepted sockets wait until the session is resumed.",
  "forward/unlisten": "Closes a listener. Its streams stay open.",
  "forward/watchPorts":
    "Sends `forward/ports` with the listening ports of this session's processes, until the connection ends.",
  "access/list":
    "Lists the open connections and console sessions of the same principal, with the guests of its share links. An operator sees those of all principals.",
  "access/revoke":
    "Closes a connection, or ends a console session. The client does not reconnect. A client whose token is still valid can connect again: revoke the token as well.",
  "token/revoke":
    "Revokes a JWT by its claim `jti`, and ends its connections, console sessions and share links. The server stores the id, also across restarts. An operator can revoke every token, other principals only their own tokens that are in use.",
  "console/login":
    "Creates a one-time login of this connection's principal for the web console. The login URL is the address of the server with `http` or `https`, `/` and `fragment`.",
};

/** Descriptions of the notifications of both sides in PROTOCOL.md. */
export const NOTIFICATION_TEXTS: Readonly<Record<ServerNotificationName | keyof typeof clientNotifications, string>> = {
  "network/policyDecision":
    "A decision of the network proxy of a process that was started with `networkProxy`. Best effort, without a sequence number. A request that the mode blocks has two decisions.",
  "process/output": "A chunk of output.",
  "process/exited": "The leader exited. All its output precedes this notification.",
  "process/closed": "All output streams reached end of file. The last notification of a process.",
  "process/started": "The process runs with this pid.",
  "process/failed":
    "The server lost track of the process; its exit status is unknown. Attached sessions receive it without the extension.",
  "process/roleChanged": "Sent to an attached session when another client changed its role.",
  "process/driverChanged":
    "Sent to the owner session when another session becomes driver, or the driver leaves. Sent to viewers when the driver or the connected owner leaves or returns. A session leaves by a detach, a lost connection or its end.",
  "process/resized":
    "Sent to the owner and all attached sessions: the terminal size changed for the output after `afterSeq`. Precedes that output. After an attach or a resume, the server sends the initial size and all earlier changes, if there were any.",
  "process/gap": "Sent to an attached session: output in this range was evicted before the session received it.",
  "fs/missingChanged": "One of the watched paths appeared.",
  "http/request/bodyDelta": "A chunk of a streamed HTTP body.",
  "forward/data": "A chunk of a stream.",
  "forward/ended": "The target closed its write side. The client may still write.",
  "forward/closed": "The stream is closed: both sides ended it, or it failed with the given error.",
  "forward/accepted": "A listener accepted a connection, which is a new stream.",
  "forward/ports": "The listening ports of this session's processes changed.",
  "command/exec/outputDelta": "A chunk of output of a v0 process. Terminal output has stream `stdout`.",
  "command/exec/exited": "A v0 process exited.",
  initialized: "Completes the handshake. The server ignores its params.",
  "process/ack": "The client stored all events up to `seq`; the server may evict them.",
  "forward/ack": "The client processed this many bytes of a stream; the server may send as many more.",
};

/** Descriptions of the requests that the server sends. */
export const SERVER_REQUEST_TEXTS: Readonly<Record<ServerRequestName, string>> = {
  "network/policyRequest":
    "Asks whether a process may send a request that its network policy does not decide. Sent only if the process was started with `policyDecisionTimeoutMs`. The response applies to this request alone. The server denies the request on an error, an invalid result, a lost connection, more than 256 open questions, and after `policyDecisionTimeoutMs` and 5 seconds. It handles responses in any order and ignores late ones.",
};
