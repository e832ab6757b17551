import type { MethodName } from "../../protocol/methods.ts";

/**
 * Outcome of an audited action. `refused`: the server rejected it and did not execute it. `failed`: the server began it, and
 * it failed.
 */
export type AuditOutcome = "allowed" | "refused" | "failed";

/** The principal and session that act. `session` is a number, because session ids are secret. */
export interface Actor {
  principal: string;
  /** Absent for actions of the console, which has no session of the protocol; null before the handshake. */
  session?: number | null | undefined;
}

/** Events that are not methods. */
export type ServerEvent =
  | "approval"
  | "authentication"
  | "console/signIn"
  | "console/signOut"
  | "console/signOutEverywhere"
  | "console/signOutDevice"
  | "console/deviceLink"
  | "console/retryJob"
  | "process/ended"
  | "process/network"
  | "process/question"
  | "log/opened"
  | "log/fragment"
  | "log/resumed"
  | "log/sinkDropped";

/**
 * Fields of a line that depend on its event. Never the content of a file, input, output, a token, a session id, a query
 * string or the value of a header. `scripts/docs/audit-texts.ts` describes them.
 */
export interface AuditFields {
  processId?: string | undefined;
  handle?: string | undefined;
  argv?: readonly string[] | undefined;
  cwd?: string | undefined;
  tty?: boolean | undefined;
  name?: string | undefined;
  bytes?: number | undefined;
  signal?: string | null | undefined;
  mode?: string | undefined;
  exitCode?: number | null | undefined;
  change?: "opened" | "resumed" | "taken over" | undefined;
  client?: string | undefined;
  role?: string | undefined;
  ttlMs?: number | undefined;
  shareId?: string | undefined;
  accessId?: string | undefined;
  tokenId?: string | undefined;
  ended?: number | undefined;
  jobId?: string | undefined;
  questionId?: string | undefined;
  answer?: string | undefined;
  path?: string | undefined;
  paths?: readonly string[] | undefined;
  destination?: string | undefined;
  recursive?: boolean | undefined;
  sandboxed?: boolean | undefined;
  handleId?: string | undefined;
  method?: string | undefined;
  url?: string | undefined;
  status?: number | undefined;
  target?: string | undefined;
  port?: number | undefined;
  listenId?: string | undefined;
  peer?: string | undefined;
  omitted?: number | undefined;
  pid?: number | undefined;
  version?: string | undefined;
  digest?: string | undefined;
  lines?: number | undefined;
  refusedCalls?: number | undefined;
}

/** One action and its outcome. */
export interface AuditEvent extends AuditFields {
  event: MethodName | ServerEvent;
  outcome?: AuditOutcome | undefined;
  /** Why the action was refused, failed or ended. */
  reason?: string | undefined;
}

/** Maximum characters of a reason, so that an error text cannot fill the log. */
const MAX_REASON_CHARS = 500;
/** Maximum characters of any other text. Longer than every path that Linux accepts as a file. */
const MAX_TEXT_CHARS = 4096;
/** Maximum characters of a list, so that a line with escapes stays below the size of a datagram. */
const MAX_LIST_CHARS = 16 * 1024;

/** Returns the event with clipped texts and lists. */
export function clipEvent(event: AuditEvent): AuditEvent {
  const clipped: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(event)) {
    if (typeof value === "string") clipped[key] = clipText(value, key === "reason" ? MAX_REASON_CHARS : MAX_TEXT_CHARS);
    else clipped[key] = Array.isArray(value) ? clipList(value) : value;
  }
  // Only lengths change.
  return clipped as unknown as AuditEvent;
}

function clipText(text: string, maxChars: number): string {
  return text.length <= maxChars ? text : `${text.slice(0, maxChars)}… (${text.length} characters)`;
}

function clipList(list: readonly string[]): string[] {
  const clipped: string[] = [];
  let chars = 0;
  for (const text of list) {
    const kept = clipText(text, MAX_TEXT_CHARS);
    chars += kept.length + 1;
    if (chars > MAX_LIST_CHARS) return [...clipped, `… (${list.length - clipped.length} more)`];
    clipped.push(kept);
  }
  return clipped;
}
