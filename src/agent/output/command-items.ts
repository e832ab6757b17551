import type {
  ExecCommandEnd,
  TerminalDriver,
  TerminalWaiting,
  UnifiedExecEvent,
} from "../../tools/sessions/exec-events.ts";
import type { ThreadItem, ToolEvent } from "../agent-notification.ts";

export type CommandItem = Extract<ThreadItem, { type: "commandExecution" }>;

/** What a command is told as that has no exit code because it did not start, or is no longer known. */
export const NO_EXIT_CODE = -1;

/**
 * Reports commands as items: each once when it starts and once when it has ended, however many calls read from it in
 * between, and also when it was run again without the sandbox: the item then ends as the second attempt did. A command
 * that still runs when the run ends is not reported as completed.
 */
export async function followCommands(
  events: AsyncIterable<UnifiedExecEvent>,
  tell: (method: "item/started" | "item/completed", item: CommandItem) => void,
  tellTerminal: (event: ToolEvent) => void = () => undefined,
): Promise<void> {
  /** By session number, which both attempts at a command share. */
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
      tell("item/started", item);
    } else if (event.type === "ExecCommandEnd" && !event.runsAgain) {
      const item = running.get(event.sessionId);
      running.delete(event.sessionId);
      if (item && event.end.type !== "closed") tell("item/completed", ended(item, event));
    } else if (event.type === "TerminalWaiting" || event.type === "TerminalDriver") {
      tellTerminal(terminalEvent(event));
    }
  }
}

/** For programs a line of JSON, for people how to get there. */
function terminalEvent(event: TerminalWaiting | TerminalDriver): ToolEvent {
  const session = { session_id: event.sessionId };
  if (event.type === "TerminalDriver") {
    const json = JSON.stringify({ type: "terminal.driver", ...session, driver: event.driver });
    const what = event.driver === "person" ? "a person drives" : "handed back";
    return { json, line: `session ${event.sessionId}: ${what}` };
  }
  const { waitingFor, reason, attach } = event;
  const fields = { waiting_for: waitingFor, reason: reason ?? undefined, attach: attach ?? undefined };
  const what = waitingFor === "secret" ? "waits for a secret" : `asks for a person: ${reason}`;
  const how = attach ? `; attach with: ${attach.command}` : "";
  return {
    json: JSON.stringify({ type: "terminal.waiting", ...session, ...fields }),
    line: `session ${event.sessionId} ${what}${how}`,
  };
}

function ended(item: CommandItem, { end, head, tail, omittedBytes }: ExecCommandEnd): CommandItem {
  const notice = omittedBytes === 0 ? "" : `\n... ${omittedBytes} bytes omitted ...\n`;
  const output = Buffer.concat([head, Buffer.from(notice), tail]).toString("utf8");
  if (end.type === "exited")
    return {
      ...item,
      output,
      exitCode: end.exitCode,
      status: end.exitCode === 0 ? "completed" : "failed",
    };
  const why = end.type === "failed" ? end.message : "ended to make room for another session";
  return { ...item, output: `${output}${why}`, exitCode: NO_EXIT_CODE, status: "failed" };
}
