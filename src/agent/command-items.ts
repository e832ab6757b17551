import type { ExecCommandEnd, UnifiedExecEvent } from "../tools/sessions/exec-events.ts";
import type { ThreadItem } from "./notification.ts";

export type CommandItem = Extract<ThreadItem, { type: "commandExecution" }>;

/** What a command is told as that has no exit code because it did not start, or is no longer known. */
export const NO_EXIT_CODE = -1;

/**
 * Tells commands as items: each one once when it starts and once when it has ended, however many calls looked at it
 * meanwhile. What still runs when the run ends is not told as completed.
 */
export async function followCommands(
  events: AsyncIterable<UnifiedExecEvent>,
  tell: (method: "item/started" | "item/completed", item: CommandItem) => void,
): Promise<void> {
  const running = new Map<string, CommandItem>();
  for await (const event of events) {
    if (event.type === "ExecCommandBegin") {
      const item: CommandItem = {
        type: "commandExecution",
        id: event.processId,
        command: event.cmd,
        argv: event.argv,
        output: "",
        exitCode: null,
        status: "inProgress",
      };
      running.set(event.processId, item);
      tell("item/started", item);
    } else if (event.type === "ExecCommandEnd") {
      const item = running.get(event.processId);
      running.delete(event.processId);
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
