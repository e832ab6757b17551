import type { ExecContext } from "../sessions/exec-context.ts";
import type { ExecSession } from "../sessions/exec-session.ts";
import { type Screen, ScreenView } from "../sessions/screen.ts";
import type { Tool } from "../tool.ts";
import { toolDefinitions } from "./tool-definitions.ts";
import { sessionTool } from "./validated-tool.ts";
import { missingTerminal, readTtyState } from "./yield-call.ts";

/** Returns the screen of a terminal instead of the escape codes that draw it. */
export function readScreenTool(context: ExecContext): Tool {
  // A view lives as long as its exec session. Only this tool uses it.
  const views = new WeakMap<ExecSession, ScreenView>();
  return sessionTool(context, toolDefinitions.readScreen, async (session) => {
    if (!session.command.tty) return missingTerminal(session);
    const view = views.get(session) ?? new ScreenView(session.archive);
    views.set(session, view);
    context.sessions.touch(session);
    const { rows, cols } = (await readTtyState(context, session)) ?? context.terminalSize;
    const screen = await view.render({ rows, cols });
    return { ok: true, text: formatScreen(screen), structured: { ...screen } };
  });
}

function formatScreen(screen: Screen): string {
  const { rows, cols, cursor, alternate, title } = screen;
  const facts = [
    `Screen: ${cols} columns, ${rows} rows${alternate ? ", alternate" : ""}`,
    `Cursor: row ${cursor.row + 1}, column ${cursor.col + 1}`,
    ...(title === "" ? [] : [`Title: ${title}`]),
    "Text:",
  ];
  // Omits trailing empty rows below the cursor.
  const lastRow = Math.max(
    cursor.row,
    screen.lines.findLastIndex((line) => line !== ""),
  );
  return [...facts, ...screen.lines.slice(0, lastRow + 1)].join("\n");
}
