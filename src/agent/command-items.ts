import type { ExecCommandEnd, UnifiedExecEvent } from "../tools/sessions/exec-events.ts";
import type { ThreadItem } from "./notification.ts";

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
    }
  }
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
