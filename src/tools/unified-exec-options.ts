import * as option from "../exec/options/option-schema.ts";
import { backendKind, clockKind, envPolicyKind, terminalSizeKind, variables } from "../exec/options/process-options.ts";
import type { UnifiedExecOptions } from "./unified-exec.ts";

/** Tools of `createUnifiedExec`, or of the caller. */
export const toolsKind = option.listOf(option.objectWith("a Tool", "call"), "an array of tools");

/** Schema of the options of `createUnifiedExec`. */
export const unifiedExecOptions = option.optionsOf<UnifiedExecOptions>(() => ({
  backend: option.required(backendKind),
  cwd: option.required(option.nonEmptyText),
  env: variables,
  envPolicy: option.nullOr(envPolicyKind),
  approval: option.objectWith("an ApprovalPolicy", "review"),
  sandbox: option.anyObject,
  hostSandboxes: option.texts,
  pipeStdin: option.flag,
  terminalSize: terminalSizeKind,
  limits: option.optionsOf<NonNullable<UnifiedExecOptions["limits"]>>(() => ({
    ...option.each(option.duration, "execDefaultMs", "execMinMs", "execMaxMs", "pollMinMs", "pollMaxMs"),
    ...option.each(option.duration, "writeDefaultMs", "writeMinMs", "writeMaxMs", "loginDeadlineMs"),
    ...option.each(option.count, "maxSessions", "protectedSessions", "memoryBytes", "fileBytes", "maxOutputTokens"),
  })),
  clock: clockKind,
  attachUrl: option.nullOr(option.text),
  ...option.each(option.text, "shell", "spillDirectory", "processPrefix"),
  ...option.each(option.callback, "reopenCount", "onError"),
}));

/** Throws an `EINVAL` error unless `tool` can convert the tools. */
export function checkConversion(operation: string, tools: unknown, tool: unknown): void {
  option.checkArgument(operation, "tools", tools, toolsKind);
  option.checkArgument(operation, "tool", tool, option.callback);
}
