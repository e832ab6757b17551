import { printableLine, shellQuote } from "../../base/printable-text.ts";
import type { ApprovalRequest } from "./approval.ts";

/**
 * Formats an approval prompt: everything that determines the command, with control characters escaped. Each line of the
 * command has a prefix, so that none can imitate a line of the prompt.
 */
export function approvalPrompt(request: ApprovalRequest): string {
  const { cmd, argv, workdir, sandbox, shell, tty } = request;
  const sandboxText = sandbox === "none" ? "without a sandbox" : `in a ${sandbox} sandbox`;
  const shellCommand = argv.slice(0, -1).map(shellQuote).join(" ");
  const lines = cmd.split("\n").map((line, index) => `  ${index === 0 ? "$" : ">"} ${printableLine(line)}`);
  return [
    reasonLine(request),
    ...lines,
    `  in ${printableLine(workdir)}, ${sandboxText}`,
    `  run by ${shellCommand}${shell === "other" ? " (NOT the usual shell)" : ""}${tty ? ", on a terminal" : ""}`,
  ].join("\n");
}

/** Formats a command prefix as shell words. */
export function formatPrefix(prefix: readonly string[]): string {
  return prefix.map(shellQuote).join(" ");
}

function reasonLine({ kind, justification }: ApprovalRequest): string {
  if (kind === "retry") return "The sandbox denied an operation. Run the command again without the sandbox?";
  if (justification === undefined) return "Run this command?";
  return `Run this command? The model says: ${printableLine(justification)}`;
}
