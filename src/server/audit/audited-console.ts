import { errorMessage } from "../../base/error-message.ts";
import { parseObject } from "../../base/json-fields.ts";
import type { Principal } from "../auth/principal.ts";
import { type ConsoleAuth, consoleSecretIn } from "../console/console-auth.ts";
import { findRetriedJob, type JobsRequest } from "../console/jobs-http-api.ts";
import type { ApiResponse, SignInRequest } from "../console/sign-in-http-api.ts";
import type { AuditEvent, ServerEvent } from "./audit-event.ts";
import type { AuditLog } from "./audit-log.ts";

/** Event of each audited path. The other paths only read. */
const EVENTS: ReadonlyMap<string, ServerEvent> = new Map([
  ["/api/sign-in", "console/signIn"],
  ["/api/sign-out", "console/signOut"],
  ["/api/sign-out-everywhere", "console/signOutEverywhere"],
  ["/api/devices/sign-out", "console/signOutDevice"],
  ["/api/devices/link", "console/deviceLink"],
]);

/** Handles a request for sign-in, and records its outcome. */
export async function auditSignIn(
  log: AuditLog | undefined,
  access: ConsoleAuth,
  request: SignInRequest,
  handle: () => Promise<ApiResponse | null>,
): Promise<ApiResponse | null> {
  const event = EVENTS.get(request.path);
  if (!log || event === undefined || request.method !== "POST") return handle();
  // Before the request, which may end the console session.
  const former = access.principalOf(consoleSecretIn(request.authorization));
  return audit(log, { event }, handle, (response) => former ?? signedInPrincipal(access, response));
}

/** Handles a request for jobs, and records the outcome of a retry. The other requests only read. */
export async function auditJobs(
  log: AuditLog | undefined,
  principal: Principal | null,
  request: Pick<JobsRequest, "method" | "target">,
  handle: () => Promise<ApiResponse | null>,
): Promise<ApiResponse | null> {
  const jobId = findRetriedJob(request.target);
  if (!log || jobId === null || request.method !== "POST") return handle();
  return audit(log, { event: "console/retryJob", jobId }, handle, () => principal);
}

/** Handles a request and records its outcome. Refuses it without handling it if the log cannot be written. */
async function audit(
  log: AuditLog,
  action: Pick<AuditEvent, "event" | "jobId">,
  handle: () => Promise<ApiResponse | null>,
  findPrincipal: (response: ApiResponse) => Principal | null,
): Promise<ApiResponse | null> {
  try {
    log.requireWritable(action.event);
  } catch (error) {
    return { status: 503, body: `${errorMessage(error)}\n`, isJson: false };
  }
  const response = await handle();
  if (!response) return null;
  const principal = findPrincipal(response);
  const actor = principal && { principal: principal.id };
  const reason = response.body.trimEnd();
  if (response.status < 400) log.record(actor, { ...action, outcome: "allowed" });
  else if (actor) log.record(actor, { ...action, outcome: "refused", reason });
  else log.rejections.record({ ...action, reason });
  return response;
}

/** Returns the principal that a response has signed in, or null. */
function signedInPrincipal(access: ConsoleAuth, { body, isJson }: ApiResponse): Principal | null {
  const secret = isJson ? parseObject(body)?.secret : undefined;
  return typeof secret === "string" ? access.principalOf(secret) : null;
}
