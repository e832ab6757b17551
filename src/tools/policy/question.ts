import { visibleLine, visibleWord } from "../../base/printable-text.ts";
import type { ApprovalRequest } from "./approval.ts";

/**
 * A request as a person is shown it: all that decides what runs, and nothing that a terminal would obey. Each line of the
 * command has a mark before it, so that none can pass for a line of the question.
 */
export function questionOf(request: ApprovalRequest): string {
  const { cmd, argv, workdir, sandbox, shell, tty } = request;
  const walls = sandbox === "none" ? "without a sandbox" : `in a ${sandbox} sandbox`;
  const by = argv.slice(0, -1).map(visibleWord).join(" ");
  const lines = cmd.split("\n").map((line, index) => `  ${index === 0 ? "$" : ">"} ${visibleLine(line)}`);
  return [
    whyOf(request),
    ...lines,
    `  in ${visibleLine(workdir)}, ${walls}`,
    `  run by ${by}${shell === "other" ? " (NOT the usual shell)" : ""}${tty ? ", on a terminal" : ""}`,
  ].join("\n");
}

/** The beginning of a command that may be allowed from now on, as words. */
export function shownPrefix(prefix: readonly string[]): string {
  return prefix.map(visibleWord).join(" ");
}

function whyOf({ kind, justification }: ApprovalRequest): string {
  if (kind === "retry") return "The sandbox refused something. Run it again without the sandbox?";
  if (justification === undefined) return "Run this command?";
  return `Run this command? The model says: ${visibleLine(justification)}`;
}
