/** What the signatures of the adapters name. */

export type {
  ApprovalAnswer,
  ApprovalRequest,
  AskCaller,
} from "../tools/policy/approval.ts";
export type { ShellChoice } from "../tools/policy/shell-choice.ts";
export type { JsonSchema, Tool, ToolCallContext, ToolDefinition, ToolOutput } from "../tools/tool.ts";
