/** Descriptions of the fields and events of the audit log, which no program needs at run time. */
import { methods } from "../../src/protocol/methods.ts";
import type { Actor, AuditEvent, ServerEvent } from "../../src/server/audit/audit-event.ts";
import { AUDIT_RULES } from "../../src/server/audit/audit-rules.ts";

type FieldName = keyof AuditEvent | keyof Actor | "seq" | "prev" | "time";

/** Meaning of each field. */
const FIELDS: Readonly<Record<FieldName, string>> = {
  seq: "sequence number of the line, from 1, without holes",
  prev: "SHA-256 of the line before, without its line break; zeros in the first line",
  time: "UTC time of the outcome",
  principal: "principal that acts; absent if it is unknown",
  session: "number of the session, as in `process/inputs`; null before the handshake",
  event: "method, or one of the events below",
  outcome: "`allowed`, `refused` (nothing was executed) or `failed` (begun, then an error)",
  reason: "why it was refused, failed or ended; at most 500 characters",
  processId: "process id within the session",
  handle: "handle of the process",
  argv: "command; long ones are clipped",
  cwd: "working directory",
  tty: "whether the process has a terminal",
  name: "name of the process",
  sandboxed: "true if the call requested a sandbox",
  bytes: "size of an input, a file or an incomplete line",
  signal: "signal that was sent, or that ended the process",
  mode: "`force` or `graceful` (termination), `read` or `replace` (file), `check` (forward), kind of approval",
  exitCode: "exit code",
  change: "session `opened`, `resumed` or `taken over`",
  client: "name that the client sent",
  role: "`viewer` or `driver`",
  ttlMs: "validity of a share link",
  shareId: "identifier of a share link",
  accessId: "identifier of a connection or console session",
  tokenId: "claim `jti` of a revoked token",
  ended: "connections, console sessions and share links that ended with a token",
  jobId: "identifier of a fan-out job",
  questionId: "identifier of a network question",
  answer: "answer of a user: `once`, `process`, `session`, `prefix`, `always` or `deny`",
  path: "file, source of a copy",
  paths: "files of a call with several",
  destination: "destination of a copy",
  recursive: "whether a directory was copied or removed with its content",
  handleId: "id of an open file",
  method: "HTTP method",
  url: "scheme, host and path, without user, query string and fragment",
  status: "HTTP status",
  target: "`HOST:PORT` or socket path of a forward or listener",
  port: "port that a listener got",
  listenId: "id of a listener",
  peer: "address of a rejected client",
  omitted: "rejections without a line since the last one (120 lines per minute)",
  pid: "process id of the server",
  version: "version of the server",
  digest: "SHA-256 of the incomplete line",
  lines: "lines that the sink, or the file, did not get",
  refusedCalls: "calls refused while the file could not be written",
};

/** Meaning of each event that is not a method. */
const EVENTS: Readonly<Record<ServerEvent, string>> = {
  approval: "a rule or a user decided about a command or its network (`mcp`, `exec`)",
  authentication: "a connection was rejected: no or wrong token, or a sandboxed process",
  "console/signIn": "a browser exchanged a token for a console session",
  "console/signOut": "a console session ended at the request of its user",
  "console/signOutEverywhere": "all console sessions of the principal ended",
  "console/signOutDevice": "another console session of the principal ended",
  "console/deviceLink": "a login URL for another device was created",
  "console/retryJob": "failed rows of a job became pending again",
  "process/ended": "a process ended; its start names the principal",
  "process/network": "a network proxy allowed or blocked a target; once per target and decision",
  "process/question": "a network question ended; `reason` names answer and principal, or why there is none",
  "log/opened": "a server opened the file",
  "log/fragment": "ends an incomplete line that a crash left before this line",
  "log/resumed": "the file can be written again",
  "log/sinkDropped": "the second sink did not receive lines",
};

/** Returns the tables of docs/operate.md: fields, events, methods without a line. */
export function auditTables(): string[] {
  const unaudited = new Map<string, string[]>();
  for (const [method, rule] of Object.entries(AUDIT_RULES))
    if ("unaudited" in rule) unaudited.set(rule.unaudited, [...(unaudited.get(rule.unaudited) ?? []), `\`${method}\``]);
  return [
    table(["field", "meaning"], Object.entries(FIELDS).map(toCode)),
    table(
      ["event", "meaning"],
      [[`${audited()} methods`, "the call of a client"], ...Object.entries(EVENTS).map(toCode)],
    ),
    table(
      ["methods without a line", "reason"],
      [...unaudited].map(([reason, names]) => [names.join(", "), reason]),
    ),
  ];
}

const audited = () =>
  Object.keys(methods).length - Object.values(AUDIT_RULES).filter((rule) => "unaudited" in rule).length;

const toCode = ([name, text]: [string, string]): [string, string] => [`\`${name}\``, text];

function table(head: [string, string], rows: readonly [string, string][]): string {
  return [head, ["---", "---"], ...rows]
    .map(([left, right]) => `| ${left} | ${right} |\n`)
    .join("")
    .replace("| --- | --- |", "|---|---|");
}
