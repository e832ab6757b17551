import type { MethodName, ParamsOf, ResultOf } from "../../protocol/methods.ts";
import type { AuditFields } from "./audit-event.ts";

/** How calls of an audited method appear in the log. The event is the name of the method. */
export interface AuditedMethod<M extends MethodName> {
  /** Returns the fields that identify the target of the call. */
  target(params: ParamsOf<M>): AuditFields;
  /** Returns fields of the result, and `refusal` if the result means that the server did not execute the call. */
  result?(result: ResultOf<M>): AuditFields & { refusal?: string | undefined };
  /** Returns texts that must not appear in the reason: secrets among the params. */
  hidden?(params: ParamsOf<M>): (string | undefined)[];
}

/** A method whose calls leave no line. */
export interface UnauditedMethod {
  /** Why the calls need no line. */
  unaudited: string;
}

type AuditRules = { readonly [M in MethodName]: AuditedMethod<M> | UnauditedMethod };

const READS_OUTPUT: UnauditedMethod = { unaudited: "reads a process that the session started or attached to" };
const OPEN_HAS_LINE: UnauditedMethod = { unaudited: "uses a file that the line of its open names" };
const STREAM_HAS_LINE: UnauditedMethod = { unaudited: "uses a stream that the line of its open or listen names" };
const DESCRIBES_HOST: UnauditedMethod = { unaudited: "describes the host" };

const status = (result: { status: string }) => ({
  refusal: result.status === "accepted" ? undefined : result.status,
});
const onPath = ({ path, sandbox }: { path: string; sandbox?: unknown }): AuditFields => ({
  path,
  sandboxed: isSandboxed(sandbox),
});
const isSandboxed = (sandbox: unknown) => (sandbox === undefined || sandbox === null ? undefined : true);

/** Audit rule of each method. A new method without an entry is a type error. */
export const AUDIT_RULES: AuditRules = {
  initialize: {
    target: ({ clientName, resumeSessionId, takeOver }) => ({
      client: clientName,
      change: resumeSessionId === undefined ? "opened" : takeOver ? "taken over" : "resumed",
    }),
    hidden: ({ resumeSessionId, takeOverFrom }) => [resumeSessionId, takeOverFrom],
  },
  "environment/info": DESCRIBES_HOST,
  "environment/status": DESCRIBES_HOST,
  "environmentConfig/read": { target: ({ cwd }) => ({ cwd }) },
  "capabilityRoots/discoverV1": { target: ({ roots }) => ({ paths: roots.map(({ path }) => path) }) },
  "capabilities/discoverV2": { target: ({ cwd }) => ({ cwd }) },

  "command/exec": {
    target: ({ argv, cwd, tty }) => ({ argv, cwd, tty }),
    result: ({ sessionId }) => ({ processId: sessionId }),
  },
  "command/exec/write": {
    target: ({ sessionId, chunk }) => ({ processId: sessionId, bytes: chunk.length }),
    result: ({ accepted }) => ({ refusal: accepted ? undefined : "not accepted" }),
  },
  "command/exec/terminate": { target: ({ sessionId }) => ({ processId: sessionId, mode: "force" }) },

  "process/start": {
    target: ({ processId, argv, cwd, tty, name, sandbox }) => ({
      ...{ processId, argv, cwd, tty, name },
      sandboxed: isSandboxed(sandbox),
    }),
  },
  "process/read": READS_OUTPUT,
  "process/write": { target: ({ processId, chunk }) => ({ processId, bytes: chunk.length }), result: status },
  "process/signal": { target: ({ processId, signal }) => ({ processId, signal }) },
  "process/terminate": { target: ({ processId, mode }) => ({ processId, mode: mode?.type ?? "force" }) },
  "process/closeStdin": { target: ({ processId }) => ({ processId }), result: status },
  "process/resize": { unaudited: "changes only the terminal size" },
  "process/wait": READS_OUTPUT,
  "process/snapshot": READS_OUTPUT,
  "process/list": { unaudited: "lists the processes of the principal" },
  "process/attach": {
    target: ({ handle, processId = handle, role }) => ({ processId, handle, role }),
    result: ({ role }) => ({ role }),
  },
  "process/detach": { target: ({ processId }) => ({ processId }) },
  "process/screen": READS_OUTPUT,
  "process/inputs": READS_OUTPUT,
  "process/claimQueries": { unaudited: "selects the terminal that replies to queries" },
  "process/tree": { unaudited: "describes a process of the principal" },
  "process/connections": { unaudited: "describes a process of the principal" },
  "process/share": {
    target: ({ handle, role, ttlMs }) => ({ handle, role, ttlMs }),
    result: ({ shareId }) => ({ shareId }),
  },
  "process/listShares": { unaudited: "lists share links without their tokens" },
  "process/revokeShare": {
    target: ({ handle, shareId }) => ({ handle, shareId }),
    result: ({ revoked }) => ({ refusal: revoked ? undefined : "unknown share link" }),
  },
  "process/kill": {
    target: ({ handle, signal, mode }) => ({
      handle,
      signal,
      mode: signal === undefined ? (mode?.type ?? "force") : undefined,
    }),
  },

  "network/ask": { unaudited: "the line `process/question` has the outcome" },
  "network/questions": { unaudited: "lists the network questions of the principal" },
  "network/answer": {
    target: ({ questionId, answer }) => ({ questionId, answer }),
    result: ({ accepted, host, port }) =>
      accepted ? { target: `${host}:${port}` } : { refusal: "unknown question, or answered before" },
  },

  "fs/readFile": { target: onPath },
  "fs/writeFile": { target: onPath },
  "fs/createDirectory": { target: onPath },
  "fs/getMetadata": { target: onPath },
  "fs/canonicalize": { target: onPath },
  "fs/readDirectory": { target: onPath },
  "fs/walk": { target: onPath },
  "fs/remove": { target: ({ recursive = true, ...params }) => ({ ...onPath(params), recursive }) },
  "fs/copy": {
    target: ({ sourcePath, destinationPath, recursive, sandbox }) => ({
      ...onPath({ path: sourcePath, sandbox }),
      destination: destinationPath,
      recursive,
    }),
  },
  "fs/open": {
    target: ({ handleId, mode = "read", ...params }) => ({ ...onPath(params), handleId, mode }),
  },
  "fs/readBlock": OPEN_HAS_LINE,
  "fs/writeBlock": OPEN_HAS_LINE,
  "fs/close": OPEN_HAS_LINE,
  "fs/watchMissing": {
    target: ({ missing, present, sandbox }) => ({
      paths: present === undefined ? missing : [...missing, present],
      sandboxed: isSandboxed(sandbox),
    }),
  },
  "fs/scan": { target: onPath },
  "fs/writeAtomic": { target: onPath },
  "fs/setAttributes": { target: onPath },
  "fs/openPartial": { target: ({ handleId, path }) => ({ path, handleId }) },
  "fs/checksum": OPEN_HAS_LINE,
  "fs/commit": { target: ({ handleId, path, size }) => ({ path, handleId, bytes: size }) },

  "http/request": {
    target: ({ method, url }) => ({ method, url: withoutSecrets(url) }),
    result: ({ status: code }) => ({ status: code }),
    hidden: ({ url, headers = [] }) => [
      url,
      normalizedUrl(url),
      ...urlSecrets(url),
      ...headers.map(({ value }) => value),
    ],
  },

  "forward/open": {
    target: ({ check, ...address }) => ({ target: forwardTarget(address), mode: check ? "check" : undefined }),
  },
  "forward/write": STREAM_HAS_LINE,
  "forward/end": STREAM_HAS_LINE,
  "forward/close": STREAM_HAS_LINE,
  "forward/listen": {
    target: ({ listenId, host = "127.0.0.1", ...address }) => ({
      listenId,
      target: forwardTarget({ host, ...address }),
    }),
    result: ({ port }) => ({ port }),
  },
  "forward/unlisten": { target: ({ listenId }) => ({ listenId }) },
  "forward/watchPorts": { unaudited: "lists the ports of the session's processes" },

  "access/list": { unaudited: "lists connections and console sessions of the principal" },
  "access/revoke": {
    target: ({ accessId }) => ({ accessId }),
    result: ({ revoked }) => ({ refusal: revoked ? undefined : "unknown access" }),
  },
  "token/revoke": { target: ({ tokenId }) => ({ tokenId }), result: ({ ended }) => ({ ended }) },

  "console/login": { target: () => ({}) },
};

/** Returns the address of a forward, or `*` if a check names none. */
function forwardTarget({ host, port, path }: Partial<ParamsOf<"forward/open">>): string {
  if (path !== undefined) return path;
  return host === undefined && port === undefined ? "*" : `${host ?? ""}:${port ?? ""}`;
}

/** Returns scheme, host and path of a URL: no user, no query string, no fragment. */
function withoutSecrets(text: string): string {
  if (!URL.canParse(text)) return "(invalid URL)";
  const { protocol, host, pathname } = new URL(text);
  return `${protocol}//${host}${pathname}`;
}

function normalizedUrl(text: string): string | undefined {
  return URL.canParse(text) ? new URL(text).href : undefined;
}

function urlSecrets(text: string): string[] {
  if (!URL.canParse(text)) return [];
  const { search, hash, username, password } = new URL(text);
  return [search, hash, username, password];
}
