import { reasonWords } from "../../tools/network/network-denial-compat.ts";
import { formatTarget } from "../../tools/network/network-target.ts";
import type {
  ExecCommandEnd,
  NetworkAccess,
  TerminalDriver,
  TerminalWaiting,
  UnifiedExecEvent,
} from "../../tools/sessions/exec-events.ts";
import type { ThreadItem, ToolEvent } from "../agent-notification.ts";

export type CommandItem = Extract<ThreadItem, { type: "commandExecution" }>;

/** Exit code of a command that did not start or is no longer known. */
export const NO_EXIT_CODE = -1;

/**
 * Emits commands as items: once at the start and once at the end, regardless of how many tool calls read their output.
 * If a command is repeated without the sandbox, the item ends with the second attempt. A command that outlives the run
 * has no completed item.
 */
export async function followCommands(
  events: AsyncIterable<UnifiedExecEvent>,
  emitItem: (method: "item/started" | "item/completed", item: CommandItem) => void,
  emitTerminalEvent: (event: ToolEvent) => void = () => undefined,
): Promise<void> {
  /** Items by exec session id, which both attempts at a command share. */
  const running = new Map<number, CommandItem>();
  for await (const event of events) {
    if (event.type === "ExecCommandBegin") {
      if (running.has(event.sessionId)) continue;
      const item: CommandItem = {
        type: "commandExecution",
        id: event.processId,
        command: event.cmd,
        argv: event.argv,
        output: "",
        exitCode: null,
        status: "inProgress",
      };
      running.set(event.sessionId, item);
      emitItem("item/started", item);
    } else if (event.type === "ExecCommandEnd" && !event.willRetry) {
      const item = running.get(event.sessionId);
      running.delete(event.sessionId);
      if (item && event.end.type !== "closed") emitItem("item/completed", toEndedItem(item, event));
    } else if (event.type === "TerminalWaiting" || event.type === "TerminalDriver") {
      emitTerminalEvent(terminalEvent(event));
    } else if (event.type === "NetworkAccess" && event.decision !== "allow") {
      emitTerminalEvent(blockedEvent(event));
    }
  }
}

/** Returns JSON for programs, and for users a line with the attach command. */
function terminalEvent(event: TerminalWaiting | TerminalDriver): ToolEvent {
  const session = { session_id: event.sessionId };
  if (event.type === "TerminalDriver") {
    const json = JSON.stringify({ type: "terminal.driver", ...session, driver: event.driver });
    const activity = event.driver === "user" ? "a user drives" : "handed back";
    return { json, line: `session ${event.sessionId}: ${activity}` };
  }
  const { waitingFor, reason, attach } = event;
  const fields = { waiting_for: waitingFor, reason: reason ?? undefined, attach: attach ?? undefined };
  const activity = waitingFor === "secret" ? "waits for a secret" : `asks for a user: ${reason}`;
  const attachText = attach ? `; attach with: ${attach.command}` : "";
  return {
    json: JSON.stringify({ type: "terminal.waiting", ...session, ...fields }),
    line: `session ${event.sessionId} ${activity}${attachText}`,
  };
}

/** Returns JSON for programs, and for users a line with the blocked target. */
function blockedEvent({ sessionId, host, port, protocol, decision, reason }: NetworkAccess): ToolEvent {
  const fields = { session_id: sessionId, host, port, protocol, decision, reason };
  return {
    json: JSON.stringify({ type: "network.blocked", ...fields }),
    line: `session ${sessionId}: network blocked ${formatTarget({ host, port })} (${reasonWords(reason)})`,
  };
}

function toEndedItem(item: CommandItem, { end, head, tail, omittedBytes }: ExecCommandEnd): CommandItem {
  const notice = omittedBytes === 0 ? "" : `\n... ${omittedBytes} bytes omitted ...\n`;
  const output = Buffer.concat([head, Buffer.from(notice), tail]).toString("utf8");
  if (end.type === "exited")
    return {
      ...item,
      output,
      exitCode: end.exitCode,
      status: end.exitCode === 0 ? "completed" : "failed",
    };
  const message = end.type === "failed" ? end.message : "ended to make room for another session";
  return { ...item, output: `${output}${message}`, exitCode: NO_EXIT_CODE, status: "failed" };
}
