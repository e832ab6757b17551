import { omitUndefined } from "../../base/omit-undefined.ts";
import type { ExecContext } from "../sessions/exec-context.ts";
import type { ExecSession } from "../sessions/exec-session.ts";
import type { Tool } from "../tool.ts";
import { toolDefinitions } from "./tool-definitions.ts";
import { validatedTool } from "./validated-tool.ts";

/** Lists the exec sessions, so that a model can find a forgotten session id. */
export function listSessionsTool(context: ExecContext): Tool {
  return validatedTool(toolDefinitions.listSessions, async () => {
    const nowMs = context.clock.monotonic();
    const sessions = context.sessions.list().map((session) => describe(session, nowMs));
    const lines = sessions.map(
      ({ session_id, state, age_seconds, output_bytes, tty, workdir, cmd }) =>
        `${session_id}: ${state}, ${age_seconds} s old, ${output_bytes} bytes of output${tty ? ", tty" : ""}, in ${workdir}: ${cmd}`,
    );
    return {
      ok: true,
      text: lines.join("\n") || "No sessions",
      structured: { sessions: sessions.map(omitUndefined) },
    };
  });
}

function describe(session: ExecSession, nowMs: number) {
  const { end, command } = session;
  return {
    session_id: session.sessionId,
    state: describeState(end),
    exit_code: end?.type === "exited" ? end.exitCode : undefined,
    cmd: command.cmd,
    workdir: command.cwd,
    tty: command.tty,
    sandbox: command.sandbox,
    age_seconds: Math.round((nowMs - session.startedAtMs) / 1000),
    quiet_seconds: Math.round((nowMs - session.lastOutputAtMs) / 1000),
    output_bytes: session.archive.totalBytes,
  };
}

function describeState(end: ExecSession["end"]): string {
  if (!end) return "running";
  return end.type === "exited" ? `exited with code ${end.exitCode}` : end.type;
}
